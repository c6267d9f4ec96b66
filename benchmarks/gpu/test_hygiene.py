"""What must fail, and how: run by hygiene.py, which reads what these boots leave behind."""

import os
import subprocess
import sys

import pytest
from test_memory import WORK, vllm

pytestmark = pytest.mark.slo("cold_start<=300s", "warm_first_token<=2s")

small = vllm("0.5b", "scale_out", block_size=16, enforce_eager=True, gpu_memory_utilization=0.85)


@pytest.fixture
def holder():
    """A process that holds 1 GiB of GPU memory."""
    words = [sys.executable, f"{WORK}/holder.py"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        print(f"holder: pid {process.stdout.readline().strip()}", file=sys.__stderr__, flush=True)
        yield process.pid
        process.kill()


@small
def test_before(cold_boot):
    pass


@small
def test_while_held(holder, cold_boot):
    pass


@vllm("7b", "pristine", block_size=16, enforce_eager=True, gpu_memory_utilization=0.92)
def test_killed(cold_boot):
    pytest.fail(f"nobody killed it (process {os.getpid()})")
