from __future__ import annotations

from pathlib import Path

from pytest_coldstart.alerts import text, told
from pytest_coldstart.alerts.finding import FIRES, UNMEASURED, Evaluated, Finding
from pytest_coldstart.alerts.read import Series
from pytest_coldstart.alerts.rules import Failed, Rule
from tests.alerts.conftest import NOW

RULE = Rule("boots fail", Failed(1))


def fires(number: int, state: str = FIRES) -> Finding:
    return Finding(
        Series(f"s-{number}", "vllm", "cell", "t", "m", "restart"), state, "1 of 3 failed", since="r", earlier=True
    )


def test_a_message_names_so_many_and_counts_the_rest() -> None:
    found = [Evaluated(RULE, tuple(map(fires, range(50))))]
    body = text.body(told.news((), told.alerts(found)), Path("/s.duckdb"), NOW)
    lines = body["text"].splitlines()
    assert lines[0] == "cold start alerts: 50 firing"
    assert len(lines) == 22
    assert lines[-1] == "- and 30 more"
    assert len(body["firing"]) == 50


def test_the_gravest_stand_first() -> None:
    info, critical = Rule("a", Failed(1), severity="info"), Rule("b", Failed(1), severity="critical")
    found = [Evaluated(info, (fires(1),)), Evaluated(critical), Evaluated(critical, (fires(2),))]
    assert [(one.rule.name, one.state) for one in text.ordered(found)] == [
        ("b", "fires"),
        ("a", "fires"),
        ("b", "matches nothing"),
    ]
    lines = text.message(told.news((), told.alerts(found))).splitlines()
    assert [line[:12] for line in lines[1:]] == ["- [critical]", "- [info] a: "]


def test_a_line_has_all_that_is_known() -> None:
    assert (
        text.sentence(fires(1, UNMEASURED)) == "vllm | cell | m [s-1]: unmeasured: 1 of 3 failed, since run r or before"
    )


def test_a_long_value_is_cut() -> None:
    one = Finding(Series("s", "vllm", "c" * 5000, "t", "m", "restart"), FIRES, "v")
    (_, line) = text.message(told.news((), told.alerts([Evaluated(RULE, (one,))]))).splitlines()
    assert len(line) < 400
