"""The requests of a boot as points."""

from __future__ import annotations

from typing import Any

from dashboard.charts import requests
from pytest_coldstart.record import Request
from tests.dashboard.layers import layers

FOUND = (
    Request("first", 0, 1.0, 1.25, 1.25, 2.0),
    Request("warm", 0, 3.0, 3.05, None, 3.5),
    Request("warm", 1, 4.0, 4.15, None, 4.5),
    Request("warm", 2, 5.0, error="reset <b>by</b> peer\x00"),
)


def both(name: str) -> list[dict[str, Any]]:
    """The layer of points, and that of requests without a value."""
    return layers(requests.requests(FOUND, name))


def test_each_request_is_a_point_by_its_kind_in_the_unit_of_the_caption() -> None:
    points, missing = both("time to first token")
    found = [(row["kind"], row["sent"], round(row["value"])) for row in points["rows"]]
    assert found == [("first", 1.0, 250), ("warm", 3.0, 50), ("warm", 4.0, 150)]
    assert requests.captioned(FOUND, "time to first token") == "time to first token (ms)"
    assert [row["error"] for row in missing["rows"]] == ["reset <b>by</b> peer\\x00"]


def test_the_duration_is_until_the_answer_was_whole() -> None:
    points, missing = both("duration")
    assert [row["duration"] for row in points["rows"]] == ["1.00 s", "500 ms", "500 ms"]
    assert [row["duration"] for row in missing["rows"]] == ["-"]


def test_kinds_differ_in_colour_and_shape() -> None:
    points, _ = both("duration")
    encoding = points["encoding"]
    assert encoding["color"]["scale"]["domain"] == encoding["shape"]["scale"]["domain"] == ["first", "warm"]
    assert len(set(encoding["color"]["scale"]["range"])) == len(set(encoding["shape"]["scale"]["range"])) == 2


def test_the_words_count_each_kind_and_those_without_a_value() -> None:
    words = requests.requests(FOUND, "time to first token").to_dict()["description"]
    assert words == (
        "Time to first token of the boot's requests by when they were sent. 1 first: median 250 ms, at most 250 ms; 3 warm: "
        "median 100 ms, at most 150 ms, 1 without one."
    )


def test_a_boot_whose_requests_all_failed_is_drawn_and_says_so() -> None:
    words = requests.requests(FOUND[3:], "duration").to_dict()["description"]
    assert words == "Duration of the boot's requests by when they were sent. 1 warm: unmeasured."


def test_of_very_many_the_first_are_drawn_and_the_words_say_so() -> None:
    many = [Request("warm", n, float(n), n + 0.5, None, n + 1.0) for n in range(2500)]
    chart = requests.requests(many, "duration")
    assert len(layers(chart)[0]["rows"]) == requests.MOST
    assert chart.to_dict()["description"].endswith("The first 2,000 of 2,500 are drawn.")
