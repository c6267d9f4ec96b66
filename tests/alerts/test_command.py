"""``coldstart alerts`` as it is called."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_coldstart import cli
from pytest_coldstart.alerts import webhook
from pytest_coldstart.alerts.file import RULES_FILE
from pytest_coldstart.store.home import Home
from tests.alerts.server import hook
from tests.dashboard.conftest import boot, failed, run

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]

RULES = """
version = 1

[[alert]]
name = "too slow"
metric = "cold_start"
bound = "<= 10s"
severity = "critical"
message = "call Ada"

[[alert]]
name = "boots fail"
failed = 1
"""


@pytest.fixture
def coldstart(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command on the store, in the folder beside it, with these rules there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(webhook.post, "__defaults__", (5.0, (0.0, 0.0)))
    (tmp_path / RULES_FILE).write_text(RULES)
    return lambda *words: cli.main(["alerts", "--store", str(home.root), *words])


def slow(home: Home, run_id: str = "r-1", value: float = 12.5, minute: int = 1) -> None:
    run(home, run_id, [boot(f"b-{run_id}", minute, value)], [])


def test_nothing_fires(home: Home, coldstart: Run, capsys: Capture) -> None:
    slow(home, value=2.0)
    assert coldstart() == 0
    out, err = capsys.readouterr()
    assert out.startswith(
        "0 of 2 rules fire\n\nOK (critical) too slow\n  cold_start.max <= 10.00 s; all series (1 series)\n"
    )
    assert err == ""


def test_what_fires_is_printed_with_value_bound_and_since_when(home: Home, coldstart: Run, capsys: Capture) -> None:
    slow(home)
    assert coldstart() == 1
    out, _ = capsys.readouterr()
    words = " ".join(out.split())
    assert words.startswith("1 of 2 rules fires, on 1 series FIRES (critical) too slow")
    assert "12.50 s (bound <= 10.00 s), since run r-1 (2026-11-02 08:01 UTC)" in words
    assert "call Ada" in out
    assert not (home.root / "alerts.json").exists()


def test_who_reads_no_further_loses_neither_the_exit_code_nor_the_webhook(home: Home, coldstart: Run) -> None:
    slow(home)
    with hook(200) as to:
        words = ["alerts", "--store", str(home.root), "--webhook", to.url]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest_coldstart.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait() == 1, said
        process.stderr.close()
        assert len(to.bodies) == 1


def test_json(home: Home, coldstart: Run, capsys: Capture) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0), failed("b-2", 2)], [])
    assert coldstart("--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["firing"], found["store"]) == (1, 2, str(home.database))
    rule = found["rules"][0]
    assert (rule["name"], rule["severity"], rule["state"]) == ("too slow", "critical", "fires")
    (series,) = rule["series"]
    assert (series["engine"], series["value"], series["number"], series["since"]) == ("llamacpp", "failed", None, "r-1")
    assert series["since_at"] == "2026-11-02T08:01:00+00:00"


def test_a_rule_that_matches_nothing_is_said_and_counts_where_that_is_asked(
    home: Home, coldstart: Run, capsys: Capture, tmp_path: Path
) -> None:
    slow(home, value=2.0)
    (tmp_path / RULES_FILE).write_text('version = 1\n[[alert]]\nname = "a"\nfailed = 1\nengine = "vlm"')
    assert coldstart() == 0
    out, _ = capsys.readouterr()
    assert out.startswith("0 of 1 rules fire; 1 matches nothing\n\nMATCHES NOTHING (warning) a\n")
    assert "no series is engine vlm" in out
    assert coldstart("--strict") == 1
    assert "no series is matched by 'a'" in capsys.readouterr().err


def test_mistakes_stop_all_with_4(home: Home, coldstart: Run, capsys: Capture, tmp_path: Path) -> None:
    slow(home)
    (tmp_path / RULES_FILE).write_text(RULES + '[[alert]]\nname = "x"\nmetric = "cold"\nbound = "<= 1s"\n')
    assert coldstart() == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"coldstart: {tmp_path / RULES_FILE}:16: alert 'x': unknown metric 'cold'")
    (tmp_path / RULES_FILE).unlink()
    assert coldstart() == 4
    assert "there is no coldstart-alerts.toml here; put one beside pyproject.toml, such as" in capsys.readouterr().err
    assert coldstart("--rules", "gone.toml") == 4
    assert "gone.toml: No such file" in capsys.readouterr().err


def test_wrong_usage_is_4(home: Home, coldstart: Run, capsys: Capture) -> None:
    assert coldstart() == 4
    assert "there is no store at" in capsys.readouterr().err
    slow(home)
    for words, said in (
        (("--dry-run",), "give that too"),
        (("--state", "x"), "give that too"),
        (("--webhook", "env:NO_SUCH_HOOK"), "the variable NO_SUCH_HOOK of --webhook"),
        (("--webhook", ""), "--webhook is no http:// or https:// address"),
        (("--nonsense",), "unrecognized arguments"),
    ):
        assert coldstart(*words) == 4
        assert said in capsys.readouterr().err


def test_a_webhook_is_told_once_when_it_begins_and_once_when_it_ends(
    home: Home, coldstart: Run, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(home)
    with hook(200) as server:
        monkeypatch.setenv("HOOK", server.url)
        assert coldstart("--webhook", "env:HOOK") == 1
        assert coldstart("--webhook", "env:HOOK") == 1
        assert len(server.got) == 1
        slow(home, "r-2", 13.0, 10)  # still
        assert coldstart("--webhook", "env:HOOK") == 1
        slow(home, "r-3", 2.0, 20)
        assert coldstart("--webhook", "env:HOOK") == 0
        assert coldstart("--webhook", "env:HOOK") == 0
        first, second = server.bodies
    assert first["text"].startswith(
        "cold start alerts: 1 firing\n- [critical] too slow: llamacpp | llamacpp-tiny-restart"
    )
    assert first["text"].endswith(": 12.50 s (bound \u2264 10.00 s), since run r-1: call Ada")
    (alert,) = first["firing"]
    assert (alert["rule"], alert["value"], alert["since"], first["resolved"]) == ("too slow", "12.50 s", "r-1", [])
    assert second["text"].startswith("cold start alerts: 1 resolved\n- resolved: too slow: llamacpp")
    assert (second["firing"], [one["rule"] for one in second["resolved"]]) == ([], ["too slow"])
    out, err = capsys.readouterr()
    assert "told http://127.0.0.1:" in err
    assert "s3cr3t" not in out + err + (home.root / "alerts.json").read_text()


def test_what_could_not_be_delivered_is_5_and_tried_again(home: Home, coldstart: Run, capsys: Capture) -> None:
    slow(home)
    with hook(500, 500, 500, 200) as server:
        assert coldstart("--webhook", server.url) == 5
        out, err = capsys.readouterr()
        assert "FIRES (critical) too slow" in out
        assert "answered 500 Internal Server Error, after 3 attempts; the next call tries again" in err
        assert not (home.root / "alerts.json").exists()
        assert coldstart("--webhook", server.url) == 1
    assert len(server.got) == 4
    assert "s3cr3t" not in err


def test_a_rehearsal_prints_the_body_and_tells_nobody(
    home: Home, coldstart: Run, capsys: Capture, tmp_path: Path
) -> None:
    slow(home)
    with hook(200) as server:
        assert coldstart("--webhook", server.url, "--dry-run") == 1
        _, err = capsys.readouterr()
        assert json.loads(err.partition(":\n")[2])["firing"][0]["rule"] == "too slow"
        assert server.got == []
        state = tmp_path / "mine.json"
        assert coldstart("--webhook", server.url, "--state", str(state)) == 1
        assert json.loads(state.read_text())["told"][0]["rule"] == "too slow"
        assert coldstart("--webhook", server.url, "--state", str(state), "--dry-run") == 1
        assert "nothing would be posted to http://127.0.0.1" in capsys.readouterr().err
    assert not (home.root / "alerts.json").exists()


def test_a_broken_state_is_4_and_nothing_is_told(home: Home, coldstart: Run, capsys: Capture) -> None:
    slow(home)
    (home.root / "alerts.json").write_text("oops")
    with hook(200) as server:
        assert coldstart("--webhook", server.url) == 4
    assert server.got == []
    assert "is broken; remove it" in capsys.readouterr().err


def test_two_jobs_at_once_tell_once(home: Home, coldstart: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(home)
    with hook(200) as server:
        command = [
            sys.executable,
            "-m",
            "pytest_coldstart.cli",
            "alerts",
            "--store",
            str(home.root),
            "--webhook",
            server.url,
        ]
        jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        for job in jobs:
            _, err = job.communicate(timeout=120)
            assert job.returncode == 1, err
    assert len(server.got) == 1


def test_names_from_the_store_call_nobody(home: Home, coldstart: Run, capsys: Capture) -> None:
    hostile = "<!channel> @all &\x1b[31m\nx"
    run(home, "r-1", [boot("b-1", 1, 12.5, cell_id=hostile)], [])
    with hook(200) as server:
        assert coldstart("--webhook", server.url) == 1
    (body,) = server.bodies
    assert "<!channel>" not in body["text"]
    assert "@all" not in body["text"]
    assert "&lt;!channel&gt; @\u200ball &amp;" in body["text"]
    assert len(body["text"].splitlines()) == 2
    out, _ = capsys.readouterr()
    assert "\x1b" not in out
