"""Reference workloads: real interpreters and real files, and a reason where there is no number."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from pytest_coldstart import residency, workload

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20


def test_the_imports_are_timed_and_name_their_python() -> None:
    found = workload.import_time()
    assert (found.value or 0) > 0
    assert (found.source, found.reason) == (f"python {platform.python_version()}", None)


def test_an_interpreter_that_is_not_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = workload.import_time()
    assert found.value is None
    assert "/nowhere/python could not be started" in (found.reason or "")


def test_an_interpreter_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "MODULES", ("json", "no_such_module"))
    assert workload.import_time().reason == "the imports failed: ModuleNotFoundError: No module named 'no_such_module'"


def test_a_read_leaves_the_files_resident_and_reads_nothing_from_storage_when_timed(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(3 * MIB + 5))
    if residency.filesystem(tmp_path) not in residency.LOCAL:
        pytest.skip("the temporary folder is on no local disk")
    residency.evict([path])
    found = workload.resident_read([path])
    assert residency.resident_bytes(path) == 3 * MIB + 5
    assert (found.value or 0) > 0
    assert found.reason is None


@pytest.mark.parametrize(
    ("names", "why"), [([], "no weight files"), (["nowhere"], "No such file"), (["empty"], "no w")]
)
def test_no_files_are_a_reason(names: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    found = workload.resident_read([tmp_path / name for name in names])
    assert found.value is None
    assert why in (found.reason or "")
