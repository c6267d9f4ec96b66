"""A store that fills up or is held by somebody else: a clear word, and no boot is lost that could be written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.plugin.conftest import Inner, text_of

pytestmark = pytest.mark.usefixtures("covered_children")

SUITE = "@fake\ndef test_a(cold_boot): ...\n"

#: Runs the rest of the command line with files limited to so many bytes.
LIMITED = "import os, resource, sys; n = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); "
LIMITED += "os.execv(sys.executable, [sys.executable, '-m', 'pytest', *sys.argv[2:]])"


def assert_full(inner: Inner, result: pytest.RunResult) -> None:
    assert result.ret == 1
    text = text_of(result)
    assert [
        word for word in ("Traceback", "INTERNALERROR", "During handling", "pytest_coldstart/") if word in text
    ] == []
    assert inner.alive() == []


def test_a_run_file_that_cannot_grow_is_a_clear_error(inner: Inner, monkeypatch: pytest.MonkeyPatch) -> None:
    """4000 bytes hold the run's first line and what pytest prints, and no boot."""
    for name in [name for name in os.environ if name.startswith("COVERAGE")]:
        monkeypatch.delenv(name)  # the limit would bind coverage's own data file too
    inner.suite(SUITE)
    result = inner.pytester.run(sys.executable, "-c", LIMITED, "4000", *inner.arguments("-p", "no:logging"))
    assert_full(inner, result)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["the boot could not be stored: could not write *.jsonl: File too large; choose another*"]
    )


def test_a_full_disk_is_a_clear_error(inner: Inner) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    mount = inner.path / "mount"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
    try:
        inner.store = mount / "store"
        inner.suite("@pytest.mark.coldstart(**{**ENGINE, 'rounds': 30, 'requests': 20})\ndef test_a(cold_boot): ...\n")
        result = inner.run()
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
    assert_full(inner, result)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the boot could not be stored: could not write *.jsonl: No space left on device; *"])


HOLD = "import duckdb, sys; con = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


def test_a_store_that_another_process_holds_does_not_fail_the_run_and_gets_the_boots_later(inner: Inner) -> None:
    """The run waits for it at its end: 20 seconds, of which two are enough here."""
    inner.conftest("from pytest_coldstart.store.ingest import ingest\n\ningest.__defaults__ = (None, 2.0)\n")
    inner.suite(SUITE)
    inner.store.mkdir()
    command = [sys.executable, "-c", HOLD, str(inner.store / "coldstart.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        result = inner.run()
        holder.communicate()
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            f"coldstart: the store *coldstart.duckdb is held by *{holder.pid}*after 2 s; no result is lost: *`coldstart ingest`"
        ]
    )
    done = inner.cli("ingest", "--store", str(inner.store))
    assert done.ret == 0
    done.stdout.fnmatch_lines(["1 boots of 1 new runs added to *coldstart.duckdb, from 1 files"])
    assert inner.boots() == 1


def test_run_files_of_killed_runs_are_taken_in_by_the_next_one(inner: Inner) -> None:
    inner.suite(SUITE)
    assert inner.run().ret == 0
    (inner.store / "coldstart.duckdb").unlink()
    result = inner.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["coldstart: 2 boots, priming ones included, added to *"])
    assert inner.boots() == 2


def test_a_run_file_is_read_only_once_its_run_has_ended(inner: Inner) -> None:
    inner.suite(SUITE)
    assert inner.run().ret == 0
    assert [path.stat().st_mode & 0o777 for path in inner.run_files] == [0o444]
