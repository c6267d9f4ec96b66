"""The waterfall: what its rows say, where its bars stand, and that nothing is lost when rows are folded."""

from __future__ import annotations

import random
import re

import pytest

from pytest_coldstart.record import Phase
from pytest_coldstart.report.columns import fit, pad, table, width_of, wrapped
from pytest_coldstart.report.waterfall import waterfall

#: A boot of 70 s, as on an H200 with everything cached.
PATH = (
    Phase("spawn", 0.0, 0.04, "proc", "server"),
    Phase("imports", 0.04, 12.0, "probe", "server", "torch"),
    Phase("imports", 12.0, 20.0, "probe", "server", "vllm"),
    Phase("imports", 20.0, 38.0, "probe", "EngineCore", "torch"),
    Phase("load_weights", 38.0, 40.0, "probe", "EngineCore", "safetensors"),
    Phase("compile", 40.0, 46.0, "probe", "EngineCore", "AOT load"),
    Phase("compile", 46.0, 46.05, "probe", "ninja"),
    Phase("compile", 46.05, 53.0, "probe", "EngineCore", "AOT load"),
    Phase("unattributed", 53.0, 68.6, "probe", "EngineCore"),
    Phase("first_request", 68.6, 70.0, "client"),
)

ROW = re.compile(r"^(?P<phase>\w+) +(?P<bar>[.#?]+) +(?P<seconds>[\d.]+ \w+) +(?P<share>[\d.]+)%(?: (?P<rest>.*))?$")


def rows(phases: tuple[Phase, ...], width: int = 100) -> list[re.Match[str]]:
    title, *lines = waterfall(phases, width)
    assert title.split()[0] == "phase"
    found = [ROW.match(line) for line in lines]
    assert all(found), lines
    return [match for match in found if match]


def test_stretches_of_one_phase_and_process_are_one_row_and_small_ones_are_in_their_neighbours() -> None:
    found = rows(PATH)
    assert [(row["phase"], row["seconds"], row["share"]) for row in found] == [
        ("imports", "20.00 s", "28.6"),
        ("imports", "18.00 s", "25.7"),
        ("load_weights", "2.00 s", "2.9"),
        ("compile", "13.00 s", "18.6"),
        ("unattributed", "15.60 s", "22.3"),
        ("first_request", "1.40 s", "2.0"),
    ]
    assert (found[0]["rest"] or "").split() == ["server", "torch,", "vllm,", "and", "others", "(40", "ms)"]
    assert (found[3]["rest"] or "").split() == ["EngineCore", "AOT", "load,", "and", "others", "(50", "ms)"]


def test_a_bar_stands_where_its_time_is_and_a_question_mark_draws_what_nothing_explains() -> None:
    found = rows(PATH)
    for row in found:
        assert set(row["bar"]) <= ({".", "?"} if row["phase"] == "unattributed" else {".", "#"})
    width = len(found[0]["bar"])
    weights, silent = found[2]["bar"], found[4]["bar"]
    assert weights.index("#") == int(38 / 70 * width)
    assert (silent.index("?"), silent.rindex("?") + 1) == (int(53 / 70 * width), round(68.6 / 70 * width))
    assert found[-1]["bar"].endswith("#")


def test_rows_follow_each_other_and_the_shares_add_up_whatever_is_folded() -> None:
    source = random.Random(4)
    at, phases = 0.0, []
    for _ in range(400):
        seconds = source.choice([0.003, 0.05, 0.2, 1.5])
        name = source.choice(["imports", "compile", "unattributed"])
        phases.append(Phase(name, at, at + seconds, "probe", source.choice(["server", "core"])))
        at += seconds
    found = rows(tuple(phases))
    assert 2 <= len(found) <= 24
    assert sum(float(row["share"]) for row in found) == pytest.approx(100, abs=0.05 * len(found))
    begins = [re.search(r"[#?]", row["bar"]) for row in found]
    assert [match.start() for match in begins if match] == sorted(match.start() for match in begins if match)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_asked_with_names_of_any_alphabet_and_control_characters(width: int) -> None:
    odd = Phase("compile", 70.0, 90.0, "probe", "arbeiter \x1b[31m rot", "模型加载 " * 30 + "\n\x07 e\u0301 \u202e")
    lines = waterfall((*PATH, odd), width)
    assert max(map(width_of, lines)) <= width
    assert all(char.isprintable() for line in lines for char in line)


def test_no_path_draws_nothing_and_one_phase_fills_its_bar() -> None:
    assert waterfall(()) == []
    assert waterfall((Phase("imports", 1.0, 1.0, "probe"),)) == []
    (row,) = rows((Phase("unattributed", 0.0, 3.0, "client"),))
    assert set(row["bar"]) == {"?"}
    assert (row["seconds"], row["share"]) == ("3.00 s", "100.0")


# -- columns


def test_wide_and_combining_characters_are_counted_as_a_terminal_does() -> None:
    assert [width_of(text) for text in ("abc", "模型", "e\u0301")] == [3, 4, 1]
    assert fit("模型加载", 7) == "模型..."
    assert pad("模", 4) == "模  "
    assert pad("7", 3, right=True) == "  7"


def test_control_characters_are_shown_and_not_sent() -> None:
    assert fit("a\x1b[2Jb\tc\nd\u202e", 80) == "a\\x1b[2Jb c d\\u202e"


def test_a_table_gives_up_its_widest_column_first() -> None:
    lines = table(("name", "n", "text"), [("a", "1", "x" * 50), ("bb", "22", "y")], 30, numbers=(1,))
    assert lines == ["name   n  text", f"a      1  {'x' * 17}...", "bb    22  y"]


def test_wrapped_lines_are_indented_and_keep_to_the_width() -> None:
    lines = wrapped("one two three four five six seven eight nine ten", 24)
    assert lines[0].startswith("  one")
    assert all(line.startswith("    ") for line in lines[1:])
    assert max(map(len, lines)) <= 24
