"""Sleep is told from work by the line that calls it."""

from __future__ import annotations

from pathlib import Path

from pytest_coldstart.phases.classify import Classifier, package_of
from pytest_coldstart.phases.rules import ALL_RULES
from pytest_coldstart.phases.timeline import timeline
from pytest_coldstart.phases.trace import Frame, ProcessTrace, Sample


def trace(file: Path, line: int, module: str = "made_up.loader") -> ProcessTrace:
    stack = (Frame("made_up", "<module>", str(file)), Frame(module, "load", str(file)))
    samples = [Sample(0.1 + 0.05 * n, 0, stack, line) for n in range(20)]
    return ProcessTrace(1, 0, 0.0, 0.05, "full", samples=samples, last=1.1)


def details(made: ProcessTrace) -> set[str]:
    return {part.detail for part in timeline(made, Classifier(ALL_RULES), 0.2, 1.0)}


def test_a_line_that_calls_sleep_is_said_to_sleep(tmp_path: Path) -> None:
    file = tmp_path / "loader.py"
    file.write_text("def load():\n    time.sleep(3)\n    compute(sleepy)\n", "utf-8")
    assert details(trace(file, 2)) == {"made_up, sleep"}
    assert details(trace(file, 3)) == {"made_up"}


def test_the_package_of_an_import_that_sleeps_is_the_package() -> None:
    assert package_of("made_up, sleep") == "made_up"


def test_source_that_cannot_be_read_is_not_said_to_sleep(tmp_path: Path) -> None:
    assert details(trace(tmp_path / "nowhere.py", 2)) == {"made_up"}
