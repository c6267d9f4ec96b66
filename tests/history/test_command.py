from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pytest_coldstart.history import command
from pytest_coldstart.store.home import Home
from tests.history.conftest import STEP, Fill, commit, run_id

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]


def test_a_regression_is_shown_acknowledged_and_silent(home: Home, fill: Fill, coldstart: Run, capsys: Capture) -> None:
    fill(STEP, lambda n: {"driver": "580" if n >= 10 else "570"})
    assert coldstart("history", "tiny", "--fail-on-new") == 1
    out, err = capsys.readouterr()
    assert "cold_start, lower is better: 18 runs, 36 boots, 0 failed" in out
    assert "  2.00 s ▁▁▁▁▁▁▁▁▁▁████████ 3.01 s\n                   ^\n" in out
    assert f"commits {commit(9)[:10]} .. {commit(10)[:10]}" in out
    assert "+49.9%  2.01 s -> 3.01 s" in out
    assert "changed with it: driver 570 -> 580" in out
    assert f"--at {run_id(10)} --reason TEXT" in out
    assert err == "coldstart: 1 new regression without an acknowledgement\n"

    assert coldstart("ack", "tiny", "--at", commit(10)[:8], "--reason", "it checks more", "--author", "Ada") == 0
    assert "acknowledged the change of +49.9% at run-010" in capsys.readouterr().out
    assert coldstart("history", "tiny", "--fail-on-new") == 0
    out, err = capsys.readouterr()
    assert "acknowledged by Ada on " in out
    assert "it checks more" in out
    assert err == ""
    assert coldstart("history", "--json", "--fail-on-new") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["new"] == 0
    assert found["histories"][0]["points"][0]["acknowledged"]["author"] == "Ada"

    # A second step is another change point.
    fill([[4.0 + 0.002 * (n % 3), 4.01] for n in range(8)], first=18)
    assert coldstart("history", "--fail-on-new") == 1
    out = capsys.readouterr().out
    assert "4.01 s     52       0  2 (1 new)      llamacpp  test_a.py::test_boot[x]" in out

    (line,) = (home.root / "acknowledgements.jsonl").read_text().splitlines()
    assert coldstart("ack", "--remove", json.loads(line)["id"][:5], "--author", "Ada") == 0
    assert coldstart("ack", "--list") == 0
    assert "(withdrawn)" in capsys.readouterr().out
    assert coldstart("history", "tiny") == 0
    assert "new: coldstart ack" in capsys.readouterr().out


def test_a_file_in_version_control_counts_where_it_is_named(
    home: Home, fill: Fill, coldstart: Run, capsys: Capture
) -> None:
    fill(STEP)
    file = str(home.root.parent / "kept.jsonl")
    words = ["--reason", "r", "--author", "Ada", "--file", file]
    assert coldstart("ack", "tiny", "--at", "2026-03-11", *words) == 0
    assert coldstart("ack", "tiny", "--at", run_id(15), *words) == 0
    assert "matches no change point" in capsys.readouterr().err
    assert coldstart("history", "--fail-on-new") == 1
    assert coldstart("history", "tiny", "--fail-on-new", "--acknowledgements", file) == 0
    assert f"of run {run_id(15)} matches no change point" in capsys.readouterr().out
    with open(file, "a") as kept:
        kept.write("oops\n")
    assert coldstart("ack", "--list", "--file", file) == 0
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert run_id(10) in first
    assert "matches no change point" not in first
    assert second.endswith("(matches no change point)")
    assert f"{file}:3: broken acknowledgement" in err


def test_wrong_usage_exits_with_4_and_says_what_is_valid(fill: Fill, coldstart: Run, capsys: Capture) -> None:
    def refused(*words: str) -> str:
        assert coldstart(*words) == 4
        return capsys.readouterr().err

    assert "there is no store at" in refused("history")
    fill([[1.0]], cell_digest="aaaa00000001", cell_id="small")
    fill([[1.0]], cell_digest="aaaa00000002", cell_id="large")
    text = refused("history", "aaaa")
    assert text.startswith("coldstart: 2 series match 'aaaa'; name one by the beginning of its id:\n")
    assert "aaaa00000001-" in text
    assert "aaaa00000002-" in text
    assert "no series matches 'vllm'; there are:" in refused("history", "vllm")
    assert "no boot has a metric 'cold_strat'; near it: cold_start" in refused("history", "--metric", "cold_strat")
    assert "there is no file nowhere" in refused("history", "--acknowledgements", "nowhere")
    assert "no at was given" in refused("ack", "small", "--reason", "r")
    assert "it has no change points" in refused("ack", "small", "--at", "zzzz", "--reason", "r")
    assert "0 acknowledgements in" in refused("ack", "--remove", "ffff")


def test_without_the_extra_the_command_says_how_to_get_it(
    coldstart: Run, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert coldstart("history") == 4
    assert capsys.readouterr().err == ("coldstart history needs the extra gate: pip install 'pytest-coldstart[gate]'\n")


def test_a_series_without_runs_or_values_is_no_fault(fill: Fill, coldstart: Run, capsys: Capture) -> None:
    fill([[None], [float("inf")]])
    assert coldstart("history", "tiny", "--fail-on-new") == 0
    out = capsys.readouterr().out
    assert "no run has a value" in out
    assert "1; 1 failed" in out
    assert "1; 1 unmeasured" in out
    assert coldstart("history", "tiny", "--branch", "none") == 0
    assert "0 runs, 0 boots" in capsys.readouterr().out
