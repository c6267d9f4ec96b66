"""What all charts look alike in: words in the colour of the page's own text, in the light theme and the dark one.

Streamlit draws the words of a chart in a fixed grey, which is too faint to read on white.
"""

from __future__ import annotations

import altair as alt

_NAME = "coldstart"

#: Charts are drawn as SVG, or on a canvas where they are large: both know this colour.
_TEXT = "currentColor"


def _theme() -> alt.theme.ThemeConfig:
    words = {"labelColor": _TEXT, "titleColor": _TEXT}
    config = {"axis": words, "header": words, "legend": words, "title": {"color": _TEXT}, "text": {"color": _TEXT}}
    return {"config": config}  # type: ignore[typeddict-item]


def enable() -> None:
    """Make it the theme of every chart of this process."""
    alt.theme.register(_NAME, enable=True)(_theme)
