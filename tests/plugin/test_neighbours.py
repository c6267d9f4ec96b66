"""Other plugins and other ways to run: each boot is counted once, and nothing outlives a run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tests.plugin.conftest import Inner, text_of

pytestmark = pytest.mark.usefixtures("covered_children")

THREE = """
@pytest.mark.coldstart(**{**ENGINE, "tier": ["restart", "scale_out", "pristine"]})
def test_a(cold_boot): ...
"""


def judged(result: pytest.RunResult) -> list[str]:
    """The rows of the verdict table."""
    return [line for line in result.outlines if line.startswith("openai ")]


def test_under_xdist_all_boots_are_one_run_reported_by_the_controller(inner: Inner) -> None:
    pytest.importorskip("xdist")
    inner.suite(THREE)
    result = inner.run("-p", "xdist", "-n", "2")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    assert len(judged(result)) == 3
    assert len([line for line in result.outlines if line.startswith("coldstart: store ")]) == 1
    result.stdout.fnmatch_lines(
        ["coldstart: 3 boots, priming ones included, added to *", "coldstart: 3 cells judged, 0 not, *"]
    )
    assert inner.query("SELECT count(*) FROM run") == [(1,)]
    assert inner.query("SELECT count(*), count(DISTINCT boot_id), count(DISTINCT run_id) FROM boot") == [(3, 3, 1)]
    assert inner.query("SELECT count(DISTINCT nodeid) FROM verdict") == [(3,)]
    assert inner.alive() == []


def test_under_xdist_a_broken_slo_keeps_its_text_and_its_row(inner: Inner) -> None:
    pytest.importorskip("xdist")
    inner.suite('@fake\n@pytest.mark.slo("cold_start<=1us")\ndef test_a(cold_boot): ...\n')
    result = inner.run("-p", "xdist", "-n", "1")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*cold_start.max = * breaks <= 1 us (bound from marker; *", "openai test_a *fail *"])


def test_under_xdist_a_mistake_in_a_suite_boots_nothing(inner: Inner) -> None:
    pytest.importorskip("xdist")
    inner.suite("@pytest.mark.coldstart(**ENGINE, round=1)\ndef test_a(cold_boot): ...\n")
    result = inner.run("-p", "xdist", "-n", "1")
    assert result.ret == 1  # xdist's own exit status for a collection error
    result.stdout.fnmatch_lines(["*coldstart has no argument 'round'*"])
    assert inner.run_files == []


def test_a_rerun_adds_rounds_and_hides_none(inner: Inner) -> None:
    pytest.importorskip("pytest_rerunfailures")
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 2})
@pytest.mark.slo("cold_start<=1us")
def test_a(cold_boot): ...
""")
    result = inner.run("-p", "rerunfailures", "--reruns", "1", "--junit-xml=junit.xml")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*SLO broken: openai restart, tier restart, 4 rounds", "openai test_a *restart *4 *fail*"]
    )
    assert len(judged(result)) == 1
    assert inner.query("SELECT round FROM boot ORDER BY 1") == [(1,), (2,), (3,), (4,)]
    assert inner.query("SELECT rounds FROM verdict WHERE metric = 'cold_start'") == [(4,)]
    # pytest writes the properties of every attempt, the last one's last
    cases = ElementTree.parse(inner.path / "junit.xml").getroot().iter("property")
    assert [item.get("value") for item in cases if item.get("name") == "coldstart.rounds"][-1] == "4"


def test_a_rerun_cannot_make_a_failed_boot_unseen(inner: Inner) -> None:
    """The engine boots once and then never again: the rerun's boots join the one that failed."""
    pytest.importorskip("pytest_rerunfailures")
    inner.suite("""
@pytest.mark.coldstart(**ENGINE, env={"FAKE_MODE": "exit"})
def test_dead(cold_boot): ...
""")
    result = inner.run("-p", "rerunfailures", "--reruns", "1")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["openai test_dead *restart *0/2 *failed*"])
    assert inner.boots() == 2


def test_a_timeout_of_pytest_timeout_ends_the_boot_it_hits(inner: Inner) -> None:
    pytest.importorskip("pytest_timeout")
    inner.suite("""
@pytest.mark.coldstart(**ENGINE, env={"FAKE_DELAY": "300"})
@pytest.mark.timeout(3)
def test_slow(cold_boot): ...

@fake
@pytest.mark.timeout(300)
def test_quick(cold_boot): ...
""")
    result = inner.run("-p", "timeout")
    assert result.ret == 1
    assert result.parseoutcomes().get("passed") == 1
    result.stdout.fnmatch_lines(["*Timeout*3*"])
    assert "INTERNALERROR" not in text_of(result)
    assert inner.alive() == []


def test_random_order_changes_nothing(inner: Inner) -> None:
    pytest.importorskip("pytest_randomly")
    inner.suite(THREE)
    result = inner.run("-p", "randomly")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Using --randomly-seed=*"])
    assert inner.boots() == 3
    assert inner.query("SELECT count(DISTINCT prompt_digest) FROM request WHERE kind = 'first'") == [(1,)]


def test_options_of_pytest_benchmark_do_no_harm(inner: Inner) -> None:
    pytest.importorskip("pytest_benchmark")
    inner.suite("""
@fake
def test_boot(cold_boot): ...

def test_speed(benchmark):
    benchmark(sum, [1, 2])
""")
    result = inner.run("-p", "benchmark", "--benchmark-disable")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result = inner.run("-p", "benchmark", "--benchmark-only", "--benchmark-min-rounds=1", "--benchmark-max-time=0.01")
    assert result.ret == 0  # a cell has a row of its own there, so it runs
    result.assert_outcomes(passed=2)
    assert inner.boots() == 2


def test_a_body_that_drops_into_pdb_leaves_nothing_running(inner: Inner) -> None:
    """pdb reads the end of its closed input and quits."""
    inner.suite("""
@fake
def test_a(cold_boot):
    assert cold_boot.client.complete("hello", max_tokens=2).completion_tokens == 7
""")
    result = inner.run("--pdb")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*entering PDB*"])
    assert inner.alive() == []
    assert inner.boots() == 1


def test_a_run_that_stops_at_its_first_failure_leaves_nothing_running(inner: Inner) -> None:
    inner.suite("""
@fake
def test_bad(cold_boot):
    assert 0

@fake
def test_never(cold_boot): ...
""")
    result = inner.run("-x")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    assert inner.boots() == 1
    assert inner.alive() == []


def test_tests_of_a_module_can_share_one_boot_and_are_judged_apart(inner: Inner) -> None:
    inner.suite("""
shared = pytest.mark.coldstart(**{**ENGINE, "rounds": 2})
PORTS = []

@shared
def test_one(shared_cold_boot):
    PORTS.append(shared_cold_boot.url)
    assert shared_cold_boot.client.complete("hello", max_tokens=2).completion_tokens == 2

@shared
@pytest.mark.slo("cold_start<=1us")
def test_two(shared_cold_boot):
    PORTS.append(shared_cold_boot.url)

@shared
def test_three(shared_cold_boot):
    PORTS.append(shared_cold_boot.url)
    assert len(PORTS) == 3 and len(set(PORTS)) == 1

@fake
def test_alone(cold_boot): ...
""")
    result = inner.run("-v")
    assert result.ret == 1
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*::test_two[[]restart] FAILED*"])
    assert inner.boots() == 3  # two rounds that three tests share, and one of its own
    assert len(judged(result)) == 4
    rows = inner.query(
        "SELECT split_part(split_part(nodeid, '::', 2), '[', 1), verdict FROM verdict WHERE metric = 'cold_start'"
    )
    assert sorted(rows) == [("test_alone", "pass"), ("test_one", "pass"), ("test_three", "pass"), ("test_two", "fail")]
    assert inner.alive() == []


def test_a_shared_boot_that_failed_fails_every_test_on_it(inner: Inner) -> None:
    inner.suite("""
shared = pytest.mark.coldstart(**ENGINE, env={"FAKE_MODE": "exit"})

@shared
def test_one(shared_cold_boot):
    pathlib.Path("ran").touch()

@shared
def test_two(shared_cold_boot):
    pathlib.Path("ran").touch()
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    assert not (inner.path / "ran").exists()
    assert inner.boots() == 1


def test_hooks_of_a_conftest_add_engines_metrics_and_warmups_and_hear_of_boots(inner: Inner) -> None:
    inner.conftest("""
import dataclasses, pathlib
from pytest_coldstart.engines.openai import OpenAI
from pytest_coldstart.metrics import Metric
from pytest_coldstart.record import Value
from pytest_coldstart.warmup import Warmup

class Mine(OpenAI):
    name = "mine"

@dataclasses.dataclass(frozen=True)
class Once(Warmup):
    words: int = 3
    name = "once"

    def run(self, send):
        send("x " * self.words, 3)

def pytest_coldstart_engines(config):
    return [Mine]

def pytest_coldstart_metrics(config):
    return [Metric("printed", "B", "Bytes the engine printed.", lambda r: Value(float(r.log_bytes), "log"),
                   after_stop=True)]

def pytest_coldstart_warmups(config):
    return [Once]

def pytest_coldstart_boot_finished(record):
    stored = [path for path in pathlib.Path("store/runs").glob("*.jsonl") if record.boot_id in path.read_text()]
    with open("heard", "a") as file:
        file.write(f"{record.engine} {record.role} {record.outcome} {len(stored)}\\n")
""")
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "engine": "mine"}, warmup={"strategy": "once", "words": 9})
@pytest.mark.slo("printed>=10B")
def test_a(cold_boot):
    assert [r.prompt_tokens for r in cold_boot.record.requests if r.kind == "warmup"] == [9]
""")
    result = inner.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["coldstart: engines: *mine*", "*printed.min*", "mine test_a *>= 10 B*pass*"])
    assert (inner.path / "heard").read_text() == "mine measured ok 1\n"
    # "fake engine: loading" and its newline
    assert inner.query("SELECT value, unit, source FROM metric WHERE name = 'printed'") == [(21.0, "B", "log")]
    assert inner.query("SELECT verdict FROM verdict WHERE metric = 'printed'") == [("pass",)]


def test_an_engine_of_a_hook_that_is_broken_is_a_usage_error(inner: Inner) -> None:
    inner.conftest("""
from pytest_coldstart.metrics import Metric
from pytest_coldstart.record import Value

def pytest_coldstart_metrics(config):
    return [Metric("cold_start", "s", "Another.", lambda record: Value(1.0, "client"))]
""")
    result = inner.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *metric 'cold_start' is declared twice*"])
