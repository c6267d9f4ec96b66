"""Every example of the docs that names a file is collected; the third-party engine is booted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^```python\n# file: (?P<name>[\w./-]+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(\w*)$", re.MULTILINE)


def examples(page: Path) -> dict[str, str]:
    """The files that a page's python blocks name."""
    found: dict[str, str] = {}
    for match in _BLOCK.finditer(page.read_text("utf-8")):
        assert match["name"] not in found, f"{page.name} has two blocks for {match['name']}"
        found[match["name"]] = match["code"]
    return found


def write(page: Path, folder: Path) -> list[str]:
    """Write the page's files into *folder*; returns the names of those that pytest collects."""
    files = examples(page)
    for name, code in files.items():
        (folder / name).write_text(code, "utf-8")
    return sorted(name for name in files if name.startswith("test_"))


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With no plugin but ours: what the test environment happens to have would triple the time to start."""
    command = [sys.executable, "-m", "pytest", "-p", "coldstart", "--coldstart", "-p", "no:cacheprovider", *words]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_fences_of_a_page_are_balanced_and_name_a_language(page: Path) -> None:
    fences = _FENCE.findall(page.read_text("utf-8"))
    assert len(fences) % 2 == 0
    assert all(fences[0::2])
    assert not any(fences[1::2])


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_suites_of_a_page_are_collected(page: Path, tmp_path: Path) -> None:
    suites = write(page, tmp_path)
    for name in examples(page):
        compile((tmp_path / name).read_text("utf-8"), name, "exec")
    if not suites:
        return
    done = run_pytest(tmp_path, "--collect-only", "-q", ".")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in suites:
        assert f"{name}::" in done.stdout


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_third_party_engine_boots(tmp_path: Path) -> None:
    write(ROOT / "docs" / "engines.md", tmp_path)
    done = run_pytest(tmp_path, "--coldstart-rounds=1", "-v", "test_tiny.py", "test_any_command.py", "-k", "not 200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_tiny.py::test_tiny[load_ms:0-restart] PASSED" in done.stdout
    assert "test_any_command.py::test_any_command[restart] PASSED" in done.stdout
    assert "2 cells judged" in done.stdout


def set_up_commands() -> list[str]:
    section = (ROOT / "README.md").read_text("utf-8").partition("\n## Set up\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_set_up_holds_two_commands_of_one_line_each() -> None:
    commands = set_up_commands()
    assert [command.count("\n") for command in commands] == [1, 1]


def test_ci_runs_the_second_command_of_the_readme() -> None:
    second = set_up_commands()[1].strip()
    done = subprocess.run([ROOT / ".ci" / "run", "--print"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == second
    assert f"run: {second}\n" in (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert f"```sh\n{second}\n```" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
