"""The examples of docs/gate-report.md are what the formats make of one report.

``python -m tests.report.test_gate_report_page`` writes them anew.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_coldstart.report.gate_github import annotations, badge
from pytest_coldstart.report.gate_junit import junit
from pytest_coldstart.report.gate_markdown import comment, markdown
from pytest_coldstart.report.gate_text import text
from tests.report.gate_sample import REPORT

PAGE = Path(__file__).parents[2] / "docs" / "gate-report.md"
EXAMPLES: dict[str, Callable[[], str]] = {
    "text": lambda: "\n".join(text(REPORT, 100)),
    "markdown": lambda: markdown(REPORT).strip(),
    "comment": lambda: comment(REPORT).strip(),
    "junit": lambda: junit(REPORT).strip(),
    "annotations": lambda: "\n".join(annotations(REPORT)),
    "badge": lambda: json.dumps(badge(REPORT)),
}


def block(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<=<!-- {name} -->\n)(?P<open>(?P<fence>```+)\w+\n)(?P<body>.*?)(?P<close>^(?P=fence)$)",
        re.DOTALL | re.MULTILINE,
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_page_is_what_the_format_makes(name: str) -> None:
    match = block(name).search(PAGE.read_text("utf-8"))
    assert match, f"the page has no example {name}"
    assert match["body"].splitlines() == EXAMPLES[name]().splitlines()


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    for name, make in EXAMPLES.items():
        page = block(name).sub(lambda match, make=make: f"{match['open']}{make()}\n{match['close']}", page)  # type: ignore[misc]
    PAGE.write_text(page, "utf-8")
