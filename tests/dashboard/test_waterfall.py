"""The waterfall as data: rows, lanes, rules, words."""

from __future__ import annotations

import dataclasses
from typing import Any

from dashboard.charts import palette, waterfall
from dashboard.charts.waterfall import PATH, Span
from pytest_coldstart.attribution import Process
from pytest_coldstart.record import Phase
from tests.dashboard.layers import coloured, layers

PHASES = (
    Phase("spawn", 0.0, 0.5, "proc", "server"),
    Phase("imports", 0.5, 6.0, "probe", "server", "torch"),
    Phase("load_weights", 6.0, 9.0, "log", "EngineCore", "shards"),
    Phase("unattributed", 9.0, 9.5, "probe gap", "EngineCore"),
    Phase("first_request", 9.5, 10.0, "client"),
)
SERVER, CORE = Process(7, 1, "server", 0.0), Process(8, 7, "EngineCore", 2.0, 9.75)
INSTANTS = {"start": 0.0, "listen": 5.0, "first_token": 9.9, "first_text": 9.91, "stopped": 30.0}
SPAN = Span(0.0, 10.0)


def drawn(chart: Any) -> list[dict[str, Any]]:
    """The rows of every layer."""
    return [row for part in layers(chart) for row in part["rows"]]


def bars(chart: Any) -> list[tuple[str, str, float, float]]:
    return [(row["lane"], row["phase"], row["begin"], row["end"]) for row in coloured(chart)["rows"]]


def test_the_path_is_one_row_and_each_process_has_its_part_in_its_own_lane() -> None:
    found = bars(waterfall.waterfall(PHASES, (SERVER, CORE), INSTANTS, SPAN))
    assert [bar for bar in found if bar[0] == PATH] == [
        *((PATH, "imports", 0.5, 6.0), (PATH, "load_weights", 6.0, 9.0)),
        *((PATH, "spawn", 0.0, 0.5), (PATH, "unattributed", 9.0, 9.5), (PATH, "first_request", 9.5, 10.0)),
    ]
    assert {bar[1] for bar in found if bar[0] == "server"} == {"spawn", "imports"}
    assert {bar[1] for bar in found if bar[0] == "EngineCore"} == {"load_weights", "unattributed"}


def test_a_process_without_a_lane_is_on_the_path_alone() -> None:
    found = bars(waterfall.waterfall(PHASES, (SERVER,), INSTANTS, SPAN))
    assert {bar[0] for bar in found} == {PATH, "server"}
    assert len([bar for bar in found if bar[0] == PATH]) == len(PHASES)


def test_unattributed_time_has_a_pattern_and_not_a_colour_alone() -> None:
    found = layers(waterfall.waterfall(PHASES, (SERVER,), INSTANTS, SPAN))
    (dashed,) = [part for part in found if part["mark"].get("fillOpacity") == 0]
    assert [row["phase"] for row in dashed["rows"]] == ["unattributed"]


def test_phases_have_their_colours_in_the_order_of_a_usual_path() -> None:
    scale = coloured(waterfall.waterfall(PHASES, (), INSTANTS, SPAN))["encoding"]["color"]["scale"]
    assert scale["domain"] == ["spawn", "imports", "load_weights", "first_request", "unattributed"]
    assert scale["range"] == [palette.phase(name) for name in scale["domain"]]


def test_a_process_is_drawn_from_its_start_to_its_end_or_as_far_as_it_was_seen() -> None:
    rows = [row for row in drawn(waterfall.waterfall((), (SERVER, CORE), {}, SPAN)) if "pid" in row]
    assert [(row["lane"], row["begin"], row["end"], row["to"]) for row in rows] == [
        ("server", 0.0, 10.0, "not seen to end"),
        ("EngineCore", 2.0, 9.75, "9.75 s"),
    ]


def test_instants_that_cannot_be_told_apart_are_one_and_those_outside_are_none() -> None:
    assert [(names, at) for names, at, _ in waterfall.marks(INSTANTS, SPAN)] == [
        *(("start", 0.0), ("listen", 5.0), ("first_token, first_text", 9.9)),
    ]
    rows = drawn(waterfall.labels(INSTANTS, SPAN))
    assert {row["label"] for row in rows if "label" in row} == {"start 0 ms", "listen 5.00 s", "first_token, first_..."}


def test_what_is_selected_is_a_band_inside_the_axis() -> None:
    chart = waterfall.waterfall(PHASES, (), INSTANTS, dataclasses.replace(SPAN, selected=(6.0, 12.0)))
    (row,) = layers(chart)[0]["rows"]
    assert (row["begin"], row["end"]) == (6.0, 10.0)


def test_all_charts_of_a_boot_have_one_axis() -> None:
    charts = (waterfall.waterfall(PHASES, (SERVER,), INSTANTS, SPAN), waterfall.labels(INSTANTS, SPAN))
    for chart in charts:
        domains = [part["encoding"]["x"]["scale"]["domain"] for part in chart.to_dict()["layer"]]
        assert domains == [[0.0, 10.0]] * len(domains)


def test_the_words_say_what_is_drawn() -> None:
    words = waterfall.waterfall(PHASES, (SERVER, CORE), INSTANTS, SPAN).to_dict()["description"]
    assert words == (
        "Waterfall of the boot from 0 ms to 10.00 s. Phases of the critical path, the longest first: imports 5.50 s, load_weights "
        "3.00 s, spawn 500 ms, unattributed 500 ms, first_request 500 ms. Processes: server, EngineCore. Instants: start 0 ms, "
        "listen 5.00 s, first_token, first_text 9.90 s."
    )


def test_a_boot_of_which_nothing_is_known_is_drawn() -> None:
    spec = waterfall.waterfall((), (), {}, SPAN).to_dict()
    assert "none is known" in spec["description"]
    assert waterfall.labels({}, SPAN).to_dict()["description"] == "Instants of the boot: none."


def test_hostile_names_are_rows_and_never_expressions() -> None:
    name = "x\x00</script> **b** datum['y']"
    shown = "x\\x00</script> **b** datum['y']"
    chart = waterfall.waterfall(
        (Phase(name, 0.0, 1.0, name, name, name),), (Process(1, 0, name, 0.0),), {name: 0.5}, SPAN
    )
    found = bars(chart)
    assert [(bar[0], bar[1]) for bar in found] == [(PATH, shown), (shown, shown)]
    assert "\x00" not in str(chart.to_dict())


def test_a_process_cannot_take_the_row_of_the_path() -> None:
    found = bars(
        waterfall.waterfall((Phase("imports", 0.0, 1.0, "probe", PATH),), (Process(1, 0, PATH, 0.0),), {}, SPAN)
    )
    assert [bar[0] for bar in found] == [PATH, f"{PATH} (process)"]


def test_of_very_many_pieces_the_longest_are_drawn() -> None:
    many = [Phase("imports", n * 0.001, (n + 1) * 0.001, "probe") for n in range(3000)]
    found = bars(waterfall.waterfall([*many, Phase("compile", 3.0, 9.0, "log")], (), {}, SPAN))
    assert len(found) == waterfall.PIECES
    assert found[0][1] == "compile"
