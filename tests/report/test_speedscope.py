"""A boot's samples in speedscope's file format, checked against what its schema requires."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from pytest_coldstart.attribution import Attribution, Process
from pytest_coldstart.phases.trace import Frame, ProcessTrace, Sample
from pytest_coldstart.report.speedscope import speedscope
from tests.store.samples import FULL

MAIN = Frame("__main__", "<module>", "/app/serve.py")
LOAD = Frame("loader", "Loader.load", "/app/loader.py")
FIND = Frame("importlib._bootstrap", "_find_and_load", "<frozen importlib._bootstrap>")

SERVER = ProcessTrace(
    pid=7,
    parent=1,
    started=1000.0,
    python=1000.5,
    mode="full",
    samples=[
        Sample(1001.0, 0, (MAIN,)),
        Sample(1001.0, 1, (LOAD,)),
        Sample(1001.0625, 0, (MAIN, LOAD)),
        Sample(1003.0625, 0, (MAIN, LOAD)),
        Sample(1003.125, 0, (MAIN, FIND), importing="torch"),
    ],
    last=1003.1875,
)
NINJA = ProcessTrace(
    pid=8, parent=7, started=1001.0, python=None, mode="full", samples=[Sample(1002.0, 0, (LOAD,))], last=1002.0
)
SILENT = ProcessTrace(pid=9, parent=7, started=1001.0, python=1001.1, mode="marks")
RECORD = dataclasses.replace(
    FULL, attribution=Attribution(processes=(Process(7, 1, "server", 0.25), Process(8, 7, "worker", 1.25)))
)


def checked(file: dict[str, Any]) -> dict[str, Any]:
    """The file as read back, once everything that the schema requires of it holds."""
    file = json.loads(json.dumps(file))
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(file) <= {"$schema", "shared", "profiles", "name", "exporter", "activeProfileIndex"}
    assert set(file["shared"]) == {"frames"}
    for frame in file["shared"]["frames"]:
        assert isinstance(frame["name"], str)
        assert set(frame) <= {"name", "file", "line", "col"}
    assert 0 <= file["activeProfileIndex"] < len(file["profiles"])
    for profile in file["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert (profile["type"], profile["unit"]) == ("sampled", "seconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= place < len(file["shared"]["frames"]) for stack in profile["samples"] for place in stack)
        assert min(profile["weights"]) >= 0
        assert sum(profile["weights"]) == pytest.approx(profile["endValue"] - profile["startValue"])
    return file


def test_profile_of_each_main_thread_longest_first() -> None:
    file = checked(speedscope(RECORD, [NINJA, SILENT, SERVER], 999.75))
    assert [profile["name"] for profile in file["profiles"]] == ["server", "worker"]
    server, worker = file["profiles"]
    # The interpreter was up at 0.75 s after the start; the gap of two seconds is the later sample's.
    assert (server["startValue"], server["endValue"]) == (0.75, 3.4375)
    assert server["weights"] == [0.53125, 0.03125, 2.03125, 0.09375]
    assert worker["weights"] == [0.0]


def test_frames_are_shared_and_what_is_being_imported_is_named() -> None:
    file = checked(speedscope(RECORD, [SERVER, NINJA], 999.75))
    names = [frame["name"] for frame in file["shared"]["frames"]]
    assert names == ["__main__:<module>", "loader:Loader.load", "importlib._bootstrap:_find_and_load", "import torch"]
    assert file["shared"]["frames"][1]["file"] == "/app/loader.py"
    assert [profile["samples"] for profile in file["profiles"]] == [[[0], [0, 1], [0, 1], [0, 2, 3]], [[1]]]


def test_start_of_the_boot_is_found_by_a_process_that_both_know() -> None:
    assert speedscope(RECORD, [SERVER]) == speedscope(RECORD, [SERVER], 999.75)


def test_process_that_the_record_does_not_name() -> None:
    file = speedscope(dataclasses.replace(FULL, attribution=Attribution()), [SERVER], 1000.0)
    assert file["profiles"][0]["name"] == "pid 7"
    with pytest.raises(ValueError, match="none of the processes with samples"):
        speedscope(dataclasses.replace(FULL, attribution=Attribution()), [SERVER])


def test_boot_without_samples() -> None:
    for traces in ([], [SILENT]):
        with pytest.raises(ValueError, match="b-1 has no stack samples; boot with --coldstart-probe=full"):
            speedscope(RECORD, traces, 1000.0)
