"""Semaphores that an engine leaves in /dev/shm are told from those of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_coldstart.shm import SharedMemory
from pytest_coldstart.supervisor import shared_memory, shared_memory_files

MAKE = """
import multiprocessing, time
lock = multiprocessing.get_context("spawn").Lock()
print(lock._semlock.name, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no /dev/shm here")
def test_semaphore_belongs_to_its_maker() -> None:
    with subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, text=True) as maker:
        try:
            assert maker.stdout is not None
            path = f"/dev/shm/sem.{maker.stdout.readline().strip().lstrip('/')}"
            assert path in shared_memory_files()
            assert path in shared_memory([maker.pid])
            assert path not in shared_memory([os.getpid()])
        finally:
            maker.terminate()
            maker.wait()


def test_file_that_another_living_process_maps_is_not_left_by_the_boot() -> None:
    before = SharedMemory.now()
    code = (
        "import mmap, sys\nfile = open(sys.argv[1], 'wb+')\nfile.truncate(4096)\n"
        "view = mmap.mmap(file.fileno(), 0)\nfile.close()\nprint('mapped', flush=True)\nsys.stdin.read()\n"
    )
    path = f"/dev/shm/coldstart-test-{os.getpid()}"
    try:
        words = [sys.executable, "-S", "-c", code, path]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"mapped\n"
            assert path not in dict(before.left([]))
        assert dict(before.left([]))[path] == 4096
    finally:
        Path(path).unlink(missing_ok=True)
