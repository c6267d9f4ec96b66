"""Rows for pytest-benchmark: equal to the store, and harmless in every mode of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import Inner, text_of

pytest.importorskip("pytest_benchmark")

pytestmark = pytest.mark.usefixtures("covered_children")

PLUGIN = ("-p", "benchmark")
SMALL = 'options={"n_ctx": 256, "n_parallel": 1, "n_threads": 1, "fit": False, "load_warmup": False}'

#: The begin of the line on what went wrong with pytest-benchmark.
WARNING = "coldstart: warning"

PLAIN = """
def test_plain(benchmark):
    assert benchmark.pedantic(sum, args=([1, 2],), rounds=3) == 3
"""
TWO_ROUNDS = """
@pytest.mark.coldstart(**{**ENGINE, "rounds": 2})
def test_a(cold_boot): ...
"""


def rows(file: Path) -> dict[str, dict[str, Any]]:
    """The rows of a JSON file of pytest-benchmark by their full name, which no two share."""
    found = json.loads(file.read_text("utf-8"))["benchmarks"]
    by_name = {row["fullname"]: row for row in found}
    assert len(by_name) == len(found)
    return by_name


def stored(inner: Inner, metric: str = "cold_start") -> dict[str, list[tuple[str, float | None]]]:
    """Boot ids and values of a metric by the node id of their test, in the order of the rounds."""
    found: dict[str, list[tuple[str, float | None]]] = {}
    for nodeid, boot, value in inner.query(
        "SELECT nodeid, boot_id, value FROM boot JOIN metric USING (boot_id) "
        f"WHERE role = 'measured' AND name = '{metric}' ORDER BY nodeid, round"
    ):
        found.setdefault(nodeid, []).append((boot, value))
    return found


def assert_equal_to_the_store(inner: Inner, file: Path) -> None:
    """Every number of every row of a cell, against the database."""
    cells = {name: row for name, row in rows(file).items() if "coldstart" in row["extra_info"]}
    boots = stored(inner)
    assert list(cells) == list(boots)
    for nodeid, row in cells.items():
        info = row["extra_info"]["coldstart"]
        assert row["stats"]["data"] == [value for _, value in boots[nodeid]]
        assert info["boot_ids"] == [boot for boot, _ in boots[nodeid]]
        assert row["stats"]["rounds"] == len(boots[nodeid])
        known = inner.query("SELECT DISTINCT name, unit FROM metric")
        assert {(name, metric["unit"]) for name, metric in info["metrics"].items()} == set(known)
        for place, boot in enumerate(info["boot_ids"]):
            there = inner.query(f"SELECT name, value, reason FROM metric WHERE boot_id = '{boot}'")
            here = [(name, item["values"][place], item["reasons"][place]) for name, item in info["metrics"].items()]
            assert sorted(here) == sorted(there)
            assert all((value is None) == (reason is not None) for _, value, reason in here)


def test_boots_of_llama_cpp_are_rows_equal_to_the_store_that_can_be_compared(
    inner: Inner, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xllamacpp")
    monkeypatch.delenv("TMPDIR")  # the host's own lock, as in test_real_engine.py
    inner.suite(f"""
@pytest.mark.coldstart(engine="llamacpp", tier="scale_out", rounds=2, requests=1, {SMALL})
def test_boot(cold_boot):
    assert cold_boot.client.complete("Name a colour.", max_tokens=4).completion_tokens == 4
{PLAIN}""")
    result = inner.run(*PLUGIN, "--benchmark-json=first.json", "--benchmark-columns=min,median,max,rounds")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*= cold start =*",
            "*- benchmark: 1 tests -*",
            "test_plain *3",
            "*- benchmark 'cold_start scale_out': 1 tests -*",
            "test_boot[[]scale_out[]] *2",
        ]
    )
    first = inner.path / "first.json"
    assert_equal_to_the_store(inner, first)
    made = rows(first)
    assert list(made) == ["test_suite.py::test_plain", "test_suite.py::test_boot[scale_out]"]
    assert made["test_suite.py::test_plain"]["extra_info"] == {}
    info = made["test_suite.py::test_boot[scale_out]"]["extra_info"]["coldstart"]
    assert (info["engine"], info["tier"], info["cell_id"]) == ("llamacpp", "scale_out", "scale_out")
    assert inner.query(f"SELECT json(versions) FROM boot WHERE boot_id = '{info['boot_ids'][0]}'") == [
        (json.dumps(info["versions"], separators=(",", ":")),)
    ]
    assert inner.query("SELECT DISTINCT cell_digest FROM boot") == [(info["cell_digest"],)]
    whole = json.loads(first.read_text())
    assert whole["coldstart"]["run_id"] == info["run_id"] == inner.query("SELECT run_id FROM run")[0][0]
    assert whole["coldstart"]["failed"] == []
    assert whole["machine_info"]["coldstart"]["hardware_class"] == inner.query("SELECT hardware_class FROM run")[0][0]

    result = inner.run(
        *PLUGIN, "--benchmark-only", "--benchmark-json=second.json", "--coldstart-rounds=1", "-k", "boot"
    )
    assert result.ret == 0
    result.assert_outcomes(passed=1, deselected=1)
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "first.json", "second.json"]
    done = inner.pytester.run(*command, "--columns=min,median,rounds", "--csv=both.csv", timeout=120)
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        ["*'cold_start scale_out': 2 tests*", "test_boot[[]scale_out[]] (*", "test_boot[[]scale_out[]] (*"]
    )
    lines = (inner.path / "both.csv").read_text().splitlines()
    assert len([line for line in lines if "test_boot[scale_out]" in line]) == 2


def test_without_pytest_benchmark_boots_and_verdicts_are_the_same(inner: Inner) -> None:
    inner.suite(TWO_ROUNDS)
    inner.conftest('import sys\nsys.modules["pytest_benchmark"] = None  # as if it were not installed\n')
    result = inner.run("-W", "error")
    assert result.ret == 0
    assert inner.boots() == 2
    assert "pytest-benchmark" not in text_of(result)
    result = inner.run(*PLUGIN, "-p", "no:benchmark", "-W", "error")
    assert result.ret == 0
    assert inner.boots() == 4


def test_disabled_it_gets_nothing_and_says_so_where_a_file_was_asked_for(inner: Inner) -> None:
    inner.suite(TWO_ROUNDS + PLAIN)
    result = inner.run(*PLUGIN, "--benchmark-disable", "--benchmark-json=it.json", "-W", "error")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["coldstart: pytest-benchmark is disabled (*"])
    assert WARNING not in text_of(result)
    assert not (inner.path / "it.json").exists()
    assert inner.boots() == 2


def test_benchmark_only_runs_the_cells_and_skips_what_has_no_row(inner: Inner) -> None:
    inner.suite(TWO_ROUNDS + PLAIN + "\ndef test_other(): ...\n")
    result = inner.run(*PLUGIN, "--benchmark-only", "--benchmark-json=it.json", "-W", "error")
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1)
    assert_equal_to_the_store(inner, inner.path / "it.json")


def test_benchmark_skip_skips_the_cells_as_it_skips_benchmarks(inner: Inner) -> None:
    inner.suite(TWO_ROUNDS + PLAIN + "\ndef test_other(): ...\n")
    result = inner.run(*PLUGIN, "--benchmark-skip")
    assert result.ret == 5  # no cell was judged
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["not judged: openai test_a restart: Skipping benchmark (--benchmark-skip active)."])
    assert inner.nothing_booted()


def test_under_xdist_it_is_disabled_and_the_store_has_all_boots(inner: Inner) -> None:
    pytest.importorskip("xdist")
    inner.suite(TWO_ROUNDS)
    result = inner.run(*PLUGIN, "-p", "xdist", "-n", "2", "--benchmark-json=it.json", "-W", "error")
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["coldstart: pytest-benchmark is disabled (*"])
    assert inner.boots() == 2


def test_a_cell_with_a_failed_boot_has_no_row_and_a_broken_slo_keeps_its_own(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 3}, env={"FAKE_LATER": str(pathlib.Path("later").resolve())})
def test_fails(cold_boot): ...

@fake
@pytest.mark.slo("cold_start<=1us")
def test_slow(cold_boot): ...
""")
    result = inner.run(*PLUGIN, "--benchmark-json=it.json")
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["boot failed (exit): openai restart, tier restart, round 2"])
    assert WARNING not in text_of(result)
    slow, fails = "test_suite.py::test_slow[restart]", "test_suite.py::test_fails[restart]"
    made = rows(inner.path / "it.json")
    boots = stored(inner)
    assert list(made) == [slow]
    assert made[slow]["stats"]["data"] == [value for _, value in boots[slow]]
    (failed,) = json.loads((inner.path / "it.json").read_text())["coldstart"]["failed"]
    assert (failed["fullname"], failed["failure"]) == (fails, "exit")
    assert failed["boot_ids"] == [boot for boot, _ in boots[fails]]
    assert [(failed["failed_boot_id"],)] == inner.query("SELECT boot_id FROM boot WHERE outcome = 'failed'")


def test_a_rerun_has_one_row_with_the_boots_of_all_attempts(inner: Inner) -> None:
    """A failed boot and a missing verdict of the second attempt take away the row of the first."""
    pytest.importorskip("pytest_rerunfailures")
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 2})
@pytest.mark.slo("cold_start<=1us")
def test_slow(cold_boot): ...

@pytest.mark.coldstart(**ENGINE, env={"FAKE_LATER": str(pathlib.Path("later").resolve())})
@pytest.mark.slo("cold_start<=1us")
def test_fails(cold_boot): ...

@pytest.fixture
def once():
    if pathlib.Path("second").exists():
        pytest.skip("not again")
    pathlib.Path("second").touch()

@fake
@pytest.mark.slo("cold_start<=1us")
def test_skips(once, cold_boot): ...
""")
    result = inner.run(*PLUGIN, "-p", "rerunfailures", "--reruns", "1", "--benchmark-json=it.json")
    assert result.ret == 1
    slow = "test_suite.py::test_slow[restart]"
    made = rows(inner.path / "it.json")
    assert list(made) == [slow]
    assert made[slow]["stats"]["data"] == [value for _, value in stored(inner)[slow]]
    assert made[slow]["stats"]["rounds"] == 4
    assert len([line for line in result.outlines if line.startswith("test_slow[restart] ")]) == 1


def test_a_shared_boot_is_one_row_named_after_the_first_test_in_the_file(inner: Inner) -> None:
    inner.suite("""
shared = pytest.mark.coldstart(**{**ENGINE, "rounds": 2})

@shared
def test_z(shared_cold_boot): ...

@shared
def test_b(shared_cold_boot): ...

@shared
def test_x(shared_cold_boot): ...

def test_c(benchmark):
    benchmark.pedantic(int)
""")
    inner.conftest("""
import pytest

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items[0], items[1] = items[1], items[0]  # it is neither the first nor the last to run
""")
    result = inner.run(*PLUGIN, "--benchmark-json=it.json", "-W", "error")
    assert result.ret == 0
    made = rows(inner.path / "it.json")
    assert sorted(made) == ["test_suite.py::test_c", "test_suite.py::test_z[restart]"]
    row = made["test_suite.py::test_z[restart]"]
    assert row["name"] == "test_z[restart]"
    assert {row["extra_info"]["coldstart"]["nodeid"]: row["stats"]["data"]} == {
        nodeid: [value for _, value in boots] for nodeid, boots in stored(inner).items()
    }
    # known only after the stop, which came when all tests were over
    assert row["extra_info"]["coldstart"]["metrics"]["leaked_processes"]["values"] == [0.0, 0.0]


def test_a_test_that_uses_benchmark_itself_keeps_it(inner: Inner) -> None:
    inner.suite("""
@fake
def test_warm(cold_boot, benchmark):
    benchmark.pedantic(cold_boot.client.complete, args=("hello",), kwargs={"max_tokens": 2}, rounds=3)

@fake
def test_asks(cold_boot, request):
    request.getfixturevalue("benchmark")(cold_boot.client.complete, "hello", max_tokens=2)
""")
    result = inner.run(*PLUGIN, "--benchmark-json=it.json", "--benchmark-max-time=0.05", "-W", "error")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    made = rows(inner.path / "it.json")
    assert list(made) == ["test_suite.py::test_warm[restart]", "test_suite.py::test_asks[restart]"]
    assert all(row["extra_info"] == {} and row["stats"]["rounds"] >= 3 for row in made.values())
    booted = {value for boots in stored(inner).values() for _, value in boots}
    assert not booted & {value for row in made.values() for value in row["stats"]["data"]}


def test_a_group_of_the_suite_is_kept_and_axes_can_be_grouped_by(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "tier": ["restart", "scale_out"]})
@pytest.mark.benchmark(group="mine", min_rounds=9)
def test_a(cold_boot): ...
""")
    result = inner.run(*PLUGIN, "--benchmark-cprofile=tottime", "--strict-markers", "-W", "error")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*- benchmark 'mine': 2 tests -*"])
    assert "cProfile" not in text_of(result)
    assert WARNING not in text_of(result)
    result = inner.run(*PLUGIN, "--benchmark-group-by=param:tier", "--benchmark-name=short")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*- benchmark 'tier=restart': 1 tests -*", "*- benchmark 'tier=scale_out': 1 tests -*"]
    )


def test_saved_runs_are_compared_and_a_slower_boot_is_a_regression(inner: Inner) -> None:
    suite = """
@pytest.mark.coldstart(**ENGINE, env={"FAKE_DELAY": "%s"})
def test_a(cold_boot): ...
"""
    compare = ("--benchmark-compare", "--benchmark-compare-fail=median:10%", "--benchmark-autosave")
    inner.suite(suite % "0.5")
    assert inner.run(*PLUGIN, "--benchmark-save=one").ret == 0
    inner.suite(suite % "0")
    faster = inner.run(*PLUGIN, *compare)
    assert faster.ret == 0
    faster.stdout.fnmatch_lines(["test_a[[]restart[]] (NOW) *", "test_a[[]restart[]] (0001_one) *"])
    inner.suite(suite % "0.5")
    slower = inner.run(*PLUGIN, *compare)
    assert slower.ret == 1
    assert "test_a[restart] (0002_" in text_of(slower)
    assert "Performance has regressed" in text_of(slower)
    slower.stdout.fnmatch_lines(["openai test_a *pass*"])
    assert inner.boots() == 3
    assert inner.alive() == []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("():\n    raise TypeError('it changed')", "TypeError: it changed"),
        (
            "(benchmark):\n    benchmark.pedantic = None\n    return benchmark",
            "TypeError: 'NoneType' object is not callable",
        ),
        ("(benchmark):\n    benchmark.pedantic = lambda *a, **k: None\n    return benchmark", "AttributeError: *"),
        ("():\n    pytest.skip('not today')", "Skipped: not today"),
    ],
    ids=["no-fixture", "cannot-replay", "takes-nothing", "skips"],
)
def test_a_pytest_benchmark_that_fails_breaks_no_boot_and_no_verdict(inner: Inner, broken: str, words: str) -> None:
    inner.suite(TWO_ROUNDS)
    inner.conftest(f"import pytest\n\n@pytest.fixture\ndef benchmark{broken}\n")
    result = inner.run(*PLUGIN, "-W", "error")
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [f"coldstart: warning: pytest-benchmark has no row of test_suite.py::test_a[[]restart[]], *: {words}"]
    )
    assert inner.boots() == 2


def test_rounds_that_came_out_different_are_no_row(inner: Inner) -> None:
    inner.suite(TWO_ROUNDS)
    inner.conftest("""
import pytest

@pytest.fixture
def benchmark(benchmark):
    pedantic = benchmark.pedantic
    benchmark.pedantic = lambda target, setup, rounds: pedantic(target, setup=setup, rounds=rounds - 1)
    return benchmark
""")
    result = inner.run(*PLUGIN)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["coldstart: warning: *: ValueError: it took *"])
    result.stdout.no_fnmatch_line("*benchmark 'cold_start*")


def test_without_coldstart_nothing_of_it_is_there(inner: Inner) -> None:
    inner.suite("@fake\ndef test_a(cold_boot): ...\n" + PLAIN)
    inner.conftest("""
import sys

def pytest_unconfigure(config):
    assert "pytest_coldstart.benchmark" not in sys.modules
""")
    result = inner.idle(*PLUGIN, "--benchmark-json=it.json", "-W", "error")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    whole = json.loads((inner.path / "it.json").read_text())
    assert [row["name"] for row in whole["benchmarks"]] == ["test_plain"]
    assert "coldstart" not in whole
    assert "coldstart" not in whole["machine_info"]
    result = inner.idle(*PLUGIN, "--benchmark-only")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.no_fnmatch_line("*cold start*")
