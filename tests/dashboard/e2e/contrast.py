"""How legible the words of a page are, by WCAG 2's formula, computed in the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: What WCAG 2 AA asks of text, and of large text (24 px, or 18.66 px bold).
WANTED, LARGE = 4.5, 3.0

# Disabled controls and icons that only decorate are not asked to be legible by WCAG. The colours of code (.token) are Streamlit's,
# which no theme can change; what they say does not hang on them.
_FAINT = """([wanted, large]) => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parsed = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(n => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
  const behind = element => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const color = parsed(getComputedStyle(one).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  // Words on a mark of a chart, such as a square of a heat map: what lies below them is no ancestor of theirs.
  const marks = (text, below) => {
    const box = text.getBoundingClientRect(), x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
    for (const mark of text.closest('svg').querySelectorAll('.mark-rect path')) {
      const area = mark.getBoundingClientRect(), style = getComputedStyle(mark);
      if (!(mark.compareDocumentPosition(text) & 4) || x < area.left || x > area.right || y < area.top || y > area.bottom) continue;
      const color = style.fill === 'none' ? [0, 0, 0, 0] : parsed(style.fill);
      color[3] *= opacity(mark) * Number(style.fillOpacity);
      below = over(color, below);
    }
    return below;
  };
  const light = color => color.slice(0, 3).map(n => n / 255)
    .map(n => n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4)
    .reduce((sum, n, at) => sum + n * [0.2126, 0.7152, 0.0722][at], 0);
  const opacity = element => {
    let found = 1;
    for (let one = element; one; one = one.parentElement) found *= Number(getComputedStyle(one).opacity);
    return found;
  };
  const found = [];
  for (const element of document.querySelectorAll('[data-testid="stMain"] *, [data-testid="stHeader"] *')) {
    const words = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data).join('').trim();
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (!words || box.width < 2 || box.height < 2 || style.visibility !== 'visible' || style.clip === 'rect(0px, 0px, 0px, 0px)') continue;
    if (element.closest('[disabled], [aria-disabled="true"], [data-testid="stIconMaterial"], .token, canvas, style')) continue;
    if (!element.checkVisibility() || opacity(element) === 0) continue;  // folded, or left out where an axis has no room
    const svg = element instanceof SVGElement, below = svg ? marks(element, behind(element)) : behind(element);
    const color = parsed(svg ? style.fill : style.color);
    color[3] *= opacity(element) * (svg ? Number(style.fillOpacity) : 1);
    const [lighter, darker] = [light(over(color, below)), light(below)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const ratio = (lighter + 0.05) / (darker + 0.05);
    if (ratio < (size >= 24 || (bold && size >= 18.66) ? large : wanted) - 0.005)
      found.push([words.slice(0, 60), ratio, style[svg ? 'fill' : 'color'], `rgb(${below.slice(0, 3).map(Math.round)})`,
                  element.closest('[data-testid]').dataset.testid]);
  }
  return found;
}"""


@dataclass(frozen=True)
class Faint:
    """Words that are too close to their background."""

    words: str
    ratio: float
    color: str
    background: str
    where: str

    def __str__(self) -> str:
        return f"{self.words!r} in {self.where}: {self.ratio:.2f}, {self.color} on {self.background}"


def faint(page: Page) -> list[str]:
    """Each text of *page* whose contrast is below what WCAG 2 AA asks, in words."""
    return [str(Faint(*row)) for row in page.evaluate(_FAINT, [WANTED, LARGE])]
