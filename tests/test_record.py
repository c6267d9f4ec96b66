"""A boot's record is plain data: JSON and back gives the same record."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pytest_coldstart.attribution import Attribution
from pytest_coldstart.record import BootRecord, Evidence, FileResidency, Request
from tests.store.samples import FULL


def test_every_field_survives_json() -> None:
    for field in dataclasses.fields(FULL):
        default = field.default if field.default is not dataclasses.MISSING else None
        assert getattr(FULL, field.name) not in (default, (), {}), f"the sample leaves {field.name} empty"
    assert BootRecord.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL


def test_a_record_with_nothing_optional_survives_json() -> None:
    bare = BootRecord("b", "r", "n", "c", {}, "d", "e", "openai", "restart", "measured", 1, "ok", "2026-01-01")
    assert BootRecord.from_dict(json.loads(json.dumps(bare.to_dict()))) == bare


def test_keys_of_a_later_version_are_ignored_and_missing_optional_ones_default() -> None:
    data = json.loads(json.dumps(FULL.to_dict()))
    data["invented_later"] = {"x": 1}
    for name in ("phases", "requests", "caches", "usage", "load_average", "environment"):
        del data[name]
    found = BootRecord.from_dict(data)
    assert (found.phases, found.requests, found.caches, found.environment) == ((), (), (), {})
    assert found.boot_id == FULL.boot_id


def test_reading_leaves_the_data_as_it_was() -> None:
    data = json.loads(json.dumps(FULL.to_dict()))
    before = json.dumps(data)
    BootRecord.from_dict(data)
    assert json.dumps(data) == before


@pytest.mark.parametrize(
    ("role", "outcome", "counted"),
    [
        *(("measured", "ok", True), ("measured", "failed", True), ("measured", "error", False)),
        *(("prime", "ok", False), ("prime", "failed", False)),
    ],
)
def test_measured_boots_count_unless_they_say_nothing_about_their_cell(role: str, outcome: str, counted: bool) -> None:
    assert dataclasses.replace(FULL, role=role, outcome=outcome).counted is counted


def test_the_time_to_first_token_counts_from_the_sending() -> None:
    assert Request("warm", 0, sent=3.0, first_token=3.25).ttft == 0.25
    assert Request("warm", 0, sent=3.0).ttft is None


def test_residency_is_the_share_of_all_bytes_and_unknown_where_one_file_is() -> None:
    def file(size: int, resident: int | None) -> FileResidency:
        return FileResidency("/w", size, resident, "ext4", "proved")

    assert Evidence(weights=(file(300, 300), file(100, 0))).resident_fraction == 0.75
    assert Evidence(weights=(file(300, 300), file(100, None))).resident_fraction is None
    assert Evidence().resident_fraction is None


def test_a_record_of_version_1_is_read_with_what_came_later_unknown() -> None:
    """Version 1 had no engine_ttft of a request and no file system of a model."""
    data = json.loads(json.dumps(FULL.to_dict()))
    for request in data["requests"]:
        del request["engine_ttft"]
    data["model"].pop("filesystem", None)
    found = BootRecord.from_dict(data)
    assert {request.engine_ttft for request in found.requests} == {None}
    assert [request.ttft for request in found.requests] == [request.ttft for request in FULL.requests]
    assert "filesystem" not in found.model


def test_a_record_of_version_2_is_read_with_what_came_later_unknown() -> None:
    """Version 2 said nothing of processes, hints, the kinds of new files, or what a hang looked like."""
    data = json.loads(json.dumps(FULL.to_dict()))
    for cache in data["caches"]:
        del cache["new_kinds"], cache["new_bytes"]
    del data["attribution"], data["hints"], data["failure"]["diagnosis"]
    found = BootRecord.from_dict(data)
    assert (found.attribution, found.hints) == (Attribution(), ())
    assert {cache.new_bytes for cache in found.caches} == {None}
    assert found.failure is not None
    assert (found.failure.diagnosis, found.failure.log_tail) == ((), "last\nlines \u2713")
    assert found.phases == FULL.phases


def test_keys_of_a_later_attribution_are_ignored() -> None:
    data = json.loads(json.dumps(FULL.to_dict()))
    data["attribution"]["invented_later"] = [1]
    assert BootRecord.from_dict(data) == FULL


def test_a_request_is_moved_with_all_its_offsets_and_no_more() -> None:
    request = Request("before", 0, 1.0, 1.5, None, 2.0, completion_tokens=16, engine_ttft=0.25)
    moved = request.shifted(-3.0)
    assert (moved.sent, moved.first_token, moved.first_text, moved.done) == (-2.0, -1.5, None, -1.0)
    assert (moved.ttft, moved.completion_tokens, moved.engine_ttft) == (0.5, 16, 0.25)
