"""Generated pages and tables are equal to what the code declares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_coldstart.coldness import TIERS
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.markers import _valid
from pytest_coldstart.options import TABLE

ROOT = Path(__file__).parents[2]


def test_the_metrics_page_is_what_the_registry_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_coldstart.metrics"], capture_output=True, text=True, timeout=60, check=True
    )
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert page == done.stdout, "run: python -m pytest_coldstart.metrics > docs/metrics.md"


@pytest.mark.parametrize("name", [row[0] for row in TABLE])
def test_the_readme_names_each_option(name: str) -> None:
    assert f"`--coldstart-{name}" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", _valid().split(", "))
def test_the_page_on_suites_names_each_argument_of_the_marker(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "docs" / "suites.md").read_text("utf-8")


@pytest.mark.parametrize("tier", TIERS)
def test_the_page_on_tiers_names_each_tier(tier: str) -> None:
    assert f"| `{tier}` |" in (ROOT / "docs" / "tiers.md").read_text("utf-8")


@pytest.mark.parametrize("engine", ["llamacpp", "openai"])
def test_the_page_on_engines_names_each_option_of_an_engine(engine: str) -> None:
    page = (ROOT / "docs" / "engines.md").read_text("utf-8")
    for option in EngineRegistry().get(engine).options:
        assert f"`{option}`" in page
