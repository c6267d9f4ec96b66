-- All times are UTC without a zone, all offsets seconds from the boot's start, all sizes bytes.

CREATE TABLE run (
    run_id VARCHAR PRIMARY KEY,
    started_at TIMESTAMP,
    hostname VARCHAR,
    cpu VARCHAR,
    cores INTEGER,
    memory_bytes BIGINT,
    kernel VARCHAR,
    gpu VARCHAR,
    driver VARCHAR,
    hardware_class VARCHAR,
    git_commit VARCHAR,
    git_dirty BOOLEAN,
    git_branch VARCHAR,
    ci JSON,
    versions JSON,
    command JSON,
    extra JSON,
    record_version INTEGER,
    exit_status INTEGER,
    source_file VARCHAR
);

CREATE TABLE boot (
    boot_id VARCHAR PRIMARY KEY,
    run_id VARCHAR NOT NULL,
    series VARCHAR NOT NULL,
    cell_digest VARCHAR NOT NULL,
    base_digest VARCHAR,
    cell_id VARCHAR,
    nodeid VARCHAR,
    engine VARCHAR,
    model_name VARCHAR,
    tier VARCHAR,
    role VARCHAR,
    round INTEGER,
    outcome VARCHAR,
    started_at TIMESTAMP,
    cell JSON,
    versions JSON,
    command JSON,
    environment JSON,
    evidence JSON,
    model JSON,
    usage JSON,
    stop JSON,
    failure_kind VARCHAR,
    failure_message VARCHAR,
    failure_instant VARCHAR,
    log_tail VARCHAR,
    log_path VARCHAR,
    log_bytes BIGINT,
    load_average DOUBLE,
    poll_delay DOUBLE
);

-- The instants of INSTANTS, and each readiness endpoint as 'endpoint:<name>'.
CREATE TABLE instant (
    boot_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    seconds DOUBLE
);

CREATE TABLE phase (
    boot_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    name VARCHAR,
    begin_s DOUBLE,
    end_s DOUBLE,
    source VARCHAR,
    process VARCHAR,
    detail VARCHAR
);

CREATE TABLE metric (
    boot_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE,
    unit VARCHAR,
    source VARCHAR,
    reason VARCHAR
);

CREATE TABLE request (
    boot_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    kind VARCHAR,
    "index" INTEGER,
    sent DOUBLE,
    first_token DOUBLE,
    first_text DOUBLE,
    done DOUBLE,
    ttft DOUBLE,
    prompt_digest VARCHAR,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    events INTEGER,
    finish_reason VARCHAR,
    attempts INTEGER,
    error VARCHAR
);

CREATE TABLE cache (
    boot_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    path VARCHAR,
    files_before BIGINT,
    bytes_before BIGINT,
    digest_before VARCHAR,
    files_after BIGINT,
    bytes_after BIGINT,
    digest_after VARCHAR,
    new_files BIGINT,
    new_names JSON
);

CREATE TABLE verdict (
    run_id VARCHAR NOT NULL,
    cell_digest VARCHAR NOT NULL,
    cell_id VARCHAR,
    tier VARCHAR,
    nodeid VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    stat VARCHAR NOT NULL,
    op VARCHAR NOT NULL,
    bound DOUBLE NOT NULL,
    unit VARCHAR,
    value DOUBLE,
    rounds INTEGER,
    verdict VARCHAR,
    bound_source VARCHAR,
    value_source VARCHAR,
    reason VARCHAR,
    PRIMARY KEY (run_id, nodeid, cell_digest, metric, stat, op, bound)
);

-- Run files that were read, and how far, so that unchanged ones are skipped.
CREATE TABLE ingested (
    file VARCHAR PRIMARY KEY,
    bytes BIGINT,
    closed BOOLEAN
);

CREATE VIEW series AS
SELECT
    series,
    any_value(engine) AS engine,
    any_value(model_name) AS model_name,
    any_value(tier) AS tier,
    -- The id is a label that a suite may change; the digest behind the series is the identity.
    arg_max(cell_id, started_at) AS cell_id,
    count(*) AS boots,
    min(started_at) AS first_started_at,
    max(started_at) AS last_started_at
FROM boot
GROUP BY series;
