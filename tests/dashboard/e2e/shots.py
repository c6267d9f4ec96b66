"""Pictures of the pages for the docs, of made-up boots: ``python -m tests.dashboard.e2e.shots [PAGE...]``."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

from dashboard.frame import PAGES
from tests.dashboard.e2e.conftest import QUIET, VARIABLE
from tests.dashboard.e2e.reader import Reader
from tests.dashboard.e2e.server import served

FOLDER = Path(__file__).parents[3] / "docs" / "screenshots"

#: Name of the picture, page, width, height, theme.
SHOTS = (
    *((page, page, 1280, 1900 if page == "boot" else 900, "light") for page in PAGES),
    ("boot-dark", "boot", 1280, 900, "dark"),
    ("trend-dark", "trend", 1280, 900, "dark"),
    ("overview-narrow", "overview", 390, 844, "light"),
    ("boot-narrow", "boot", 390, 844, "light"),
)
#: Colours of a picture, and the most bytes that it may have.
_COLOURS, _MOST = 96, 200_000


def main(wanted: list[str]) -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), "--demo") as server,
        sync_playwright() as playwright,
    ):
        program = os.environ.get(VARIABLE) or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=program, args=list(QUIET))
        for name, page, width, height, scheme in SHOTS:
            if wanted and page not in wanted:
                continue
            size = {"width": width, "height": height}
            context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            reader = Reader.of(context).open(server, page)
            picture = Image.open(io.BytesIO(reader.page.screenshot())).convert("RGB")
            context.close()
            path = FOLDER / f"{name}.png"
            picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
            bytes = path.stat().st_size
            print(f"{path.name}: {bytes} B")
            assert bytes <= _MOST, f"{path.name} is too large"
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
