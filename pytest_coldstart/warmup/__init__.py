"""Warm-up strategies: what is sent between the first request and the first judged warm one."""

from pytest_coldstart.warmup.base import WARMUPS, Warmup, WarmupError, create, unique_prompt
from pytest_coldstart.warmup.none import NoWarmup
from pytest_coldstart.warmup.prompts import Prompts

WARMUPS.add(NoWarmup)
WARMUPS.add(Prompts)

__all__ = ["WARMUPS", "NoWarmup", "Prompts", "Warmup", "WarmupError", "create", "unique_prompt"]
