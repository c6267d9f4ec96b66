"""A run on a host with GPUs: who gets which, what is refused, and what a leak does. NVML is a stand-in, all else is real."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.plugin.conftest import WIDE, Inner

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]

#: Two GPUs, of which the first one's memory grows by {grows} MiB once an engine was asked for, and is never given back.
HOST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.observe.fake_nvml import GIB, MIB, FakeDevice, FakeNVML
FIRST, SECOND = FakeDevice("GPU-aaaa", used=0), FakeDevice("GPU-bbbb", used=0)
sys.modules["pynvml"] = FakeNVML(FIRST, SECOND)
"""

LEAK = """
@pytest.mark.coldstart(**ENGINE, gpus=1)
def test_leaks(cold_boot):
    import conftest
    conftest.FIRST.used += {mib} * 2**20
"""


def test_memory_that_stays_after_the_stop_breaks_the_default_bound(inner: Inner) -> None:
    inner.conftest(HOST)
    inner.ini(WIDE)
    inner.suite(LEAK.format(mib=48))
    result = inner.run("-p", "no:randomly")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*leaked_gpu_memory.max = 50.3 MB breaks <= 0 B*"])
    with duckdb.connect(str(inner.store / "coldstart.duckdb"), read_only=True) as con:
        rows = con.execute("SELECT uuid, before_bytes, after_bytes FROM gpu").fetchall()
    assert rows == [("GPU-aaaa", 0, 48 * 2**20)]


def test_a_leak_that_refuses_the_next_round_names_the_boot_that_left_it(inner: Inner) -> None:
    inner.conftest(
        HOST
        + """
import pytest_coldstart.observe.gpu as gpu
settle = gpu.GPUObserver.settle
def leak(self, patience=5.0):
    FIRST.used += 300 * MIB
    settle(self, 0.1)
gpu.GPUObserver.settle = leak
"""
    )
    inner.ini(WIDE)
    inner.suite("@pytest.mark.coldstart(**{**ENGINE, 'rounds': 2}, gpus=1)\ndef test_it(cold_boot):\n    pass\n")
    result = inner.run("--coldstart-gpu-wait=100ms")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*a GPU is not idle: *Leaked: 315 MB since boot * of this cell*"])


def test_nothing_leaked_is_a_pass_of_the_default_bound(inner: Inner) -> None:
    inner.conftest(HOST)
    inner.ini(WIDE)
    inner.suite(LEAK.format(mib=0))
    result = inner.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*leaked_gpu_memory.max*", "*0 B <= 0 B*"])


def test_each_boot_sees_its_own_gpus_by_uuid_and_more_than_there_are_is_a_skip(inner: Inner) -> None:
    inner.conftest(HOST)
    inner.ini(WIDE)
    inner.suite("""
@pytest.mark.coldstart(**ENGINE, gpus=2)
def test_both(cold_boot):
    assert cold_boot.record.environment["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa,GPU-bbbb"

@pytest.mark.coldstart(**ENGINE, gpus=1, env={"CUDA_VISIBLE_DEVICES": "1"})
def test_the_second(cold_boot):
    assert cold_boot.record.environment["CUDA_VISIBLE_DEVICES"] == "GPU-bbbb"

@pytest.mark.coldstart(**ENGINE, gpus=0)
def test_none(cold_boot):
    assert cold_boot.record.memory.gpus == ()

@pytest.mark.coldstart(**ENGINE, gpus=3)
def test_three(cold_boot):
    raise AssertionError("booted")
""")
    result = inner.run("-rs")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*SKIPPED*3 GPUs asked for and 2 are visible*to enable: *"])
    required = inner.run("-k", "three", "--coldstart-require", "openai")
    required.assert_outcomes(errors=1)
    required.stdout.no_fnmatch_line("*During handling*")


def test_a_gpu_that_somebody_uses_refuses_the_boot_by_name_unless_that_is_allowed(inner: Inner) -> None:
    inner.conftest(HOST + "import os\nFIRST.used = 900 * MIB\nFIRST.processes[os.getppid()] = 900 * MIB\n")
    inner.ini(WIDE)
    inner.suite("@pytest.mark.coldstart(**ENGINE, gpus=2)\ndef test_it(cold_boot):\n    pass\n")
    result = inner.run("--coldstart-gpu-wait=100ms")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*a GPU is not idle: GPU 0 (NVIDIA H200, GPU-aaaa) has 900 MiB in use*: pid * (*, 900 MiB)*"]
    )
    assert not list(inner.store.glob("logs/*.log"))
    allowed = inner.run("--coldstart-gpu-wait=100ms", "--coldstart-foreign-gpu=allow")
    assert allowed.ret == 0
    with duckdb.connect(str(inner.store / "coldstart.duckdb"), read_only=True) as con:
        assert con.execute("SELECT idle_bytes FROM gpu WHERE uuid = 'GPU-aaaa'").fetchall() == [(900 * 2**20,)]


def test_gpus_that_a_suite_asks_for_where_none_can_be_told_run_and_the_reason_is_kept(inner: Inner) -> None:
    inner.conftest(
        "import sys\nsys.modules['pynvml'] = None\nfrom pytest_coldstart import environment\n"
        "environment.can_open_gpu = lambda amd: False  # also on a machine that has one\n"
    )
    inner.ini(WIDE)
    inner.suite("""
@pytest.mark.coldstart(**ENGINE, gpus=1)
def test_it(cold_boot):
    memory = cold_boot.record.memory
    assert memory.gpus == ()
    assert memory.missing[0].startswith("GPUs asked for: 1, and none could be leased: the module pynvml is not installed")
""")
    inner.run().assert_outcomes(passed=1)
