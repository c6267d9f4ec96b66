"""The demo's boots: made up, and stored, measured and judged as real ones."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pytest_coldstart import demo
from pytest_coldstart.demo.cells import CELLS
from pytest_coldstart.demo.history import REGRESSION
from pytest_coldstart.hints import hints
from pytest_coldstart.metrics import METRICS, measure
from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import statistic
from pytest_coldstart.store.boots import load_all
from pytest_coldstart.store.database import reader
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.rows import TABLES

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home.at(tmp_path_factory.mktemp("demo") / "store")
    made.prepare()
    demo.write(made, NOW)
    return made


@pytest.fixture
def con(home: Home) -> duckdb.DuckDBPyConnection:
    return reader(home.database)


@pytest.fixture(scope="module")
def records(home: Home) -> list[BootRecord]:
    with reader(home.database) as con:
        return load_all(con, [row[0] for row in con.execute("SELECT boot_id FROM boot").fetchall()])


def cold_starts(records: list[BootRecord], engine: str, cell_id: str) -> list[tuple[str, float]]:
    """Start and cold start of the boots of a cell that went well, in the order of time."""
    return [
        (record.started_at, record.metrics["cold_start"].value or 0.0)
        for record in records
        if (record.engine, record.cell_id, record.outcome, record.role) == (engine, cell_id, "ok", "measured")
    ]


def ends(found: list[tuple[str, float]], boots: int = 6) -> tuple[float, float]:
    """The median of the first boots and that of the last."""
    values = [value for _, value in found]
    return statistic(values[:boots], "p50"), statistic(values[-boots:], "p50")


def test_every_run_says_that_it_is_made_up(con: duckdb.DuckDBPyConnection) -> None:
    (found,) = con.execute(
        "SELECT count(*), count(*) FILTER (json_extract_string(extra, '$.demo') = 'true'), "
        "count(*) FILTER (contains(hostname, 'demo')) FROM run"
    ).fetchall()
    assert found[0] == found[1] == found[2] > 50
    assert all("demo" in item.engine.model and "demo" in item.nodeid for item in CELLS)


def test_nobody_else_says_so(tmp_path: Path) -> None:
    from dashboard.data.series import is_demo
    from tests.store.samples import record, write

    other = Home.at(tmp_path)
    other.prepare()
    write(other, "main", record("b-1"))
    from pytest_coldstart.store.ingest import ingest

    ingest(other)
    with reader(other.database) as con:
        assert not is_demo(con)


def test_the_page_takes_it_for_a_demo(con: duckdb.DuckDBPyConnection) -> None:
    from dashboard.data.series import all_series, is_demo

    assert is_demo(con)
    series = all_series(con)
    assert {item.engine for item in series} == {
        *("vllm", "sglang", "turbomind", "tensorrt_llm", "llamacpp", "transformers")
    }
    assert {item.tier for item in series} == {"pristine", "redeploy", "restart", "wake"}
    assert {item.gpu for item in series} == {"NVIDIA H200", "NVIDIA H100 80GB HBM3"}


def test_the_history_is_as_long_as_it_is_said_to_be(con: duckdb.DuckDBPyConnection) -> None:
    ((first, last, boots),) = con.execute("SELECT min(started_at), max(started_at), count(*) FROM boot").fetchall()
    assert 85 <= (last - first).days <= 91
    assert 0 < (NOW.replace(tzinfo=None) - last).total_seconds() < 3 * 86400
    assert 500 < boots <= 1500


def test_every_table_has_rows(con: duckdb.DuckDBPyConnection) -> None:
    for table in ("run", "boot", "verdict", *TABLES):
        ((count,),) = con.execute(f"SELECT count(*) FROM {table}").fetchall()
        assert count, table


def test_metrics_and_hints_are_those_of_the_registry(records: list[BootRecord]) -> None:
    for record in records[::40]:
        assert record.metrics == measure(record)
        assert record.hints == hints(record)
        assert record.metrics.keys() == METRICS.keys()
    assert any(record.hints for record in records)


def test_the_path_has_no_gap_and_no_overlap(records: list[BootRecord]) -> None:
    for record in records:
        assert record.phases[0].begin == 0.0
        assert all(a.end == b.begin for a, b in pairwise(record.phases))
        assert record.attribution.end == record.phases[-1].end
        if record.outcome == "ok":
            assert record.instants["first_done"] == record.phases[-1].end
            assert record.metrics["cold_start"].value == record.instants["first_done"]


def test_no_boot_begins_before_the_one_before_it_has_stopped(records: list[BootRecord]) -> None:
    at: dict[str, float] = {}
    for record in records:
        begin = datetime.fromisoformat(record.started_at).timestamp()
        assert begin >= at.get(record.run_id, 0.0)
        at[record.run_id] = begin + record.instants["stopped"]


def test_one_commit_made_a_cell_slower_and_one_phase_moved(records: list[BootRecord]) -> None:
    before, after = ends(cold_starts(records, "vllm", "enforce_eager:false-restart"))
    assert after > 1.25 * before
    before, after = ends(cold_starts(records, "vllm", "enforce_eager:true-restart"))
    assert after < 1.02 * before
    slow = [item for item in records if item.cell_id == "enforce_eager:false-restart" and item.outcome == "ok"]
    moved = {name: slow[-1].metrics[f"phase.{name}"].value - slow[0].metrics[f"phase.{name}"].value  # type: ignore[operator]
             for name in ("compile", "imports", "load_weights", "graph_capture")}  # fmt: skip
    assert max(moved, key=lambda name: moved[name]) == "compile"
    assert "cache_not_reused" in {hint.rule for hint in slow[-1].hints}
    assert "cache_not_reused" not in {hint.rule for hint in slow[0].hints}


def test_the_history_finds_the_commit(con: duckdb.DuckDBPyConnection) -> None:
    pytest.importorskip("ruptures", reason="change points need ruptures: pip install 'pytest-coldstart[gate]'")
    from pytest_coldstart.history.points import histories
    from pytest_coldstart.history.read import all_series

    cell = [item for item in all_series(con) if item.cell_id == "enforce_eager:false-restart"]
    for found in histories(con, cell[:1], "phase.compile"):
        worse = [point for point in found.points if point.regression]
        assert len(worse) == 1
        assert abs((worse[0].at - NOW.replace(tzinfo=None)).days + 90 - REGRESSION) <= 3  # type: ignore[operator]


def test_one_engine_became_faster_and_one_was_upgraded(records: list[BootRecord]) -> None:
    before, after = ends(cold_starts(records, "turbomind", "restart"))
    assert after < 0.9 * before
    versions = {record.versions["sglang"] for record in records if record.engine == "sglang"}
    assert len(versions) == 2


def test_the_driver_changed_once(con: duckdb.DuckDBPyConnection) -> None:
    found = con.execute("SELECT driver FROM run ORDER BY started_at").fetchall()
    assert sum(a != b for a, b in pairwise(found)) == 1


def test_one_series_was_given_up(con: duckdb.DuckDBPyConnection) -> None:
    late = "SELECT engine FROM boot GROUP BY engine HAVING max(started_at) < ?::TIMESTAMP - INTERVAL 20 DAY"
    assert con.execute(late, [NOW.replace(tzinfo=None)]).fetchall() == [("transformers",)]


def test_one_slo_is_broken_now_and_one_metric_cannot_be_measured_any_more(con: duckdb.DuckDBPyConnection) -> None:
    found = con.execute(
        "WITH last AS (SELECT cell_digest, max(run_id) AS run_id FROM verdict GROUP BY cell_digest) "
        "SELECT DISTINCT v.verdict, v.metric, split_part(v.nodeid, '::', 1) FROM verdict v SEMI JOIN last "
        "ON last.cell_digest = v.cell_digest AND last.run_id = v.run_id WHERE v.verdict IN ('fail', 'unmeasured')"
    ).fetchall()
    assert set(found) == {
        ("fail", "cold_start", "suites/test_demo_vllm.py"),
        ("unmeasured", "fragmentation", "suites/test_demo_turbomind.py"),
    }
    ((reason,),) = con.execute(
        "SELECT DISTINCT reason FROM verdict WHERE verdict = 'unmeasured' AND metric = 'fragmentation'"
    ).fetchall()
    assert "its log has no line of blocks in use any more" in reason


def test_some_boots_fail_as_engines_do(records: list[BootRecord]) -> None:
    failed = [record for record in records if record.failed]
    assert {record.failure.kind for record in failed if record.failure} >= {"exit", "hang"}
    assert len(failed) < 0.05 * len(records)
    assert all(record.failure and record.failure.log_tail and record.log_path for record in failed)
    assert all(Path(str(record.log_path)).read_text().startswith("[+") for record in failed)
    assert [record.outcome for record in records].count("error") == 1
    assert any(record.role == "prime" for record in records)


def test_memory_is_read_at_every_point(con: duckdb.DuckDBPyConnection) -> None:
    points = con.execute("SELECT point, count(*) FROM allocator GROUP BY point").fetchall()
    assert {point for point, _ in points} == {"ready", "held", "after"}
    ((low, high),) = con.execute("SELECT min(len(sample_times)), max(len(sample_times)) FROM gpu").fetchall()
    assert low == high > 10
    values = con.execute("SELECT min(value), max(value) FROM metric WHERE name = 'fragmentation'").fetchall()
    assert 0 <= values[0][0] < values[0][1] < 0.05


def test_larger_blocks_waste_more(records: list[BootRecord]) -> None:
    waste: dict[Any, float] = {}
    for record in records:
        value = record.metrics["kv_fragmentation"].value
        if value is not None and record.engine == "vllm":
            waste[record.cell["options"]["block_size"]] = value
    assert waste[32] > 1.5 * waste[16] > 0


def test_the_same_seed_gives_the_same_boots(home: Home, tmp_path: Path) -> None:
    again, other = Home.at(tmp_path / "again"), Home.at(tmp_path / "other")
    for made, seed in ((again, 1), (other, 2)):
        made.prepare()
        demo.write(made, NOW, seed)

    def boots(where: Home) -> list[Any]:
        with reader(where.database) as con:
            return con.execute(
                "SELECT boot_id, name, value, reason FROM metric ORDER BY boot_id, name LIMIT 5000"
            ).fetchall()

    assert boots(home) == boots(again)
    assert boots(home) != boots(other)


def test_the_folder_goes_with_the_process(tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")
    code = (
        "import tempfile, sys; tempfile.tempdir = sys.argv[1]\n"
        "from dashboard.demo import made\nhome = made()\nassert home.database.is_file()\nprint(home.root)"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
