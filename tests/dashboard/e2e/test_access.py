"""For readers who do not see the pages, or have no pointer."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from dashboard.frame import PAGES
from tests.dashboard.e2e.reader import Reader
from tests.dashboard.e2e.server import Server

#: What axe-core finds in what others draw: the rule, words of the element, and why it is left alone.
THEIRS = (
    ("svg-img-alt", "mark container", "Vega names each mark of a chart and the chart, not the group of its marks"),
    ("svg-img-alt", "brush_brush", "Vega's own rectangle of a brush"),
    ("scrollable-region-focusable", "<pre", "Streamlit's block of code or text, which scrolls by pointer alone"),
    ("color-contrast", 'class="token', "Streamlit's colours of code, which no theme can change"),
)

#: Each control: whether Tab reaches it, and its name.
_CONTROLS = """() => {
  const named = one => one.getAttribute('aria-label') || one.title || [...(one.labels || [])].map(label => label.innerText).join(' ')
    || (one.getAttribute('aria-labelledby') || '').split(' ').map(id => document.getElementById(id)?.innerText || '').join(' ')
    || one.innerText || one.closest('label')?.innerText || '';
  return [...document.querySelectorAll('[data-testid="stMain"] :is(input, textarea, select, button, summary, a[href])')]
    .filter(one => one.checkVisibility() && !one.disabled && one.type !== 'hidden' && !one.closest('[data-testid="stElementToolbar"]'))
    .filter(one => one.tabIndex < 0 ? !one.closest('[data-testid="stMultiSelect"], [data-testid="stSelectbox"]') : true)
    .map(one => [one.outerHTML.slice(0, 160), one.tabIndex >= 0 || one.type === 'radio', named(one).trim()]);
}"""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_told_in_words(demo: Server, reader: Reader, page: str) -> None:
    reader.open(demo, page)
    assert reader.page.evaluate("document.documentElement.lang") == "en"
    assert PAGES[page] in reader.page.title()
    charts = reader.main().get_by_test_id("stVegaLiteChart")
    wrong = [f"chart {n} has no description" for n in range(charts.count()) if len(_description(reader, n)) < 20]
    for html, reached, name in reader.page.evaluate(_CONTROLS):
        wrong += [f"no name: {html}"] * (not name) + [f"not reached with Tab: {html}"] * (not reached)
    wrong += [f"image without words: {html}" for html in reader.page.evaluate(_IMAGES)]
    assert not wrong, "\n".join(wrong)


_IMAGES = """() => [...document.querySelectorAll('[data-testid="stMain"] img:not([alt])')].map(one => one.outerHTML.slice(0, 160))"""


def _description(reader: Reader, number: int) -> str:
    """What stands in the place of a chart for those who do not see it."""
    chart = reader.main().get_by_test_id("stVegaLiteChart").nth(number)
    return str(
        chart.evaluate(
            "one => [one, ...one.querySelectorAll('[aria-label]')].map(part => part.getAttribute('aria-label') || '')[0] || one.querySelector('[aria-label]')?.getAttribute('aria-label') || ''"
        )
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_keyboard_reaches_every_choice(demo: Server, reader: Reader, page: str) -> None:
    """Tab goes through the page once and sees each field; nothing holds it."""
    reader.open(demo, page)
    wanted = reader.page.evaluate(
        """() => [...document.querySelectorAll(`[data-testid="stMain"] :is([data-testid="stSelectbox"], [data-testid="stMultiSelect"],
            [data-testid="stCheckbox"], [data-testid="stTextInput"], [data-testid="stExpander"], [data-testid="stButton"])`)]
            .filter(one => one.checkVisibility()).map((one, n) => { one.dataset.wanted = n; return one.innerText.split("\\n")[0] })"""
    )
    seen: set[int] = set()
    for _ in range(400):
        reader.page.keyboard.press("Tab")
        number = reader.page.evaluate("document.activeElement.closest('[data-wanted]')?.dataset.wanted ?? -1")
        seen.add(int(number))
        if len(seen - {-1}) == len(wanted):
            return
    pytest.fail(f"Tab does not reach {[wanted[n] for n in range(len(wanted)) if n not in seen]}")


@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_serious(demo: Server, reader: Reader, page: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python: pip install -e '.[dev]'"
    )
    reader.open(demo, page)
    found = axe.Axe().run(reader.page, options={"resultTypes": ["violations"]}).response["violations"]
    wrong = [
        f"{rule['id']} ({rule['impact']}): {node['target']} {node['html'][:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
        if not any(rule["id"] == id and words in node["html"] for id, words, _ in THEIRS)
    ]
    assert not wrong, "\n".join(wrong)
