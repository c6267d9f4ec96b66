"""A boot of vLLM 0.25.1 on an H200 as it was recorded, beside what torch itself and nvidia-smi said of it meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_coldstart.metrics import measure
from pytest_coldstart.record import BootRecord, Value

RECORD = Path(__file__).parent / "data" / "h200-vllm-0.25.1-boot.json"
MIB = 1 << 20


@pytest.fixture(scope="module")
def found() -> dict[str, Value]:
    return measure(BootRecord.from_dict(json.loads(RECORD.read_text())))


def test_allocator_fragmentation_is_that_of_an_independent_reading_of_torch(found: dict[str, Value]) -> None:
    """torch.cuda.memory_stats() of a second reader in the engine core, 0.11 s later: peaks since ready, in MiB."""
    assert found["allocator_fragmentation"].value == pytest.approx(1 - 121527.2 / 122340.0, abs=1e-6)


def test_kv_fragmentation_is_the_arithmetic_of_the_prompts(found: dict[str, Value]) -> None:
    """By the engine, 497 blocks of 16 held 7796 tokens: prompts of 7795 tokens, each with its first answers."""
    record = json.loads(RECORD.read_text())
    prompts = record["memory"]["burst"]["prompt_tokens"]
    assert sum(-(-tokens // 16) for tokens in prompts) <= 497 <= sum(-(-(tokens + 16) // 16) for tokens in prompts)
    assert found["kv_fragmentation"].value == pytest.approx(1 - 7796 / (497 * 16))
    assert found["fragmentation"].value == found["kv_fragmentation"].value


def test_memory_is_that_of_nvidia_smi(found: dict[str, Value]) -> None:
    assert found["gpu_memory_peak"].value == pytest.approx(123099 * MIB, abs=MIB)
    assert found["leaked_gpu_memory"].value == 0.0


def test_diagnostics_by_hand(found: dict[str, Value]) -> None:
    """MiB: reserved 122340.0, active 121309.3, inactive splits 56.7; the process 123090 of 143771, its context 518."""
    assert found["allocator_slack_ready"].value == pytest.approx((122340.0 - 121309.3) / 122340.0, abs=1e-5)
    assert found["inactive_split"].value == pytest.approx(56.7 / 122340.0, abs=1e-6)
    assert found["stranded"].value == pytest.approx((123090 - 122340 - 518) / 143771, abs=1e-4)
