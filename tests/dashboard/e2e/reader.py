"""Somebody who reads the pages in Chromium, and everything that must never happen meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.dashboard.e2e.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

#: Milliseconds that anything may take; the machine is shared.
PATIENCE = 60_000

#: Done: the script has ended, nothing is being replaced, every chart is drawn, and the text has stood still for a moment.
_SETTLED = """() => {
  const all = selector => [...document.querySelectorAll(selector)];
  const app = document.querySelector('[data-testid="stApp"]');
  const sized = one => one.getBoundingClientRect().width > 1 && one.checkVisibility();
  const waiting = () => {
    if (!app) return 'there is no app';
    if (app.dataset.testConnectionState !== 'CONNECTED') return `the connection is ${app.dataset.testConnectionState}`;
    if (app.dataset.testScriptState !== 'notRunning') return `the script is ${app.dataset.testScriptState}`;
    const busy = all('[data-testid="stSkeleton"], [data-testid="stAppSkeleton"], [data-testid="stSpinner"]').filter(sized);
    if (busy.length) return `${busy.length} ${busy[0].dataset.testid}`;
    if (!document.querySelector('[data-testid="stMain"] h1, [data-testid="stAlert"], [data-testid="stException"]'))
      return 'there is no title';
    const shown = kind => all(`[data-testid="${kind}"]`).filter(sized);
    if (shown('stVegaLiteChart').some(chart => !chart.querySelector('canvas, svg'))) return 'a chart is not drawn';
    if (shown('stDataFrame').some(table => !table.querySelector('canvas'))) return 'a table is not drawn';
    return '';
  };
  const why = waiting(), now = why || location.href + document.body.innerText;
  window.seenAlike = !why && window.seenLast === now ? (window.seenAlike || 0) + 1 : 0;
  window.seenLast = now;
  window.seenWaiting = why || 'the text still changes';
  return window.seenAlike >= 3;
}"""

#: Streamlit looks for its server below the page's own address first, and Chromium says on the console that it is not there.
_THEIRS = re.compile(r"404 \(Not Found\) http://localhost:\d+/[a-z]+/_stcore/(health|host-config)$")


@dataclass
class Reader:
    """One browser context with one page. ``wrong``: what happened that never may, in words."""

    context: BrowserContext
    page: Page
    wrong: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, context: BrowserContext) -> Reader:
        context.set_default_timeout(PATIENCE)
        reader = cls(context, context.new_page())
        context.on("page", reader._watch)
        reader._watch(reader.page)
        return reader

    def _watch(self, page: Page) -> None:
        page.on("dialog", lambda dialog: (self.wrong.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: self.wrong.append(f"a script broke: {error.stack or error}"))
        page.on("console", self._said)
        page.on("request", lambda request: self._asked(request.url))
        page.on("websocket", lambda socket: self._asked(socket.url))

    def _said(self, message: Any) -> None:
        said = f"{message.text} {message.location.get('url', '')}".strip()
        if message.type == "error" and not _THEIRS.search(said):
            self.wrong.append(f"the console says: {said}")

    def _asked(self, url: str) -> None:
        self.requests.append(url)
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "localhost":
            self.wrong.append(f"a request left: {url}")

    # -- reading

    def open(self, server: Server, page: str = "", **query: str | Sequence[str]) -> Reader:
        self.page.goto(server.url(page, **query))
        return self.settled()

    def settled(self) -> Reader:
        """Wait until the page has been run, and see that nothing went wrong."""
        from playwright.sync_api import TimeoutError as TookTooLong

        try:
            self.page.wait_for_function(_SETTLED, polling=100, timeout=PATIENCE)
        except TookTooLong:
            why = self.page.evaluate("window.seenWaiting")
            raise AssertionError(
                f"not settled after {PATIENCE} ms: {why}\n{self.wrong}\n{self.text()[:2000]}"
            ) from None
        broken = self.page.get_by_test_id("stException")
        assert broken.count() == 0, broken.first.inner_text()
        assert not self.wrong, "\n".join(self.wrong)
        return self

    def after(self, action: Callable[[], object]) -> Reader:
        """Do *action*, wait until the page or its address is another one, and until that is settled."""
        self.page.evaluate("window.seenBefore = location.href + document.body.innerText")
        action()
        self.page.wait_for_function(
            "window.seenBefore !== location.href + document.body.innerText", polling=50, timeout=PATIENCE
        )
        return self.settled()

    def resized(self, width: int, height: int = 900, scheme: str = "light") -> Reader:
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        self.page.set_viewport_size({"width": width, "height": height})
        return self.settled()

    # -- what is shown

    def main(self) -> Locator:
        return self.page.get_by_test_id("stMain")

    def text(self) -> str:
        """What stands on the page, tables included, of which Chromium draws a picture and keeps the words beside it."""
        return str(self.page.evaluate(WORDS))

    def query(self) -> str:
        return urlsplit(self.page.url).query

    def cut_off(self) -> list[str]:
        """What is wider than the window, or stands outside of it, in words; nothing where all is well.

        A chart follows its window a moment later: it is given that moment.
        """
        from playwright.sync_api import TimeoutError as TookTooLong

        try:
            self.page.wait_for_function(f"() => ({_CUT_OFF})().length === 0", polling=200, timeout=PATIENCE / 4)
        except TookTooLong:
            pass
        return list(self.page.evaluate(_CUT_OFF))


#: All words of a page, those of tables and fields too.
WORDS = """() => {
  const words = [document.title, document.querySelector('[data-testid="stApp"]').innerText];
  for (const cell of document.querySelectorAll('[data-testid="stDataFrame"] table :is(th, td)')) words.push(cell.textContent);
  for (const field of document.querySelectorAll('input, textarea')) if (field.checkVisibility() && field.type !== 'hidden') words.push(field.value);
  return words.join('\\n');
}"""

# A table and a block of code scroll within themselves, which is no fault.
_CUT_OFF = """() => {
  const found = [], width = document.documentElement.clientWidth;
  for (const one of [document.documentElement, document.body, ...document.querySelectorAll('[data-testid="stMain"]')])
    if (one.scrollWidth > one.clientWidth) found.push(`${one.tagName} is ${one.scrollWidth - one.clientWidth} px too wide`);
  for (const one of document.querySelectorAll('[data-testid="stMain"] [data-testid]')) {
    const box = one.getBoundingClientRect();
    if (box.width > 1 && box.right > width + 1 && !one.closest('pre, [data-testid="stDataFrame"], [role="tooltip"]'))
      found.push(`${one.dataset.testid} ends ${Math.round(box.right - width)} px outside: ${one.innerText.slice(0, 60)}`);
  }
  return found.slice(0, 8);
}"""
