"""Cells: which ones a marker makes, their ids, and the digests that are their identity in the store."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from pytest_coldstart.cell import Cell
from pytest_coldstart.client import FIRST_PROMPT
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.markers import ColdstartMark, MarkerError
from pytest_coldstart.matrix import MatrixCell, expand

ENGINES = EngineRegistry()


def cells(**arguments: object) -> list[MatrixCell]:
    mark = ColdstartMark("llamacpp", **arguments)  # type: ignore[arg-type]
    return expand(mark, ENGINES.get("llamacpp"))


def ids(**arguments: object) -> list[str]:
    return [item.id for item in cells(**arguments)]


def cell(**fields: object) -> Cell:
    return Cell(**{"engine": "llamacpp", "model": "m", "tier": "restart", **fields})  # type: ignore[arg-type]


# -- which cells, under what ids


def test_a_marker_without_axes_is_one_cell_named_by_its_tier() -> None:
    assert ids() == ["pristine"]
    assert ids(tier="restart") == ["restart"]


def test_axes_multiply_in_the_order_they_were_written_with_the_tier_last() -> None:
    found = ids(matrix={"n_ctx": [512, 1024], "fit": [True, False]}, tier=["pristine", "restart"])
    assert found == [
        f"n_ctx:{n}-fit:{fit}-{tier}"
        for n in (512, 1024)
        for fit in ("true", "false")
        for tier in ("pristine", "restart")
    ]


def test_an_axis_of_one_value_is_not_in_the_id_unless_it_has_a_name() -> None:
    assert ids(matrix={"n_ctx": [512]}) == ["pristine"]
    assert ids(matrix={"n_ctx": [pytest.param(512, id="small")]}) == ["n_ctx:small-pristine"]


def test_the_tier_may_be_an_axis_and_then_stands_where_the_id_has_it() -> None:
    assert ids(matrix={"tier": ["restart", "pristine"], "n_ctx": [1, 2]}) == [
        *("n_ctx:1-restart", "n_ctx:2-restart", "n_ctx:1-pristine", "n_ctx:2-pristine")
    ]


def test_exclude_drops_the_rows_that_match_all_of_a_rule() -> None:
    found = ids(matrix={"n_ctx": [1, 2], "fit": [True, False]}, tier="restart", exclude=[{"n_ctx": 1, "fit": False}])
    assert found == ["n_ctx:1-fit:true-restart", "n_ctx:2-fit:true-restart", "n_ctx:2-fit:false-restart"]


def test_an_exclude_rule_that_matches_nothing_is_a_mistake() -> None:
    with pytest.raises(MarkerError, match=r"exclude=\{'fit': 9\} matches no cell"):
        ids(matrix={"fit": [True, False]}, tier="restart", exclude=[{"fit": 9}])


def test_the_value_of_a_secret_variable_is_in_no_id() -> None:
    (first, second) = ids(matrix={"env.HF_TOKEN": ["swordfish1", "swordfish2"]}, tier="restart")
    assert "swordfish" not in first + second
    assert first != second


def test_include_adds_a_row_that_takes_the_first_value_of_the_axes_it_does_not_name() -> None:
    found = cells(matrix={"n_ctx": [1, 2]}, tier="restart", include=[{"n_threads": 4}])
    assert [item.id for item in found] == ["n_ctx:1-restart", "n_ctx:2-restart", "n_ctx:1-n_threads:4-restart"]
    assert dict(found[-1].cell.options) == {"n_ctx": 1, "n_threads": 4}


def test_axes_reach_options_environment_warmup_and_interpreter() -> None:
    (found,) = cells(
        matrix={"env.OMP_NUM_THREADS": [3], "n_ctx": [64], "warmup": ["prompts"]},
        options={"n_batch": 8, "n_ctx": 1},
        env={"A": "b"},
        tier="restart",
    )
    assert dict(found.cell.options) == {"n_batch": 8, "n_ctx": 64}
    assert dict(found.cell.env) == {"A": "b", "OMP_NUM_THREADS": "3"}
    assert found.cell.warmup["strategy"] == found.warmup.name == "prompts"


def test_a_model_is_named_by_its_file_and_characters_that_k_cannot_take_become_dots(tmp_path: Path) -> None:
    paths = [tmp_path / "a model (q4).gguf", tmp_path / "other.gguf"]
    assert ids(matrix={"model": paths}, tier="restart") == [
        "model:a.model.q4..gguf-restart",
        "model:other.gguf-restart",
    ]


def test_a_named_value_of_a_general_axis_stands_alone(tmp_path: Path) -> None:
    found = cells(matrix={"model": [pytest.param(tmp_path / "x.gguf", id="tiny")]}, tier="restart")
    assert found[0].id == "tiny-restart"
    assert found[0].cell.content()["model"] == "tiny"


def test_marks_of_an_axis_value_are_on_its_cells_alone() -> None:
    slow = pytest.mark.xfail(reason="slow")
    found = cells(matrix={"n_ctx": [1, pytest.param(2, marks=slow)]}, tier=["restart", "pristine"])
    assert [[mark.name for mark in item.marks] for item in found] == [[], [], ["xfail"], ["xfail"]]


def test_true_and_1_are_two_values() -> None:
    """They compare equal in Python, and an engine takes them differently."""
    found = cells(matrix={"fit": [True, False]}, options={"n_ctx": 1}, tier="restart")
    assert len({item.cell.digest for item in found}) == 2
    assert cell(options={"a": True}).digest != cell(options={"a": 1}).digest


def test_two_cells_that_are_the_same_are_refused() -> None:
    with pytest.raises(MarkerError, match="two cells are the same: 'n_ctx:1-restart' and 'n_ctx:1-restart'"):
        cells(matrix={"n_ctx": [1, 1]}, tier="restart")


# -- identity


def test_the_digest_is_a_hash_of_the_documented_content() -> None:
    """Written out here: a change of it would begin a new series for every cell there is."""
    prompt = hashlib.sha256(FIRST_PROMPT.encode()).hexdigest()[:16]
    content = {
        "command": [],
        "engine": "llamacpp",
        "env": {"A": "1"},
        "model": "m",
        "options": {"n_ctx": 512},
        "python": None,
        "requests": {"first": f"{prompt}/16", "count": 11, "words": [32]},
        "tier": "restart",
        "warmup": {"strategy": "none"},
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    expected = hashlib.sha256(text.encode()).hexdigest()[:12]
    requests = {"words": [32], "count": 11}
    assert cell(options={"n_ctx": 512}, env={"A": "1"}, requests=requests).digest == expected


def test_identity_does_not_depend_on_the_order_in_which_options_are_written() -> None:
    one = cell(options={"n_ctx": 1, "n_batch": 2}, env={"A": "1", "B": "2"}, warmup={"strategy": "x", "a": 1})
    two = cell(options={"n_batch": 2, "n_ctx": 1}, env={"B": "2", "A": "1"}, warmup={"a": 1, "strategy": "x"})
    assert (one.digest, one.base_digest) == (two.digest, two.base_digest)


def test_identity_does_not_depend_on_where_a_value_was_written_or_how_it_is_called() -> None:
    """As an axis, as an option, in another test: the same cell has the same series."""
    (axis,) = cells(matrix={"n_ctx": [512]}, tier="restart")
    (option,) = cells(options={"n_ctx": 512}, tier="restart")
    (named,) = cells(matrix={"n_ctx": [pytest.param(512, id="small")]}, tier="restart")
    assert axis.cell.digest == option.cell.digest == named.cell.digest
    assert len({axis.id, named.id}) == 2


@pytest.mark.parametrize(
    "change",
    [
        *({"engine": "openai"}, {"model": "n"}, {"tier": "pristine"}, {"options": {"n_ctx": 1}}, {"env": {"A": "1"}}),
        *({"python": "/usr/bin/python3"}, {"command": ("serve",)}, {"warmup": {"strategy": "prompts"}}),
        {"requests": {"count": 5}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_a_boot_makes_another_cell(change: dict[str, object]) -> None:
    assert cell(**change).digest != cell().digest


def test_tiers_share_their_caches_and_nothing_else_does() -> None:
    """restart must find what pristine filled."""
    assert cell(tier="restart").base_digest == cell(tier="pristine").base_digest
    assert cell().at("pristine").digest == cell(tier="pristine").digest != cell().digest
    assert cell(options={"n_ctx": 1}).base_digest != cell().base_digest


def test_how_many_requests_are_timed_changes_the_numbers_and_not_the_caches() -> None:
    assert cell(requests={"count": 5}).base_digest == cell().base_digest


def test_a_model_at_another_place_is_the_same_cell_with_caches_of_its_own() -> None:
    one, two = cell(model="/here/m.gguf"), cell(model="/there/m.gguf")
    assert one.digest == two.digest == cell(model="m.gguf").digest
    assert one.base_digest != two.base_digest


def test_of_a_hub_name_the_owner_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models of one name are two; a folder of that name is a path, as adapters take it."""

    def digest(model: str) -> str:
        mark = ColdstartMark("openai", command=("serve", "{port}"), model=model)
        return expand(mark, ENGINES.get("openai"))[0].cell.digest

    assert len({digest("a/tiny"), digest("b/tiny"), digest("tiny")}) == 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "tiny").mkdir(parents=True)
    assert digest("a/tiny") == digest("/elsewhere/tiny") == digest("tiny")


def test_a_named_interpreter_is_the_same_cell_wherever_it_lies() -> None:
    one = cell(python="/a/bin/python", labels={"python": "torch-2.9"})
    two = cell(python="/b/bin/python", labels={"python": "torch-2.9"})
    assert one.digest == two.digest
    assert one.digest != dataclasses.replace(two, labels={}).digest
