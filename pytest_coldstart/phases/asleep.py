"""Whether a frame sleeps: time.sleep is a C function and has no frame, but the line that calls it can be read."""

from __future__ import annotations

import linecache
import re
from dataclasses import replace
from functools import lru_cache

from pytest_coldstart.phases.classify import ASLEEP, Mark
from pytest_coldstart.phases.trace import Sample

_CALL = re.compile(r"\bu?sleep\(")


def with_sleep(mark: Mark, sample: Sample, before: Sample | None) -> Mark:
    """*mark*, said to be asleep where the thread stood on a line that calls sleep at both samples.

    The source has to be readable here, which an engine's in a container is not.
    """
    if before is None or before.line != sample.line or before.stack != sample.stack or mark.wait:
        return mark
    if not sample.stack or not _sleeps(sample.stack[-1].file, sample.line):
        return mark
    return replace(mark, detail=f"{mark.detail}{ASLEEP}" if mark.phase else mark.detail, frame=f"{mark.frame}{ASLEEP}")


@lru_cache(maxsize=4096)
def _sleeps(file: str, line: int) -> bool:
    return bool(_CALL.search(linecache.getline(file, line)))
