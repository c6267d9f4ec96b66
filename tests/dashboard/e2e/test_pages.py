"""Each page, wide and narrow, light and dark: whole, legible, and no wider than its window."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from dashboard.frame import PAGES
from tests.dashboard.e2e.contrast import faint
from tests.dashboard.e2e.reader import Reader
from tests.dashboard.e2e.server import Server

#: Width in pixels and theme.
SIZES = ((1280, "light"), (1280, "dark"), (390, "dark"), (390, "light"))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("of", ["real", "demo"])
def test_a_page_is_whole_at_each_size_and_in_each_theme(
    request: pytest.FixtureRequest, reader: Reader, of: str, page: str
) -> None:
    server: Server = request.getfixturevalue(of)
    reader.open(server, page)
    wrong = []
    for width, scheme in SIZES:
        reader.resized(width, scheme=scheme)
        assert reader.main().locator("h1").all_inner_texts() == [PAGES[page]] or page == "boot"  # titled by its cell
        wrong += [f"{width} px, {scheme}: {words}" for words in (*faint(reader.page), *reader.cut_off())]
    assert not wrong, "\n".join(wrong)
