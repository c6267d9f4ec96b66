"""Choices: what they change, that they stand in the address, and that a copied address shows the same elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from dashboard.frame import PAGES
from tests.dashboard.e2e.conftest import Reads
from tests.dashboard.e2e.reader import Reader
from tests.dashboard.e2e.server import Server

#: How long ago something was grows while the test looks.
_AGE = re.compile(r"\d+ (?:d|h|min) ago|just now")
#: Controls that a page has any number of, and what changes one of them.
_KINDS = ("stSelectbox", "stMultiSelect", "stCheckbox", "stRadio", "stButtonGroup")


def seen(reader: Reader) -> str:
    return _AGE.sub("some time ago", reader.text())


@pytest.mark.parametrize("page", PAGES)
def test_a_copied_address_shows_the_same_view(demo: Server, reads: Reads, page: str) -> None:
    reader = reads().open(demo, page)
    changed = []
    for kind in _KINDS:
        for number in range(min(reader.main().get_by_test_id(kind).count(), 8)):
            if number < reader.main().get_by_test_id(kind).count():
                changed += _change(reader, kind, number)
    copied = reads().open(demo, page)
    assert changed or page in ("fragmentation", "alerts"), "the page has no choices"
    copied.page.goto(reader.page.url)
    assert seen(copied.settled()) == seen(reader.settled()), f"after {changed}, at {reader.page.url}"


def _change(reader: Reader, kind: str, number: int) -> list[str]:
    """Choose something else in one control; its label, or nothing where there is nothing else to choose."""
    control = reader.main().get_by_test_id(kind).nth(number)
    if not control.is_visible():
        return []
    label = (control.get_attribute("aria-label") or control.inner_text()).split("\n")[0]
    before, act = reader.query(), _action(reader, control, kind)
    if act is None:
        return []
    reader.after(act)
    reader.page.wait_for_function(
        "before => location.search.slice(1) !== before", arg=before
    )  # it stands in the address
    reader.settled()
    return [label]


def _action(reader: Reader, control, kind: str) -> Callable[[], object] | None:  # type: ignore[no-untyped-def]
    if kind == "stCheckbox":
        return control.locator("label").first.click
    if kind in ("stRadio", "stButtonGroup"):
        others = control.locator('label:has(input:not(:checked)), button[aria-checked="false"]')
        return others.last.click if others.count() else None
    field = control.locator("input").first
    before = field.input_value()
    field.focus()
    field.press("ArrowDown")
    options = reader.page.get_by_role("option")
    options.first.wait_for()
    words = [word for word in options.all_inner_texts() if word.strip() and word.strip() != before]
    others = [n for n, word in enumerate(options.all_inner_texts()) if word in words and word not in ("Select all",)]
    if not others:
        reader.page.keyboard.press("Escape")
        return None

    def choose() -> None:
        options.nth(others[0] if kind == "stMultiSelect" else others[-1]).click()
        reader.page.keyboard.press("Escape")

    return choose


def test_a_filter_leaves_fewer_series_on_the_overview(real: Server, reader: Reader) -> None:
    reader.open(real)
    assert {"restart", "scale_out"} <= set(re.findall(r"tier (\w+)", reader.text()))
    tier = reader.main().get_by_test_id("stMultiSelect").filter(has_text="tier")
    tier.locator("input").first.click()
    reader.after(reader.page.get_by_role("option", name="scale_out").click)
    reader.page.keyboard.press("Escape")
    assert reader.query() == "tier=scale_out"
    words = reader.settled().text()
    assert "tier scale_out" in words
    assert "tier restart" not in words


def test_a_point_of_a_trend_leads_to_its_boot_by_pointer(real: Server, reader: Reader) -> None:
    reader.open(real, "trend", tier="restart", metric="cold_start")
    points = reader.main().locator('svg [aria-roledescription="point"], svg .mark-symbol path')
    assert points.count() >= 2
    box = next(
        box for box in (one.bounding_box() for one in points.all()) if box and min(box["width"], box["height"]) > 2
    )
    reader.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    reader.page.wait_for_url("**/boot?**")
    _a_boot_is_shown(reader)


def test_a_tile_leads_to_its_boot_by_keyboard(real: Server, reader: Reader) -> None:
    reader.open(real)
    for _ in range(200):
        reader.page.keyboard.press("Tab")
        if "boot?" in reader.page.evaluate("document.activeElement.getAttribute('href') || ''"):
            break
    else:
        pytest.fail("no link to a boot was reached with Tab")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_url("**/boot?**")
    _a_boot_is_shown(reader)


def _a_boot_is_shown(reader: Reader) -> None:
    reader.settled()
    boot = re.search(r"boot=([\w-]+)", reader.query())
    assert boot
    assert boot[1] in reader.text()


def test_the_navigation_leads_to_each_page_and_back(real: Server, reader: Reader) -> None:
    reader.open(real)
    for title in [*PAGES.values()][1:]:
        reader.after(reader.page.get_by_role("link", name=title, exact=True).first.click)
        assert reader.page.title() == f"{title} - cold start"
    reader.after(reader.page.go_back)
