"""Options: a wrong value ends the run with exit 4 before a boot; each has an ini twin, which the command line beats."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import pytest

from pytest_coldstart.store.home import Home
from tests.gate.made import boot, run
from tests.plugin.conftest import Inner, text_of

ENGINES = "llamacpp, openai, sglang, tensorrt_llm, tgi, transformers, triton, turbomind, vllm"
TIERS = "pristine, scale_out, redeploy, restart"

#: option, value, what the message says of it beside the option's name
WRONG = (
    ("engine", "vlm", ("'vlm'", ENGINES)),
    ("engine", "openai,vlm", ("'vlm'", ENGINES)),
    ("tier", "cold", ("'cold'", TIERS)),
    ("require", "vlm", ("'vlm'", ENGINES)),
    ("python", "vllm", ("'vllm' is not of the form ENGINE=PATH", "vllm=env/bin/python")),
    ("python", "vllm=", ("'vllm=' is not of the form ENGINE=PATH",)),
    ("python", "vlm=python3", ("'vlm'", ENGINES)),
    ("python", "vllm=/no/such/python", ("'/no/such/python' is no executable file", "engine's environment")),
    ("python", "vllm=no-such-python", ("'no-such-python' is no executable file",)),
    ("python", "vllm=/usr", ("'/usr' is no executable file; give the interpreter",)),
    ("python", f"vllm={sys.prefix}", (f"did you mean {sys.prefix}/bin/python?",)),
    ("python", "vllm=~no-such-user/python", ("'~no-such-user/python'",)),
    ("python", "vllm=/etc/passwd", ("'/etc/passwd' is no executable file",)),
    ("rounds", "0", ("'0'", "whole number from 1")),
    ("rounds", "-1", ("'-1'", "whole number from 1")),
    ("rounds", "x", ("'x'", "whole number from 1")),
    ("rounds", "2.5", ("'2.5'", "whole number from 1")),
    ("budget", "30", ("'30' has no unit", "'min'")),
    ("budget", "0s", ("'0s'", "greater than zero")),
    ("budget", "-3s", ("'-3s'", "greater than zero")),
    ("boot-timeout", "5MB", ("'MB'", "'ms'")),
    ("boot-timeout", "soon", ("'soon' is not a number", "'10s'")),
    ("hang-timeout", "1e999s", ("'1e999s'", "finite")),
    ("phase-deadline", "listen", ("'listen'", "INSTANT=DURATION")),
    ("phase-deadline", "lunch=3s", ("'lunch'", "listen, ready, first_token, first_done, warmed")),
    ("phase-deadline", "listen=3", ("'3' has no unit", "'s'")),
    ("keep-logs", "some", ("'some'", "all, failed, none")),
    ("burst", "maybe", ("'maybe'", "auto, on, off")),
    ("gpu-wait", "60", ("'60'",)),
    ("foreign-gpu", "share", ("'share'", "refuse, allow")),
    ("baseline", "", ("the value is empty",)),
    ("baseline", "main", ("base 'main' is no such form", "run:last, git:REF")),
    ("baseline", "run:last", ("there is no store at",)),
    ("baseline", "python:python3", ("is booted now",)),
    ("slo", "cold_start<=1", ("'cold_start<=1'", "has no unit", "'ms'")),
    ("slo", "cold_start<=1MB", ("'cold_start<=1MB'", "unknown unit 'MB'", "'ms'")),
    ("slo", "cold_start<10s", ("'cold_start<10s'", "METRIC[.STAT][@TIER] <=|>= BOUND")),
    ("slo", "cold_start<=", ("'cold_start<='", "METRIC[.STAT][@TIER] <=|>= BOUND")),
    ("slo", "coldstart<=1s", ("unknown metric 'coldstart'", "cold_start", "warm_first_token")),
    ("slo", "cold_start.p42<=1s", ("unknown statistic 'p42'", "max, min, mean, p50, p90, p95, p99")),
    ("slo", "cold_start@warm<=1s", ("unknown tier 'warm'", "pristine", "scale_out")),
    ("slo", "leaked_processes<=0s", ("a count takes no unit", "write '0'")),
)


@pytest.mark.parametrize(("option", "value", "words"), WRONG, ids=[f"{row[0]}={row[1]}" for row in WRONG])
def test_a_wrong_value_ends_with_4_names_what_is_valid_and_boots_nothing(
    inner: Inner, option: str, value: str, words: tuple[str, ...]
) -> None:
    inner.suite("@fake\ndef test_a(cold_boot): ...\n")
    result = inner.pytester.runpytest_inprocess(*inner.arguments(f"--coldstart-{option}={value}"))
    text = text_of(result)
    assert result.ret == 4
    assert [word for word in (f"--coldstart-{option}", *words) if word not in text] == []
    assert "Traceback" not in text
    assert inner.nothing_booted()


@pytest.mark.parametrize(
    ("ini", "words"),
    [
        ("coldstart_rounds = none", ("ini option coldstart_rounds", "'none'")),
        ("coldstart_slo =\n    cold_start<=1s\n    cold_start<=1x", ("ini option coldstart_slo", "unknown unit 'x'")),
        ("coldstart_tier = restart\n    icy", ("ini option coldstart_tier", "'icy'", TIERS)),
        ("coldstart_budget = soon", ("ini option coldstart_budget", "'soon'")),
        ("coldstart_keep_logs = some", ("ini option coldstart_keep_logs", "all, failed, none")),
    ],
)
def test_a_wrong_ini_value_is_named_by_its_ini_option(inner: Inner, ini: str, words: tuple[str, ...]) -> None:
    inner.ini(ini)
    result = inner.pytester.runpytest_inprocess(*inner.arguments())
    assert result.ret == 4
    assert [word for word in words if word not in text_of(result)] == []


SHOW = """
import json

def pytest_report_header(config):
    from pytest_coldstart.session import session_of

    found = session_of(config).settings
    shown = {name: getattr(found, name) for name in found.__dataclass_fields__}
    for name in ("slo_command_line", "slo_ini", "slo_default"):
        shown[name] = [bound.text for bound in shown[name]]
    return "SETTINGS " + json.dumps(shown, default=lambda value: value if isinstance(value, dict) else str(value))
"""


def settings_of(result: pytest.RunResult) -> dict:
    line = next(line for line in result.outlines if line.startswith("SETTINGS "))
    return json.loads(line.removeprefix("SETTINGS "))


def test_each_ini_option_is_read_and_the_command_line_wins(inner: Inner) -> None:
    inner.conftest(SHOW)
    one, two = (run(Home.at(inner.path / "sides"), name, [boot(1)]) for name in ("r-1", "r-2"))
    inner.ini(f"""
coldstart = true
coldstart_store = {inner.path}/from-ini
coldstart_engine = openai
coldstart_tier =
    restart
    pristine
coldstart_rounds = 7
coldstart_budget = 2h
coldstart_boot_timeout = 3min
coldstart_phase_deadline = listen=30s
coldstart_hang_timeout = 1500ms
coldstart_require = llamacpp
coldstart_python = openai={sys.executable}
coldstart_cpu = true
coldstart_slo = cold_start<=9s
coldstart_probe = marks
coldstart_spans = true
coldstart_burst = on
coldstart_gpu_wait = 5s
coldstart_foreign_gpu = allow
coldstart_baseline = {one}
coldstart_keep_logs = all
coldstart_parallel = true
coldstart_allow_empty = true
""")
    base = ["-p", "coldstart", "-p", "no:cacheprovider"]
    result = inner.pytester.runpytest_subprocess(*base)
    assert result.ret == 0  # allow_empty: without it, a run without a cell ends with 5
    assert settings_of(result) == {
        "store": f"{inner.path}/from-ini",
        "engines": ["openai"],
        "tiers": ["restart", "pristine"],
        "rounds": 7,
        "rounds_override": None,
        "budget": 7200.0,
        "boot_timeout": 180.0,
        "deadlines": {"listen": 30.0},
        "hang_timeout": 1.5,
        "require": ["llamacpp"],
        "pythons": {"openai": sys.executable},
        "cpu": True,
        "slo_command_line": [],
        "slo_ini": ["cold_start<=9s"],
        "slo_default": ["cold_start<=10s", "warm_first_token<=500ms", "fragmentation<=5%", "leaked_gpu_memory<=0B"],
        "probe": "marks",
        "spans": True,
        "burst": "on",
        "gpu_wait": 5.0,
        "foreign_gpu": "allow",
        "baseline": str(one),
        "keep_logs": "all",
        "parallel": True,
        "allow_empty": True,
    }
    words = "engine=llamacpp tier=redeploy,scale_out rounds=2 budget=1min boot-timeout=4s phase-deadline=ready=1h "
    words += f"python=llamacpp={sys.executable} "
    words += "hang-timeout=2s require=openai slo=cold_start<=8s probe=off keep-logs=none store=from-line "
    words += f"burst=off gpu-wait=2min foreign-gpu=refuse baseline={two}"
    result = inner.pytester.runpytest_subprocess(*base, *(f"--coldstart-{word}" for word in words.split()))
    assert result.ret == 0
    found = settings_of(result)
    del found["slo_default"]
    assert found == {
        "store": f"{inner.path}/from-line",
        "engines": ["llamacpp"],
        "tiers": ["redeploy", "scale_out"],
        "rounds": 2,
        "rounds_override": 2,
        "budget": 60.0,
        "boot_timeout": 4.0,
        "deadlines": {"ready": 3600.0},
        "hang_timeout": 2.0,
        "require": ["openai"],
        "pythons": {"llamacpp": sys.executable},
        "cpu": True,
        "slo_command_line": ["cold_start<=8s"],
        "slo_ini": ["cold_start<=9s"],
        "probe": "off",
        "spans": True,
        "burst": "off",
        "gpu_wait": 120.0,
        "foreign_gpu": "refuse",
        "baseline": str(two),
        "keep_logs": "none",
        "parallel": True,
        "allow_empty": True,
    }


def test_without_options_the_documented_defaults_hold(inner: Inner) -> None:
    inner.ini("")
    inner.conftest(SHOW)
    result = inner.pytester.runpytest_subprocess("-p", "coldstart", "-p", "no:cacheprovider", "--coldstart")
    assert result.ret == 5
    found = settings_of(result)
    assert found["store"] == f"{inner.path}/.coldstart"
    assert (found["rounds"], found["boot_timeout"], found["hang_timeout"]) == (3, 600.0, 120.0)
    assert (found["budget"], found["keep_logs"], found["parallel"], found["allow_empty"]) == (
        None,
        "failed",
        False,
        False,
    )


# -- the store


def run_on(inner: Inner, store: Path) -> pytest.RunResult:
    inner.suite("@fake\ndef test_a(cold_boot): ...\n")
    return inner.pytester.runpytest_subprocess("-p", "coldstart", "--coldstart", f"--coldstart-store={store}")


@pytest.mark.parametrize("place", ["below a file", "/proc/coldstart"])
def test_a_store_that_cannot_be_written_is_an_error_before_a_boot(inner: Inner, place: str) -> None:
    (inner.path / "file").write_text("x")
    store = inner.path / "file" / "store" if place == "below a file" else Path(place)
    result = run_on(inner, store)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: *the store cannot be written: {store}*choose another with --coldstart-store*"]
    )
    assert "Traceback" not in text_of(result)


def test_a_store_that_is_no_database_is_an_error_before_a_boot(inner: Inner) -> None:
    inner.store.mkdir()
    (inner.store / "coldstart.duckdb").write_text("these are no tables, only words\n" * 400)
    result = run_on(inner, inner.store)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *could not open the store */coldstart.duckdb: *choose another*"])
    assert "Traceback" not in text_of(result)
    assert inner.run_files == []


def test_a_store_with_other_tables_is_an_error_before_a_boot(inner: Inner) -> None:
    inner.store.mkdir()
    with duckdb.connect(str(inner.store / "coldstart.duckdb")) as con:
        con.execute("CREATE TABLE somebody_elses (id INTEGER)")
    result = run_on(inner, inner.store)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *holds other tables and is no store*"])
    assert inner.run_files == []


def test_a_store_of_a_newer_schema_is_refused_with_both_versions(inner: Inner) -> None:
    inner.store.mkdir()
    with duckdb.connect(str(inner.store / "coldstart.duckdb")) as con:
        con.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP)")
        con.execute("INSERT INTO schema_version VALUES (99, now()::TIMESTAMP)")
    result = run_on(inner, inner.store)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *has schema version 99, newer than *upgrade it*"])
    assert inner.run_files == []


def test_a_path_that_ends_in_duckdb_is_the_database_itself(inner: Inner) -> None:
    result = run_on(inner, inner.path / "kept" / "mine.duckdb")
    assert result.ret == 0
    with duckdb.connect(str(inner.path / "kept" / "mine.duckdb"), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM boot").fetchall() == [(1,)]
