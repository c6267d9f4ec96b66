"""Options as words of a command line, for engines whose switches have no negative form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def words(name: str, value: Any) -> list[str]:
    """``page_size=16`` as ``--page-size 16``; nothing for False and None, JSON for a mapping, one word an item of a list."""
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    items = value if isinstance(value, (list, tuple)) else [value]
    return [flag, *(json.dumps(item, sort_keys=True) if isinstance(item, Mapping) else str(item) for item in items)]
