"""Matching: which cells are compared, what refuses it, and that no cell is dropped in silence."""

from __future__ import annotations

import pytest

from pytest_coldstart.gate.errors import GateError
from pytest_coldstart.gate.match import check_allow, match
from tests.gate.made import boot, side

EAGER, COMPILED = {"enforce_eager": True}, {"enforce_eager": False}


def test_equal_cells_on_equal_machines_are_paired_whatever_their_versions_and_commits() -> None:
    base = side("base", [boot(1), boot(2)])
    head = side("head", [boot(3, versions={"xllamacpp": "2026.11"})], git_commit="b" * 40, kernel="6.9")
    found = match(base, head)
    assert [(len(pair.base), len(pair.head)) for pair in found.pairs] == [(2, 1)]
    assert (found.refused, found.notes) == ((), ())


@pytest.mark.parametrize(
    ("changed", "reason", "allow"),
    [
        ({"driver": "575.57"}, "driver: 570.86.15 against 575.57; --allow driver compares them all the same", "driver"),
        ({"gpu": "NVIDIA L4"}, "gpu: NVIDIA H200 against NVIDIA L4; --allow gpu compares them all the same", "gpu"),
        ({"gpu": None}, "gpu: NVIDIA H200 against none; --allow gpu compares them all the same", "gpu"),
        (
            {"cores": 48},
            "hardware: AMD EPYC 9654, 96 cores, 768 GiB against AMD EPYC 9654, 48 cores, 768 GiB; --allow hardware "
            "compares them all the same",
            "hardware",
        ),
    ],
)
def test_another_machine_is_refused_until_it_is_allowed(changed: dict[str, object], reason: str, allow: str) -> None:
    base, head = side("base", [boot(1)]), side("head", [boot(2)], **changed)
    found = match(base, head)
    assert not found.pairs
    assert [(item.cell_id, item.tier, item.reason) for item in found.refused] == [("tiny-restart", "restart", reason)]
    allowed = match(base, head, (allow,))
    assert (len(allowed.pairs), allowed.refused) == (1, ())


def test_all_that_differs_is_said_and_all_of_it_must_be_allowed() -> None:
    base = side("base", [boot(1, options={"ctx": 512, "seed": 1})])
    head = side("head", [boot(2, options={"ctx": 1024})], driver="575.57")
    (refusal,) = match(base, head).refused
    assert refusal.reason == (
        "options.ctx: 512 against 1024; options.seed: 1 against not set; driver: 570.86.15 against 575.57; "
        "--allow options.ctx --allow options.seed --allow driver compares them all the same"
    )
    (refusal,) = match(base, head, ("options.ctx", "driver")).refused
    assert refusal.reason == "options.seed: 1 against not set; --allow options.seed compares them all the same"
    assert len(match(base, head, ("options.ctx", "options.seed", "driver")).pairs) == 1


def test_tiers_and_engines_are_never_mixed() -> None:
    base = side("base", [boot(1)])
    tiers = match(base, side("head", [boot(2, tier="pristine")]), ("driver",))
    assert tiers.pairs == ()
    assert tiers.refused[0].reason == "tier: restart against pristine; tiers are never mixed"
    engines = match(base, side("head", [boot(2, engine="vllm")]))
    assert engines.refused[0].reason == "engine: llamacpp against vllm; engines are never mixed"


def test_the_drivers_of_one_side_are_cells_of_their_own() -> None:
    base = side("base", [boot(1)])
    base = type(base)("base", "git:main", (*base.boots, *side("base", [boot(2)], driver="575.57").boots))
    head = side("head", [boot(3)], driver="575.57")
    found = match(base, head)
    assert [[item.record.round for item in pair.base] for pair in found.pairs] == [[2]]
    assert found.notes == ("only the base has llamacpp tiny-restart (1 boot)",)


def test_one_run_s_cells_are_compared_by_a_part_of_their_ids() -> None:
    boots = [
        *(boot(number, cell_id="enforce_eager:true-restart", options=EAGER) for number in (1, 2)),
        *(boot(number, cell_id="enforce_eager:false-restart", options=COMPILED) for number in (3, 4)),
    ]
    base, head = side("base", boots), side("head", boots)
    found = match(base, head, ("options.enforce_eager",), "eager:true", "eager:false")
    assert [[item.record.round for item in half] for half in (found.pairs[0].base, found.pairs[0].head)] == [
        [1, 2],
        [3, 4],
    ]
    refused = match(base, head, (), "eager:true", "eager:false").refused[0].reason
    assert refused.startswith("options.enforce_eager: true against false; --allow options.enforce_eager")
    with pytest.raises(
        GateError, match=r"--head-cell 'lazy' .*the head has: enforce_eager:false-restart, enforce_eager:"
    ):
        match(base, head, (), "eager:true", "lazy")


def test_boots_are_not_compared_with_themselves() -> None:
    found = match(side("base", [boot(1), boot(2)]), side("head", [boot(2), boot(3)]))
    assert found.pairs == ()
    assert found.refused[0].reason == "1 boot is on both sides: boots are not compared with themselves"


def test_a_cell_that_fits_several_is_refused_with_their_ids() -> None:
    base = side("base", [boot(1, options={"ctx": 1})])
    heads = [boot(2, cell_id="a", options={"ctx": 2}), boot(3, cell_id="b", options={"ctx": 3})]
    found = match(base, side("head", heads), ("options.ctx",))
    assert found.pairs == ()
    assert found.refused[0].reason == "it fits several cells: a, b; choose with --base-cell and --head-cell"
    assert found.notes == ("only the head has llamacpp b (1 boot)",)


def test_cells_of_one_side_alone_are_told() -> None:
    base = side("base", [boot(1), boot(2, cell_id="old", model="old")])
    head = side("head", [boot(3), boot(4, cell_id="new", model="new"), boot(5, cell_id="new", model="new")])
    base_only = match(base, side("head", [boot(3)]))
    assert (len(base_only.pairs), base_only.notes) == (1, ("only the base has llamacpp old (1 boot)",))
    both = match(base, head)
    assert len(both.pairs) == 1
    assert both.refused[0].reason == "model: old against new; --allow model compares them all the same"


def test_what_may_be_allowed_is_checked() -> None:
    assert check_allow(["driver, gpu", "options.ctx"]) == ("driver", "gpu", "options.ctx")
    for word in ("divers", "options", "env.", "tier"):
        with pytest.raises(GateError, match=r"valid: driver, gpu, .*options.NAME, env.NAME"):
            check_allow([word])
