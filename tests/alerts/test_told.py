from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_coldstart.alerts import told
from pytest_coldstart.alerts.finding import FIRES, OK, Evaluated, Finding
from pytest_coldstart.alerts.read import Series
from pytest_coldstart.alerts.rules import Failed, Rule
from pytest_coldstart.alerts.told import Alert
from pytest_coldstart.store.errors import StoreError

RULE = Rule("boots fail", Failed(1), severity="critical", message="look")


def finding(series: str, state: str = FIRES) -> Finding:
    return Finding(Series(series, "vllm", "cell", "t", "m", "restart"), state, "1 of 3 failed", since="r-1")


def alerts(*series: str) -> tuple[Alert, ...]:
    return told.alerts([Evaluated(RULE, (*map(finding, series), finding("fine", OK)))])


def test_only_what_is_new_and_what_has_ended_is_news() -> None:
    first, second = alerts("a", "b"), alerts("b", "c")
    news = told.news((), first)
    assert (news.firing, news.resolved) == (first, ())
    known = told.after((), news)
    assert not told.news(known, first)
    news = told.news(known, second)
    assert ([one.series for one in news.firing], [one.series for one in news.resolved]) == (["c"], ["a"])
    assert {one.series for one in told.after(known, news)} == {"b", "c"}
    # Another value of the same alert is none.
    assert not told.news(known, tuple(dataclasses.replace(one, value="2 of 3 failed") for one in first))


def test_a_rule_that_is_gone_ends(tmp_path: Path) -> None:
    assert told.news(alerts("a"), ()).resolved == alerts("a")


def test_what_was_told_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    assert told.read(path) == ()
    told.write(path, alerts("a", "b"))
    assert told.read(path) == alerts("a", "b")
    told.write(path, ())
    assert told.read(path) == ()
    assert sorted(os.listdir(tmp_path)) == ["alerts.json"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 1}', '{"version": 1, "told": [{}]}', '{"version": 1, "told": [{"rule": 3}]}', "\xff"],
)
def test_a_broken_file_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "alerts.json"
    path.write_text(text, "latin-1")
    with pytest.raises(StoreError, match="is broken; remove it"):
        told.read(path)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    path.write_text(json.dumps({"version": 2}))
    with pytest.raises(StoreError, match="version 2, newer than 1"):
        told.read(path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="could not write"):
        told.write(tmp_path / "gone" / "alerts.json", ())
    (tmp_path / "alerts.json").mkdir()
    with pytest.raises(StoreError, match="could not write"):
        told.write(tmp_path / "alerts.json", ())
    assert os.listdir(tmp_path) == ["alerts.json"]


def test_another_process_waits_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    code = (
        "import sys, pathlib\nfrom pytest_coldstart.alerts import told\n"
        "with told.alone(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match="another `coldstart alerts` holds"), told.alone(path, 0.1):
            pass
        other.kill()
        other.wait(30)
    with told.alone(path, 30):
        pass


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match="name another place with --state"),
        told.alone(tmp_path / "gone" / "alerts.json"),
    ):
        pass
