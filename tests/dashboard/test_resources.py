"""What a boot used over its time: lines, rates, gaps, reasons."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.charts import resources
from dashboard.charts.resources import Panel
from dashboard.charts.waterfall import Span
from pytest_coldstart.memory import GPU, Series
from tests.dashboard.layers import coloured

SPAN = Span(0.0, 10.0)
GPUS = (
    GPU(
        0, "a", "H200", total_bytes=150_000_000_000, series=Series((1.0, 2.0, 3.0), {"memory_used": (1e9, None, 9e10)})
    ),
    GPU(1, "b", "H200", series=Series((1.0, 2.0), {"memory_used": (2e9, 3e9), "gpu_utilisation": (50.0, 100.0)})),
)
USAGE = Series(
    (1.0, 2.0, 4.0),
    {"rss": (1e9, 2e9, 3e9), "cpu_time": (0.5, 1.5, 5.5), "read_bytes": (0, None, 4e8), "written_bytes": (0, 0, 1e6)},
)


def drawn(chart: Any) -> list[dict[str, Any]]:
    return list(coloured(chart)["rows"])


def test_each_quantity_is_a_panel_with_a_line_for_each_device() -> None:
    found = {item.title: item for item in resources.panels(GPUS, USAGE)}
    assert list(found) == [
        *("GPU memory in use", "GPU busy", "CPU of the tree, cores", "storage read and written by the tree"),
        "resident memory of the tree",
    ]
    assert found["GPU memory in use"].lines == {
        "GPU 0": ((1.0, 1e9), (2.0, None), (3.0, 9e10)),
        "GPU 1": ((1.0, 2e9), (2.0, 3e9)),
    }
    assert found["GPU memory in use"].limits == {"GPU 0, whole": 150e9}
    assert found["GPU busy"].lines == {"GPU 1": ((1.0, 0.5), (2.0, 1.0))}
    assert {item.why for item in found.values()} == {""}


def test_sums_become_rates_from_one_sample_to_the_next() -> None:
    found = {item.title: item for item in resources.panels(GPUS, USAGE)}
    assert found["CPU of the tree, cores"].lines == {"cores": ((2.0, 1.0), (4.0, 2.0))}
    moved = found["storage read and written by the tree"].lines
    assert moved == {"read": ((2.0, None), (4.0, None)), "written": ((2.0, 0.0), (4.0, 500_000.0))}


def test_two_samples_of_one_moment_and_a_sum_that_shrank_give_no_rate_that_cannot_be() -> None:
    assert resources.rate(((1.0, 1.0), (1.0, 2.0), (2.0, 1.0))) == ((2.0, 0.0),)


def test_what_was_not_sampled_says_why_and_is_never_zero() -> None:
    found = resources.panels((), Series())
    assert [(item.lines, item.why) for item in found] == [
        ({}, resources.NO_GPU),
        *[({}, resources.NO_TREE)] * 3,
    ]
    device = resources.panels((GPU(0, "a", "H200"),), Series())[0]
    assert (device.lines, device.limits, device.why) == ({}, None, resources.NO_SAMPLES)


def test_a_gap_stays_a_gap_in_the_line() -> None:
    rows = drawn(resources.panel(resources.panels(GPUS, USAGE)[0], {}, SPAN))
    assert [(row["line"], row["at"], row["value"], row["shown"]) for row in rows] == [
        *(("GPU 0", "1.00 s", 1.0, "1 GB"), ("GPU 0", "2.00 s", None, "-"), ("GPU 0", "3.00 s", 90.0, "90 GB")),
        *(("GPU 1", "1.00 s", 2.0, "2 GB"), ("GPU 1", "2.00 s", 3.0, "3 GB")),
    ]


def test_the_caption_has_the_unit_in_which_the_line_is_drawn() -> None:
    memory, busy, cpu, *_ = resources.panels(GPUS, USAGE)
    assert resources.captioned(memory, SPAN) == "GPU memory in use (GB)"
    assert resources.captioned(busy, SPAN) == "GPU busy (%)"
    assert resources.captioned(cpu, SPAN) == "CPU of the tree, cores"


def test_samples_outside_the_axis_are_not_drawn() -> None:
    rows = drawn(resources.panel(resources.panels(GPUS, USAGE)[0], {}, Span(0.0, 1.5)))
    assert [(row["line"], row["begin"]) for row in rows] == [("GPU 0", 1.0), ("GPU 1", 1.0)]


@pytest.mark.parametrize("count", [600, 601, 4000])
def test_of_many_samples_the_largest_of_each_stretch_is_drawn(count: int) -> None:
    points = tuple((float(n), 1.0 if n != count // 2 else 9.0) for n in range(count))
    found = resources.thinned(points)
    assert len(found) <= resources.POINTS
    assert (float(count // 2), 9.0) in found


def test_the_words_name_the_peaks_the_limits_and_what_is_unmeasured() -> None:
    memory = resources.panel(resources.panels(GPUS, USAGE)[0], {}, SPAN).to_dict()["description"]
    assert memory == (
        "GPU memory in use from 0 ms to 10.00 s: GPU 0 at most 90 GB, at 3.00 s; GPU 1 at most 3 GB, at 2.00 s; "
        "GPU 0, whole 150 GB."
    )
    none = Panel("x", "B", {"GPU 0": ((1.0, None),)})
    assert resources.panel(none, {}, SPAN).to_dict()["description"] == "x from 0 ms to 10.00 s: GPU 0 unmeasured."


def test_lines_are_told_apart_by_dashes_too() -> None:
    dash = coloured(resources.panel(resources.panels(GPUS, USAGE)[0], {}, SPAN))["encoding"]["strokeDash"]["scale"]
    assert dash["domain"] == ["GPU 0", "GPU 1"]
    assert dash["range"][0] != dash["range"][1]
