"""What makes a test with a cold start pass, fail or skip, what its text says and how the run exits."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from tests.plugin.conftest import Inner, text_of


def test_boots_within_their_bounds_pass_and_the_table_says_so(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 3})
def test_a(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=5)
    assert answer.completion_tokens == 5
    assert cold_boot.metrics["cold_start"].value > 0
    assert len(cold_boot.records) == 3
    assert cold_boot.url.startswith("http://127.0.0.1:")
    assert "fake engine: loading" in cold_boot.log_tail()
    cold_boot.assert_slos()
""")
    result = inner.run("-v")
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "coldstart: store *coldstart.duckdb; GPUs: *; tiers: pristine, scale_out, redeploy, restart, wake",
            "coldstart: engines: *openai*",
            "*::test_a[[]restart] PASSED*",
            "*= cold start =*",
            "cell *tier *n *cold_start.max *warm_first_token.max *verdict *slowest part",
            "openai test_a *restart *3 *<= 600 s *<= 600 s *pass *",
            "each cell that passed did so in at least 3 of 3 rounds: *at least 37 %",
            "coldstart: 3 boots, *added to *coldstart.duckdb (run *)",
            "coldstart: 1 cell judged, 0 not, in *",
        ],
        consecutive=False,
    )
    assert inner.boots() == 3
    assert inner.query("SELECT outcome, count(*) FROM boot GROUP BY ALL") == [("ok", 3)]
    assert inner.query("SELECT metric, verdict FROM verdict ORDER BY metric") == [
        ("cold_start", "pass"),
        ("fragmentation", "n/a"),
        ("warm_first_token", "pass"),
    ]
    assert inner.query("SELECT exit_status FROM run") == [(0,)]
    assert inner.alive() == []


def test_a_broken_slo_fails_the_test_in_its_call_phase_though_its_body_passes(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 2})
@pytest.mark.slo("cold_start.p50<=1us", "peak_rss<=1KB")
def test_slow(cold_boot):
    pathlib.Path("body-ran").touch()
""")
    result = inner.run("--coldstart-phase-deadline=listen=10min")
    assert result.ret == 1
    result.assert_outcomes(failed=1)  # and no error: it is the test that fails, not its set-up
    assert (inner.path / "body-ran").exists()
    result.stdout.fnmatch_lines(
        [
            "SLO broken: openai restart, tier restart, 2 rounds",
            "*cold_start.p50 = * breaks <= 1 us (bound from marker; source client; rounds: *, *)",
            "*peak_rss.max = * breaks <= 1 KB (bound from marker; source proc; rounds: *, *)",
            "slowest boot, round [12]:",
            "*start to listen: *",
            "evidence:",
            "*unprovable: weights resident: no weight files are known*",
            "reproduce: pytest --coldstart 'test_suite.py::test_slow[[]restart]' *--coldstart-phase-deadline=listen=10min",
        ]
    )
    assert "Traceback" not in text_of(result)
    assert sorted(inner.query("SELECT metric, verdict, bound FROM verdict WHERE verdict = 'fail'")) == [
        ("cold_start", "fail", pytest.approx(1e-6)),
        ("peak_rss", "fail", 1000.0),
    ]


def test_the_command_line_beats_the_closest_marker_that_beats_the_ini_that_beats_the_default(inner: Inner) -> None:
    inner.ini("coldstart_slo =\n    cold_start<=11min\n    first_token<=12min\n")
    inner.suite("""
pytestmark = pytest.mark.slo("cold_start<=21min", "warm_first_token<=25min")

@fake
def test_module(cold_boot): ...

@fake
@pytest.mark.slo("cold_start<=31min")
def test_function(cold_boot): ...

@fake
@pytest.mark.slo("cold_start<=33min", "cold_start@restart<=34min", "cold_start@pristine<=35min")
def test_tier(cold_boot): ...
""")
    assert inner.run().ret == 0
    rows = inner.query(
        "SELECT split_part(split_part(nodeid, '::', 2), '[', 1), metric, bound / 60, bound_source FROM verdict"
    )
    expected = {
        *(("test_module", "cold_start", 21, "marker"), ("test_function", "cold_start", 31, "marker")),
        ("test_tier", "cold_start", 34, "marker"),
    }
    for name in ("test_module", "test_function", "test_tier"):
        expected |= {(name, "first_token", 12, "ini"), (name, "warm_first_token", 25, "marker")}
        expected.add((name, "fragmentation", 0.05 / 60, "default"))
    assert set(rows) == expected
    assert inner.run("--coldstart-slo=cold_start<=41min", "-k", "test_tier").ret == 0
    newest = "run_id = (SELECT max(run_id) FROM run)"
    assert inner.query(f"SELECT bound / 60, bound_source FROM verdict WHERE metric = 'cold_start' AND {newest}") == [
        (41, "command line")
    ]


def test_fragmentation_is_not_applicable_by_default_and_fails_as_unmeasured_when_named(inner: Inner) -> None:
    inner.suite("""
@fake
def test_by_default(cold_boot): ...

@fake
@pytest.mark.slo("fragmentation<=5%")
def test_named(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*fragmentation.max is unmeasured, which breaks <= 5 % (bound from marker): *can be read*",
            "openai test_by_default *n/a *pass*",
            "openai test_named *unmeasured (<= 5 %)*unmeasured*",
        ]
    )


def test_a_failed_boot_fails_the_test_as_infinitely_slow_and_its_body_does_not_run(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 3}, env={"FAKE_MODE": "exit"})
def test_dead(cold_boot):
    pathlib.Path("body-ran").touch()
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    assert not (inner.path / "body-ran").exists()
    result.stdout.fnmatch_lines(
        [
            "boot failed (exit): openai restart, tier restart, round 1",
            "*the engine ended with exit code 3 after *",
            "*last instant reached: start",
            "*command: *server.py --port *",
            "end of the engine's log:",
            "*fake engine: out of memory",
            f"whole log: {inner.store}/logs/*.log",
            "reproduce: pytest --coldstart *",
            "openai test_dead *restart *0/1 *failed (<= 600 s) *failed *",
        ]
    )
    assert inner.query("SELECT outcome, failure_kind FROM boot") == [("failed", "exit")]
    assert inner.query("SELECT verdict, value FROM verdict WHERE metric = 'cold_start'") == [("fail", None)]
    assert len(list((inner.store / "logs").glob("*.log"))) == 1


def test_one_failed_boot_among_the_rounds_breaks_every_bound_on_the_maximum(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 3}, env={"FAKE_LATER": str(pathlib.Path("later").absolute())})
def test_flaky(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["boot failed (exit): openai restart, tier restart, round 2", "openai test_flaky *1/2 *"]
    )
    assert inner.query("SELECT round, outcome FROM boot ORDER BY round") == [(1, "ok"), (2, "failed")]
    assert inner.query("SELECT verdict, rounds FROM verdict WHERE metric = 'cold_start'") == [("fail", 2)]


def test_an_engine_that_answers_errors_is_a_failed_boot(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**ENGINE, env={"FAKE_MODE": "broken"})
def test_broken(cold_boot): ...
""")
    result = inner.run("--coldstart-keep-logs=none")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["boot failed (request): *", "*HTTP 500 from /v1/completions: *no such luck*"])
    assert "whole log" not in text_of(result)
    assert list((inner.store / "logs").glob("*.log")) == []
    assert inner.alive() == []


def test_a_value_of_an_axis_can_be_expected_to_fail(inner: Inner) -> None:
    inner.suite("""
known = pytest.param("exit", id="dead", marks=pytest.mark.xfail(reason="known", strict=True))
slow = pytest.mark.xfail(reason="too slow", strict=True)

@pytest.mark.coldstart(**ENGINE, matrix={"env.FAKE_MODE": ["ok", known]})
def test_a(cold_boot): ...

@fake
@slow
@pytest.mark.slo("cold_start<=1us")
def test_slo(cold_boot): ...
""")
    result = inner.run("-v")
    assert result.ret == 0
    result.assert_outcomes(passed=1, xfailed=2)
    result.stdout.fnmatch_lines(["*::test_a[[]env.FAKE_MODE:ok-restart] PASSED*"])
    result.stdout.fnmatch_lines(["*::test_a[[]*dead-restart] XFAIL*", "*::test_slo[[]restart] XFAIL*"])


def test_a_strict_xfail_that_passes_fails(inner: Inner) -> None:
    inner.suite("""
@fake
@pytest.mark.xfail(reason="known", strict=True)
def test_good(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*known*"])


def test_a_body_that_fails_still_stops_its_engine_and_keeps_the_verdicts(inner: Inner) -> None:
    inner.suite("""
@fake
@pytest.mark.slo("cold_start<=1us")
def test_wrong_answer(cold_boot):
    assert "colour" == "blue", "the body's own failure"
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the body's own failure*", "*coldstart call*", "*cold_start.max = * breaks <= 1 us*"])
    assert inner.boots() == 1
    assert ("cold_start", "fail") in inner.query("SELECT metric, verdict FROM verdict")
    assert inner.query("SELECT count(*) FROM instant WHERE name = 'stopped'") == [(1,)]
    assert inner.alive() == []


def test_assert_slos_raises_an_assertion_error_with_the_numbers(inner: Inner) -> None:
    inner.suite("""
@fake
@pytest.mark.slo("cold_start<=1us", "leaked_processes<=0")
def test_a(cold_boot):
    with pytest.raises(AssertionError, match=r"cold_start.max = .* breaks <= 1 us .bound from marker") as caught:
        cold_boot.assert_slos()
    assert "leaked_processes" not in str(caught.value)  # not known before the stop
    pathlib.Path("raised").touch()
""")
    assert inner.run().ret == 1
    assert (inner.path / "raised").exists()


# -- nothing to judge


def test_a_run_that_judged_nothing_exits_5_unless_that_is_allowed(inner: Inner) -> None:
    inner.suite("def test_plain(): ...\n")
    result = inner.run()
    assert result.ret == 5
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["coldstart: no cell was judged"])
    assert inner.run("--coldstart-allow-empty").ret == 0
    inner.suite("@fake\ndef test_a(cold_boot): ...\n")
    assert inner.run("--coldstart-engine=llamacpp").ret == 5
    assert inner.run("--coldstart-engine=llamacpp", "--coldstart-allow-empty").ret == 0


def test_a_failed_test_is_exit_1_even_where_nothing_was_judged(inner: Inner) -> None:
    inner.suite("def test_plain():\n    assert 0\n")
    assert inner.run("--coldstart-allow-empty").ret == 1


def test_a_cell_over_the_budget_is_skipped_listed_and_no_pass(inner: Inner) -> None:
    inner.suite("@fake\ndef test_a(cold_boot): ...\n")
    result = inner.run("--coldstart-budget=1us")
    assert result.ret == 5
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["not judged: openai test_a restart: time budget of 1e-06 s: *; raise --coldstart-budget to run it"]
    )
    assert inner.nothing_booted()


def test_a_missing_engine_skips_with_what_enables_it_and_fails_where_it_is_required(inner: Inner) -> None:
    bare = inner.path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    inner.suite(f"@pytest.mark.coldstart(engine='llamacpp', python='{bare}/bin/python')\ndef test_a(cold_boot): ...\n")
    result = inner.run("-rs")
    assert result.ret == 5
    result.assert_outcomes(skipped=1)
    reason = f"'xllamacpp' is not installed in {bare}/bin/python; to enable: pip install *"
    result.stdout.fnmatch_lines([f"not judged: llamacpp *: engine 'llamacpp': *{reason}", f"SKIPPED *{reason}"])
    result = inner.run("--coldstart-require=llamacpp")
    assert result.ret == 1
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{reason} (it is required by --coldstart-require)"])
    assert inner.nothing_booted()


# -- what is run


def test_filters_leave_out_cells_of_other_tiers_and_engines(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "tier": ["restart", "scale_out", "pristine"]})
def test_fake(cold_boot): ...

@pytest.mark.coldstart(engine="llamacpp", tier="restart")
def test_real(cold_boot): ...
""")
    result = inner.run("--coldstart-tier=scale_out,pristine", "--coldstart-engine=openai", "-v")
    assert result.ret == 0
    result.assert_outcomes(passed=2, deselected=2)
    result.stdout.fnmatch_lines(["*::test_fake[[]scale_out] PASSED*", "*::test_fake[[]pristine] PASSED*"])


def test_collect_only_shows_the_cells_and_what_they_will_take(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 2, "tier": ["restart", "pristine"]}, matrix={"api": ["completions"]})
def test_a(cold_boot): ...
""")
    result = inner.run("--collect-only", "-q")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["test_suite.py::test_a[[]restart]", "test_suite.py::test_a[[]pristine]"])
    result.stdout.fnmatch_lines(["coldstart: 2 cells, 4 boots, no history to estimate the time from"])
    assert inner.nothing_booted()
    assert inner.run("--coldstart-tier=restart").ret == 0
    result = inner.run("--collect-only", "-q", "--coldstart-rounds=5")
    result.stdout.fnmatch_lines(["coldstart: 2 cells, 10 boots, about * s by the history of 1 of them"])


def test_rounds_on_the_command_line_override_the_marker(inner: Inner) -> None:
    inner.suite("@fake\ndef test_a(cold_boot): ...\n")
    assert inner.run("--coldstart-rounds=2").ret == 0
    assert inner.query("SELECT round FROM boot ORDER BY 1") == [(1,), (2,)]


def test_rounds_of_the_ini_are_for_markers_that_name_none(inner: Inner) -> None:
    inner.ini("coldstart_rounds = 2\ncoldstart_slo = cold_start<=10min\n    warm_first_token<=10min\n")
    inner.suite("""
without = {name: value for name, value in ENGINE.items() if name != "rounds"}

@pytest.mark.coldstart(**without)
def test_two(cold_boot): ...

@fake
def test_one(cold_boot): ...
""")
    assert inner.run().ret == 0
    sql = "SELECT split_part(split_part(nodeid, '::', 2), '[', 1) AS name, count(*) FROM boot GROUP BY 1 ORDER BY 1"
    assert inner.query(sql) == [("test_one", 1), ("test_two", 2)]


def test_markers_merge_with_the_closest_winning(inner: Inner) -> None:
    inner.suite("""
pytestmark = fake

@pytest.mark.coldstart(tier="scale_out", rounds=2)
class TestOnes:
    @pytest.mark.coldstart(rounds=1)
    def test_a(self, cold_boot):
        assert cold_boot.cell.tier == "scale_out"
        assert cold_boot.plan.rounds == 1
""")
    result = inner.run("-v")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*::TestOnes::test_a[[]scale_out] PASSED*"])


def test_other_parameters_of_a_test_make_other_items_with_boots_of_their_own(inner: Inner) -> None:
    inner.suite("""
@fake
@pytest.mark.parametrize("words", [1, 2])
def test_a(cold_boot, words): ...
""")
    assert inner.run().ret == 0
    assert inner.boots() == 2


def test_a_fixture_of_the_ladder_can_be_overridden(inner: Inner) -> None:
    inner.suite("""
@pytest.fixture
def coldstart_plan(coldstart_plan):
    return dataclasses.replace(coldstart_plan, requests=4, keep_logs="all")

@fake
def test_a(coldstart_client, cold_boot):
    assert coldstart_client is cold_boot.client
    assert len([r for r in cold_boot.record.requests if r.kind == "warm"]) == 4
""")
    assert inner.run().ret == 0
    assert len(list((inner.store / "logs").glob("*.log"))) == 1


# -- what CI reads


def test_junit_xml_holds_the_cell_its_numbers_and_verdicts(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 2})
@pytest.mark.slo("leaked_processes<=0")
def test_a(cold_boot): ...
""")
    assert inner.run("--junit-xml=junit.xml").ret == 0
    case = ElementTree.parse(inner.path / "junit.xml").getroot().find(".//testcase")
    assert case is not None
    found = {item.get("name"): item.get("value") for item in case.iter("property")}
    assert {name: found.get(f"coldstart.{name}") for name in ("engine", "cell", "tier", "rounds")} == {
        "engine": "openai",
        "cell": "restart",
        "tier": "restart",
        "rounds": "2",
    }
    assert found["coldstart.leaked_processes.max"] == "0.0"
    assert found["coldstart.leaked_processes.max.verdict"] == "pass"
    assert found["coldstart.fragmentation.max.verdict"] == "n/a"
    assert "coldstart.fragmentation.max" not in found
    stored = inner.query(
        "SELECT max(value) FROM metric WHERE name = 'cold_start' AND boot_id IN (SELECT boot_id FROM boot)"
    )
    assert float(found["coldstart.cold_start.max"]) == pytest.approx(stored[0][0])


def test_a_long_boot_tells_on_the_terminal_what_it_waits_for(inner: Inner) -> None:
    """In spite of capture; the first line comes after five seconds, here after one."""
    inner.conftest("from pytest_coldstart.report import terminal\n\nterminal.PROGRESS_EVERY = 1.0\n")
    inner.suite("""
@pytest.mark.coldstart(**ENGINE, env={"FAKE_DELAY": "2"})
def test_a(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["coldstart: openai restart: [0-9]* s, waiting for *: fake engine: loading"])


def test_secrets_of_the_environment_are_in_no_file_of_the_store(inner: Inner, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "Zq9" * 8)
    monkeypatch.setenv("MY_PASSWORD", "correct-horse-battery")
    inner.suite("""
@pytest.mark.coldstart(**ENGINE, env={"FAKE_MODE": "exit", "OTHER_TOKEN": "tok-in-the-suite-123"})
def test_a(cold_boot): ...
""")
    inner.run("--coldstart-keep-logs=all")
    written = b"".join(path.read_bytes() for path in [*inner.run_files, inner.store / "coldstart.duckdb"])
    for secret in (b"Zq9Zq9Zq9", b"correct-horse", b"tok-in-the-suite"):
        assert secret not in written


def test_a_bound_may_belong_to_one_value_of_an_axis(inner: Inner) -> None:
    inner.suite("""
strict = pytest.param("b", marks=pytest.mark.slo("cold_start<=1us"))

@pytest.mark.coldstart(**ENGINE, matrix={"env.KIND": ["a", strict]})
def test_a(cold_boot): ...
""")
    result = inner.run("-v")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*::test_a[[]env.KIND:a-restart] PASSED*", "*::test_a[[]env.KIND:b-restart] FAILED*"])


def test_a_wrong_bound_of_an_axis_value_is_found_before_anything_boots(inner: Inner) -> None:
    inner.suite("""
wrong = pytest.param("b", marks=pytest.mark.slo("cold_start<=1"))

@pytest.mark.coldstart(**ENGINE, matrix={"env.KIND": ["a", wrong]})
def test_a(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*SLO 'cold_start<=1': '1' has no unit*"])
    assert inner.nothing_booted()
