"""What frames and processes mean, as data: one module an engine family on top of the common ones."""

from __future__ import annotations

from pytest_coldstart.phases.rules import common, llamacpp, lmdeploy, sglang, torch, transformers, vllm
from pytest_coldstart.phases.rules.rule import WAITS, ProcessRule, Rule

#: The later one of two rules that match one frame wins.
ALL_RULES: tuple[Rule, ...] = (
    *common.RULES,
    *torch.RULES,
    *transformers.RULES,
    *llamacpp.RULES,
    *lmdeploy.RULES,
    *sglang.RULES,
    *vllm.RULES,
)

PROCESS_RULES: tuple[ProcessRule, ...] = common.PROCESS_RULES

__all__ = ["ALL_RULES", "PROCESS_RULES", "WAITS", "ProcessRule", "Rule"]
