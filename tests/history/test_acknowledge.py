from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_coldstart.history.acknowledge import Acknowledgement, Place, append, make, matched, read, withdraw
from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.store.errors import StoreError

RUNS = [RunPoint(f"run{n}", None, (1.0,), commit=f"commit{n}") for n in range(20)]


@dataclass(frozen=True)
class Located:
    index: int
    low: int
    high: int
    size: float = 0.5


def made(run: int, low: int | None = None, high: int | None = None, size: float | None = 0.5) -> Acknowledgement:
    place = Place.of(RUNS[(run if low is None else low) - 1], RUNS[run if high is None else high])
    return make("series", "cell", "cold_start", f"run{run}", place, size, "wanted", "Ada")


def test_what_was_appended_is_read_back_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "acks.jsonl"
    first, second = made(3), made(7)
    append(path, first)
    append(path, second)
    found = read(path)
    assert [one.source for one in found.given] == [f"{path}:1", f"{path}:2"]
    assert [(one.id, one.run, one.place, one.size, one.reason, one.author) for one in found.given] == [
        (one.id, one.run, one.place, 0.5, "wanted", "Ada") for one in (first, second)
    ]
    assert len({first.id, second.id}) == 2
    assert not found.problems
    assert read(tmp_path / "none") == read()


def test_a_withdrawal_is_one_more_line(tmp_path: Path) -> None:
    path, other = tmp_path / "acks.jsonl", tmp_path / "kept.jsonl"
    first, second = made(3), made(7)
    append(path, first)
    append(other, second)
    withdraw(path, first.id, "Bob")
    assert len(path.read_text().splitlines()) == 2
    found = read(path, other)
    assert [one.id for one in found.given] == [second.id]
    assert [one.id for one in found.withdrawn] == [first.id]


def test_broken_lines_are_named_and_nothing_else_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "acks.jsonl"
    append(path, made(3))
    line = json.loads(path.read_text())
    broken = [
        "{not json",
        "[]",
        json.dumps({**line, "kind": "praise"}),
        json.dumps({**line, "version": 2}),
        json.dumps({name: value for name, value in line.items() if name != "reason"}),
        json.dumps({**line, "author": 7}),
        json.dumps({**line, "place": {"runs": ["a"]}}),
        json.dumps({**line, "size": math.nan}),
        "[" * 100_000,
    ]
    path.write_text(path.read_text() + "\n".join(["", *broken]) + "\n" + '{"kind": "cut')
    before = path.read_text()
    last = made(9)
    append(path, last)
    assert path.read_text().startswith(before + "\n")
    found = read(path)
    assert [one.run for one in found.given] == ["run3", "run9"]
    assert [problem.split(": ")[0] for problem in found.problems] == [f"{path}:{n}" for n in range(3, 13)]
    assert "'praise'" in found.problems[2]
    assert "newer than 1" in found.problems[3]
    assert "no 'reason'" in found.problems[4]


def test_a_reason_and_an_author_are_needed() -> None:
    place = Place.of(RUNS[0], RUNS[1])
    with pytest.raises(ValueError, match="needs a reason"):
        make("s", "c", "m", "run1", place, 0.1, "  ", "Ada")
    with pytest.raises(ValueError, match="needs an author"):
        make("s", "c", "m", "run1", place, 0.1, "why", "")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="could not write"):
        append(tmp_path, made(3))
    with pytest.raises(StoreError, match="could not read"):
        read(tmp_path)


def test_it_silences_its_own_change_point_alone() -> None:
    one = made(5)
    found, stray = matched([one], [Located(5, 5, 5), Located(12, 11, 13)], RUNS)
    assert (found, stray) == ({0: one}, ())


def test_a_change_point_that_moved_by_a_run_is_still_the_same() -> None:
    one = made(5, low=4, high=6)
    assert matched([one], [Located(6, 6, 7)], RUNS)[0] == {0: one}
    assert matched([one], [Located(4, 4, 5)], RUNS)[0] == {0: one}
    assert matched([one], [Located(8, 7, 9)], RUNS) == ({}, (one,))


def test_the_nearest_of_two_is_meant() -> None:
    one = made(5, low=4, high=9)
    assert matched([one], [Located(5, 5, 5), Located(8, 8, 8)], RUNS)[0] == {0: one}


def test_a_change_the_other_way_is_another_one() -> None:
    one = made(5)
    assert matched([one], [Located(5, 5, 5, size=-0.5)], RUNS) == ({}, (one,))
    early = made(5, size=None)
    assert matched([early], [Located(5, 5, 5, size=-0.5)], RUNS) == ({0: early}, ())


def test_in_a_store_with_other_runs_the_commits_tell() -> None:
    elsewhere = [RunPoint(f"other{n}", None, (1.0,), commit=f"commit{n}") for n in range(20)]
    one = made(5)
    assert matched([one], [Located(5, 5, 5)], elsewhere)[0] == {0: one}
    assert matched([one], [Located(9, 9, 9)], elsewhere) == ({}, (one,))
