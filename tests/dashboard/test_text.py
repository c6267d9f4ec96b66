"""Words of the pages."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dashboard import text
from dashboard.data.series import Reading
from pytest_coldstart.metrics import METRICS

NOW = datetime(2026, 11, 2, 12)


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (Reading(2.0), "2.00 s"),
        (Reading(0.0), "0 ms"),
        (Reading(None, "killed", failed=True), "failed: killed"),
        (Reading(None, "not seen"), "unmeasured: not seen"),
        (Reading(None), "unmeasured: no reason is stored"),
    ],
)
def test_what_nobody_measured_is_no_number(reading: Reading, words: str) -> None:
    assert text.reading(reading, METRICS["cold_start"]) == words


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (7300, "2 h ago"),
        (86400 * 3 + 5, "3 d ago"),
        (-5, "just now"),
    ],
)
def test_an_age_is_whole_and_rounded_down(ago: float, words: str) -> None:
    assert text.age(NOW - timedelta(seconds=ago), NOW) == words


def test_a_time_that_is_unknown_says_so() -> None:
    assert (text.age(None, NOW), text.moment(None)) == ("time unknown", "time unknown")
    assert text.moment(NOW) == "2026-11-02 12:00:00 UTC"
    assert text.span(30) == "under 1 min"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((None, "main", True), "unknown"),
        (("0123456789abcdef", None, None), "0123456789"),
        (("0123456789abcdef", "main", True), "0123456789 (main, dirty)"),
    ],
)
def test_a_commit(given: tuple[str | None, str | None, bool | None], words: str) -> None:
    assert text.commit(*given) == words


def test_versions_are_sorted() -> None:
    assert (text.versions({"b": "2", "a": "1"}), text.versions({})) == ("a 1, b 2", "unknown")


@pytest.mark.parametrize(
    "hostile",
    ["[x](http://e.org)", "<b>", "*a* _b_ `c` $d$ :red[e] ~f~ #g |h| !i &amp; \\j", ":material/home:", "a\nb"],
)
def test_plain_words_keep_every_sign_and_mean_nothing_to_markdown(hostile: str) -> None:
    made = text.plain(hostile)
    assert "\n" not in made
    kept, rest = [], iter(made)
    for sign in rest:
        assert sign not in "`*_{}[]()<>#+-.!|~:$&/"
        kept.append(next(rest) if sign == "\\" else sign)
    assert "".join(kept) == hostile.replace("\n", " ")


@pytest.mark.parametrize("hostile", ["a\r\r    b", "\t a \u2028 b", "    a\n\n\tb  "])
def test_plain_words_are_one_line_that_begins_no_code(hostile: str) -> None:
    assert text.plain(hostile) == "a b"
