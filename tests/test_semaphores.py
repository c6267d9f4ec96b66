"""Semaphores that an engine leaves in /dev/shm are told from those of others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
