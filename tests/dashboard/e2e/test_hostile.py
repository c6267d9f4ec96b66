"""A store whose every text is an attack: it is shown as text, and nothing of it comes to life."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from dashboard.frame import PAGES
from tests.dashboard import hostile
from tests.dashboard.e2e.conftest import Serve
from tests.dashboard.e2e.reader import Reader
from tests.dashboard.e2e.server import Server

#: What an attack would have made, in the page and in every frame and shadow tree of it.
_COME_TO_LIFE = """owned => {
  const found = [];
  const look = root => {
    for (const one of root.querySelectorAll('*')) {
      const words = ['href', 'src', 'action', 'xlink:href', 'formaction'].map(name => one.getAttribute(name) || '');
      if (one.id === owned || [...one.classList].includes(owned)) found.push(one.outerHTML.slice(0, 200));
      if (words.some(word => /^\\s*(javascript|data:text|vbscript):/i.test(word))) found.push(one.outerHTML.slice(0, 200));
      if (words.some(word => word.includes('foreign.invalid')) && one.tagName !== 'A') found.push(one.outerHTML.slice(0, 200));
      if ([...one.attributes].some(item => /^on/i.test(item.name))) found.push(one.outerHTML.slice(0, 200));
      if (one.matches('.katex, strong, del, em') && one.textContent.trim() === owned) found.push(one.outerHTML.slice(0, 200));
      if (one.shadowRoot) look(one.shadowRoot);
      if (one.contentDocument) look(one.contentDocument);
    }
  };
  look(document);
  return found;
}"""


@pytest.fixture(scope="package")
def attacked(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A dashboard of :func:`tests.dashboard.hostile.store`."""
    return serve("--store", str(hostile.store(tmp_path_factory.mktemp("hostile")).root))


def opened(reader: Reader, server: Server, page: str, **query: Any) -> str:
    """The text of the page with all that is folded, after it was seen to be harmless."""
    reader.open(server, page, **query)
    unfold(reader)
    assert reader.page.evaluate(_COME_TO_LIFE, hostile.OWNED) == []
    words = reader.text()
    assert hostile.OUTSIDE not in words
    assert "🎉" not in words
    # What escapes for Markdown where no Markdown is read shows its backslashes.
    assert not any(word in words for word in ("\\<b", "\\[owned", "\\:tada", "\\*\\*owned", "&lt;b"))
    return words


def unfold(reader: Reader) -> None:
    folded = reader.main().locator("details:not([open]) > summary")
    for _ in range(folded.count()):
        folded.first.click()
    reader.settled()


@pytest.mark.parametrize("page", PAGES)
def test_no_attack_comes_to_life_on_a_page(attacked: Server, reader: Reader, page: str) -> None:
    words = opened(reader, attacked, page)
    reader.resized(390)
    assert reader.cut_off() == []
    if page != "alerts":  # its rules are the owner's
        assert any(part in words for part in hostile.SEEN), words[:4000]


@pytest.mark.parametrize("boot", ["b-50-good", "b-50-bad", f"b-50 {hostile.EVERYTHING}"], ids=["good", "bad", "all"])
def test_every_text_of_a_boot_is_text(attacked: Server, reader: Reader, boot: str) -> None:
    words = opened(reader, attacked, "boot", boot=boot)
    missing = [part for part in hostile.SEEN if part not in words]
    assert missing == []
    reader.resized(390)
    assert reader.cut_off() == []


def test_a_log_outside_of_the_store_is_not_shown(attacked: Server, reader: Reader) -> None:
    assert hostile.OUTSIDE not in opened(reader, attacked, "boot", boot="b-0-good")


def test_an_attack_in_the_address_is_a_value_that_does_not_exist(attacked: Server, reader: Reader) -> None:
    for page in PAGES:
        keys = (
            "series",
            "metric",
            "boot",
            "engine",
            "tier",
            "model",
            "hardware",
            "branch",
            "store",
            "x",
            "y",
            "run",
            "a",
            "b",
        )
        opened(reader, attacked, page, **dict.fromkeys(keys, hostile.EVERYTHING))


def test_the_words_beside_the_pointer_are_text(attacked: Server, reader: Reader) -> None:
    opened(reader, attacked, "trend")
    marks = [mark for mark in reader.main().locator("svg .mark-symbol path").all() if is_solid(mark.bounding_box())]
    assert marks
    for mark in marks[:2]:
        mark.hover(force=True)
        reader.page.wait_for_function("document.querySelector('#vg-tooltip-element.visible, .vg-tooltip.visible')")
        assert reader.page.evaluate(_COME_TO_LIFE, hostile.OWNED) == []


def is_solid(box: Any) -> bool:
    return bool(box and box["width"] > 2 and box["height"] > 2)
