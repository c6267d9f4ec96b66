-- What a boot did with memory: its devices, the allocator and the KV cache at the points ready, held and after.

ALTER TABLE boot ADD COLUMN memory_sizes JSON;
ALTER TABLE boot ADD COLUMN impossible JSON;
ALTER TABLE boot ADD COLUMN memory_missing JSON;

-- Sizes are bytes in use on the whole device. Each list of samples is as long as sample_times.
CREATE TABLE gpu (
    boot_id VARCHAR NOT NULL,
    "index" INTEGER,
    uuid VARCHAR NOT NULL,
    name VARCHAR,
    state VARCHAR,
    total_bytes BIGINT,
    idle_bytes BIGINT,
    before_bytes BIGINT,
    ready_bytes BIGINT,
    peak_bytes BIGINT,
    after_bytes BIGINT,
    process_bytes JSON,
    context_bytes JSON,
    foreign_processes JSON,
    persistence BOOLEAN,
    pcie_gen INTEGER,
    pcie_gen_max INTEGER,
    pcie_width INTEGER,
    pcie_width_max INTEGER,
    throttle JSON,
    errors JSON,
    missing JSON,
    sample_times DOUBLE[],
    samples MAP(VARCHAR, DOUBLE[])
);

-- One row a point, rank and device; sizes are bytes.
CREATE TABLE allocator (
    boot_id VARCHAR NOT NULL,
    point VARCHAR NOT NULL,
    pid INTEGER,
    device INTEGER,
    process VARCHAR,
    allocated BIGINT,
    allocated_peak BIGINT,
    reserved BIGINT,
    reserved_peak BIGINT,
    active BIGINT,
    active_peak BIGINT,
    inactive_split BIGINT,
    requested BIGINT,
    retries BIGINT,
    segments BIGINT,
    graph_pools BIGINT,
    expandable BOOLEAN,
    at_s DOUBLE
);

CREATE TABLE kv_cache (
    boot_id VARCHAR NOT NULL,
    point VARCHAR NOT NULL,
    at_s DOUBLE,
    block_size BIGINT,
    total_blocks BIGINT,
    used_blocks BIGINT,
    capacity_tokens BIGINT,
    tokens BIGINT,
    counted_by VARCHAR,
    running BIGINT,
    waiting BIGINT,
    hits DOUBLE,
    queries DOUBLE,
    source VARCHAR
);

CREATE TABLE burst (
    boot_id VARCHAR NOT NULL,
    digest VARCHAR,
    requests INTEGER,
    tokens INTEGER,
    shared_tokens INTEGER,
    prompt_tokens BIGINT[],
    begin_s DOUBLE,
    held_at DOUBLE,
    end_s DOUBLE,
    held BOOLEAN,
    failed JSON
);

-- How fast the weights came, bytes a second.
CREATE TABLE weight_load (
    boot_id VARCHAR NOT NULL,
    weight_bytes BIGINT,
    seconds DOUBLE,
    read_speed DOUBLE,
    copy_speed DOUBLE,
    link_speed DOUBLE,
    bound_by VARCHAR,
    missing JSON
);
