"""One boot whole, as text and as JSON: each fact of the record is there, at any width."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from pytest_coldstart.attribution import Attribution, Hint, Process, Spread
from pytest_coldstart.record import BootRecord, Failure, Phase, Value
from pytest_coldstart.report.columns import width_of
from pytest_coldstart.report.document import document
from pytest_coldstart.report.show import lines
from tests.store.samples import FULL, record

HOST = {"hostname": "node7", "cpu": "AMD EPYC 9654", "gpu": None, "git_commit": "0123abc", "git_dirty": True}


def text(boot: BootRecord, width: int = 100) -> str:
    return "\n".join(lines(boot, HOST, width))


def section(boot: BootRecord, title: str) -> list[str]:
    """The lines below a title, up to the next empty line."""
    found = lines(boot, HOST, 100)
    rest = found[found.index(title) + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def test_the_head_says_which_boot_this_was() -> None:
    head = text(FULL).partition("\n\n")[0]
    for words in (
        *("boot b-1", "llamacpp (xllamacpp 2026.10)", "restart, measured, round 2: ok", "host: node7, AMD EPYC 9654"),
        *("2026-11-02T08:00:01.250+00:00", "0123abc (dirty)", "test_a.py::test_boot[x]", "server --ctx 512"),
    ):
        assert words in head


def test_instants_are_in_their_order() -> None:
    names = [line.split("  ")[1].strip() for line in section(FULL, "instants")[1:]]
    assert names == [
        *("start", "listen", "endpoint /v1/models", "ready", "endpoint /health", "first_token", "first_done", "stopped")
    ]


def test_each_piece_of_the_path_is_a_row_and_the_phases_are_summed() -> None:
    found = lines(FULL, HOST, 100)
    assert "  total 1.00 s, unattributed 0 ms (0.0%); probe full" in found
    assert "    0.000  0.250   250 ms  imports       server   probe   torch" in found
    assert "    0.250  1.000   750 ms  load_weights           log" in found
    assert [line.split() for line in section(FULL, "phases")[1:]] == [
        ["load_weights", "750", "ms", "75.0%"],
        ["imports", "250", "ms", "25.0%"],
    ]


@pytest.mark.parametrize(
    "words",
    [
        "ninja 8 500 ms",  # the process that had no probe
        "ninja: no Python process",
        "server imported: torch 250 ms",
        "server ended with signal SIGTERM",
        "disagreement: imports: probe says 250 ms, log says 750 ms (imports took)",
        "llamacpp 1.2: no line matched 'weights'",
        "ggml:alloc",
        "rank 0 500 ms, rank 1 1.00 s; spread 500 ms",
        "250 ms at stake: imports take 0.25 s",
        "exit: exited with 1",
        "imports of server since 0.0 s",
        "loaded in",
        "not known: ninja is no Python process",
        "cache xdg: ",
        "unprovable: driver state",
    ],
)
def test_what_else_is_known_is_there(words: str) -> None:
    assert words in " ".join(text(FULL).split())


@pytest.mark.parametrize("width", [60, 100, 140])
def test_no_line_is_wider_than_asked_whatever_the_log_held(width: int) -> None:
    odd = dataclasses.replace(
        FULL,
        failure=Failure(
            "exit", "\x1b[31m模型加载 " * 40, "start", "模" * 300 + "\x07\n" + "x" * 500, ("  at \x1b]0;f",)
        ),
        phases=(Phase("imports", 0.0, 1.0, "probe", "モデル" * 20, "a" * 300),),
        hints=(Hint("x", "word " * 80, 3.0), Hint("y", "y" * 400, 4.0)),
    )
    found = lines(odd, HOST, width)
    assert max(map(width_of, found)) <= width
    assert all(line.isprintable() for line in found)
    json.dumps(document(odd, HOST), allow_nan=False)


def test_a_boot_of_which_nothing_is_known_inside_says_so_and_no_more() -> None:
    bare = record(
        "b-1", phases=(), attribution=Attribution(missing=("the probe's folder could not be made",)), hints=()
    )
    assert "  none: the probe's folder could not be made" in lines(bare, HOST, 100)
    for title in ("phases", "processes", "ranks", "other sources", "what would help", "failure"):
        assert title not in lines(bare, HOST, 100)
    found = document(bare, {})
    assert (found["total"], found["unattributed"], found["critical_path"]) == (None, None, [])


def test_a_path_of_many_pieces_is_printed_without_its_shortest_and_the_rest_is_counted() -> None:
    """100 pieces: 60 of 1 s and 40 of 0.25 s, which make 10 s."""
    at, phases = 0.0, []
    for number in range(100):
        seconds = 0.25 if number % 5 in (1, 3) else 1.0
        phases.append(Phase("imports", at, at + seconds, "probe", "server", f"package{number}"))
        at += seconds
    found = text(record("b-1", phases=tuple(phases), attribution=Attribution("full", at)))
    assert sum("  probe   package" in line for line in found.splitlines()) == 60
    assert "and 40 shorter pieces, 10.00 s together: --json has them" in found
    assert len(document(record("b-1", phases=tuple(phases)), {})["critical_path"]) == 100


def test_the_json_has_the_path_its_sums_and_all_that_stands_beside_it() -> None:
    found = json.loads(json.dumps(document(FULL, HOST), allow_nan=False))
    assert found["critical_path"] == [
        {"phase": "imports", "detail": "torch", "start": 0.0, "end": 0.25, "process": "server", "source": "probe"},
        {"phase": "load_weights", "detail": "", "start": 0.25, "end": 1.0, "process": "", "source": "log"},
    ]
    assert (found["total"], found["unattributed"]) == (1.0, 0.0)
    assert found["phases"] == {"imports": 0.25, "load_weights": 0.75}
    assert found["instants"]["first_done"] == 2.0
    assert found["processes"][0]["imports"] == {"torch": 0.25}
    assert found["unmatched"] == [{"engine": "llamacpp", "version": "1.2", "pattern": "weights"}]
    assert found["spreads"][0]["done"] == {"rank 0": 0.5, "rank 1": 1.0}
    assert found["hints"] == [{"rule": "imports", "text": "imports take 0.25 s", "seconds": 0.25}]
    assert found["failure"]["diagnosis"] == ["imports of server since 0.0 s", "poll()"]
    assert [cache["new_kinds"] for cache in found["caches"]] == [{"kernels": 2}, {}]
    assert all(cache["statement"].startswith(cache["verdict"]) for cache in found["caches"])
    assert found["host"]["hostname"] == "node7"


def test_numbers_that_json_has_not_are_null() -> None:
    boot = record(
        "b-1",
        metrics={"cold_start": Value(math.inf, "client")},
        attribution=Attribution(processes=(Process(1, 0, "p", 0.0, math.nan),), spreads=(Spread(0.0, -math.inf),)),
    )
    found = json.loads(json.dumps(document(boot, {}), allow_nan=False))
    assert found["metrics"]["cold_start"]["value"] is None
    assert (found["processes"][0]["end"], found["spreads"][0]["end"]) == (None, None)
