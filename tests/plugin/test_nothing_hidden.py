"""A failed boot or a broken SLO shows whatever else the suite, the run or the engine does."""

from __future__ import annotations

import subprocess
import sys

from tests.plugin.conftest import Inner


def test_a_fixture_that_skips_after_the_boot_hides_no_broken_slo(inner: Inner) -> None:
    inner.suite("""
@pytest.fixture
def licence(cold_boot):
    pytest.skip("no licence")

@fake
@pytest.mark.slo("cold_start<=1us")
def test_a(licence): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(skipped=1, errors=1)
    result.stdout.fnmatch_lines(["*cold_start.max = * breaks <= 1 us*"])


def test_an_engine_that_dies_under_the_body_fails_its_cell(inner: Inner) -> None:
    inner.suite("""
import signal

@fake
def test_a(cold_boot):
    os.kill(cold_boot.rounds.live.tree.pid, signal.SIGKILL)
    time.sleep(1)
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the engine ended by itself with signal SIGKILL after it was up*"])


def test_a_supervisor_that_dies_is_an_error_in_words(inner: Inner) -> None:
    inner.suite("""
import signal

@fake
def test_a(cold_boot):
    os.kill(cold_boot.rounds.live.tree.supervisor_pid, signal.SIGKILL)
    time.sleep(1)
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*no verdict is possible: the supervisor*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_both_kinds_of_boot_in_one_test_are_refused_and_do_not_wait_for_each_other(inner: Inner) -> None:
    inner.suite("@fake\ndef test_a(shared_cold_boot, coldstart_client): ...\n")
    result = inner.run()
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*test_suite.py:*: test_a: *shared_cold_boot.client sends requests*"])
    assert inner.nothing_booted()


def test_both_kinds_requested_at_run_time_are_an_error_in_words(inner: Inner) -> None:
    inner.suite("@fake\ndef test_a(shared_cold_boot, request):\n    request.getfixturevalue('cold_boot')\n")
    result = inner.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*this process has another measured boot up*"])


def test_an_slo_marker_alone_is_a_mistake(inner: Inner) -> None:
    inner.suite("@pytest.mark.slo('cold_start<=1us')\ndef test_a(): ...\n")
    result = inner.run()
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*slo marker and no coldstart marker*"])


def test_an_instant_that_came_after_its_deadline_fails_even_where_nobody_looked(inner: Inner) -> None:
    """The server listens after some hundredth of a second, before the first look at the clock."""
    inner.suite("@fake\ndef test_a(cold_boot): ...\n")
    result = inner.run("--coldstart-phase-deadline=listen=1us")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["boot failed (deadline): *", "*'listen' was not reached within its deadline*"])


def test_two_bounds_on_one_statistic_both_show(inner: Inner) -> None:
    inner.suite("@fake\n@pytest.mark.slo('ready<=1us', 'ready<=500s')\ndef test_a(cold_boot): ...\n")
    result = inner.run("--junitxml=report.xml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["openai test_a *!* <= 1 us, * <= 500 s*"])
    text = (inner.path / "report.xml").read_text()
    assert text.count('name="coldstart.ready.max.verdict" value="fail"') == 1
    assert 'name="coldstart.ready.max.verdict" value="pass"' not in text


def test_the_reproduce_command_works_where_it_was_printed(inner: Inner) -> None:
    """pytest was called below its root directory: the command must hold for that folder."""
    inner.suite("@fake\n@pytest.mark.slo('ready<=1us')\ndef test_a(cold_boot): ...\n")
    folder = inner.path / "below"
    folder.mkdir()
    command = [sys.executable, "-m", "pytest", *inner.arguments(".."), "--rootdir", str(inner.path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    # Under CI the short summary repeats the whole text.
    line = next(line for line in done.stdout.splitlines() if line.startswith("reproduce: pytest "))
    again = line.removeprefix("reproduce: pytest ")
    done = subprocess.run(
        f"{sys.executable} -m pytest {again}", shell=True, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "breaks <= 1 us" in done.stdout


def test_what_the_command_line_hides_is_hidden_where_the_engine_prints_it(inner: Inner) -> None:
    inner.suite("""
EVIL = [*COMMAND[:1], "-c", "import sys; print('started with', sys.argv); sys.exit(3)", "{port}"]

@pytest.mark.coldstart(engine="openai", command=[*EVIL, "--api-key", "correcthorsebattery"], tier="restart", rounds=1)
def test_a(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*started with*"])
    result.stdout.no_fnmatch_line("*correcthorsebattery*")
    for path in inner.store.rglob("*"):
        if path.is_file():
            assert b"correcthorsebattery" not in path.read_bytes(), path


def test_terminal_commands_of_an_engine_are_escaped(inner: Inner) -> None:
    inner.suite("""
EVIL = [*COMMAND[:1], "-c", r"import sys; print('\\033[2Jgone'); sys.exit(3)", "{port}"]

@pytest.mark.coldstart(engine="openai", command=EVIL, tier="restart", rounds=1)
def test_a(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines([r"*\x1b[[]2Jgone*"])
    assert "\x1b[2J" not in result.stdout.str()


def test_a_shared_boot_lives_until_its_last_test_in_any_order(inner: Inner) -> None:
    inner.suite("""
@fake
def test_1(shared_cold_boot):
    shared_cold_boot.client.complete("Name a colour.", max_tokens=2)

@fake
def test_2(shared_cold_boot):
    shared_cold_boot.client.complete("Name a colour.", max_tokens=2)
""")
    inner.conftest("""
def pytest_collection_modifyitems(items):
    items.reverse()
""")
    result = inner.run()
    assert result.ret == 0
    result.assert_outcomes(passed=2)


def test_a_bound_on_the_stop_of_a_shared_boot_is_judged_whichever_test_has_it(inner: Inner) -> None:
    inner.suite("""
@fake
@pytest.mark.slo("stop_time<=1us")
def test_1(shared_cold_boot): ...

@fake
def test_2(shared_cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*stop_time.max = * breaks <= 1 us*"])


def test_a_shared_boot_whose_last_test_is_skipped_is_judged_all_the_same(inner: Inner) -> None:
    inner.suite("""
@fake
@pytest.mark.slo("leaked_processes>=1")
def test_1(shared_cold_boot): ...

@pytest.fixture
def licence(shared_cold_boot):
    pytest.skip("no licence")

@fake
def test_2(licence, shared_cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(passed=1, skipped=1, errors=1)
