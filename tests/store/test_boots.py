"""One boot of a store: found by a word, read back whole, from old stores too."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pytest_coldstart.attribution import Attribution
from pytest_coldstart.record import BootRecord, Cache, Failure, Inventory, Stop
from pytest_coldstart.store import database
from pytest_coldstart.store.boots import find, host, load
from pytest_coldstart.store.database import reader, version
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.runfile import read_run
from tests.store.samples import FULL, record, write

#: A run file as the version before the attribution wrote it: one boot of llama.cpp, paths replaced.
OLD = Path(__file__).with_name("run_version_2.jsonl")


def stored(home: Home, *records: BootRecord) -> None:
    write(home, "main", *records)
    assert ingest(home).problems == []


def test_every_field_of_a_boot_comes_back_from_the_tables(home: Home) -> None:
    stored(home, FULL)
    with reader(home.database) as con:
        assert load(con, "b-1") == FULL


def test_a_boot_with_nothing_optional_comes_back_as_it_was(home: Home) -> None:
    bare = BootRecord(
        *("b", "r-1", "n", "c", {}, "d", "e", "openai", "restart", "measured", 1, "ok"), "2026-01-01T00:00:00.000+00:00"
    )
    stored(home, bare)
    with reader(home.database) as con:
        assert load(con, "b") == bare


def test_what_was_not_measured_comes_back_as_not_measured(home: Home) -> None:
    unknown = record(
        "b-1",
        attribution=Attribution(probe="off"),
        caches=(Cache("x", "/x", Inventory(0, 0, "e")),),
        stop=Stop(),
        harness_time=None,
        metrics={},
    )
    stored(home, unknown)
    with reader(home.database) as con:
        assert load(con, "b-1") == unknown


def test_the_host_is_that_of_the_boots_run(home: Home) -> None:
    stored(home, FULL)
    with reader(home.database) as con:
        assert (host(con, "r-1")["hostname"], host(con, "r-1")["gpu"]) == ("node7", "NVIDIA H200")
        assert host(con, "r-2") == {}


# -- which boot


def started(minute: int) -> str:
    return f"2026-11-02T08:{minute:02}:00.000+00:00"


@pytest.fixture
def many(home: Home) -> Home:
    failure = Failure("exit", "it died", "start")
    stored(
        home,
        record("ab1", started_at=started(1)),
        record("ab2", started_at=started(5)),
        record("ab", started_at=started(2), outcome="failed", failure=failure),
        *(record(f"x{n}", started_at=started(10 + n)) for n in range(6)),
        record("y", started_at=started(9), outcome="failed", failure=failure),
    )
    return home


@pytest.mark.parametrize(
    ("word", "boot_id"),
    [("ab1", "ab1"), ("ab", "ab"), ("y", "y"), ("x5", "x5"), ("last", "x5"), ("last-failed", "y")],
    ids=str,
)
def test_a_boot_is_named_by_its_id_the_beginning_of_one_or_as_the_newest(many: Home, word: str, boot_id: str) -> None:
    with reader(many.database) as con:
        assert find(con, word) == boot_id


def test_a_beginning_of_several_ids_lists_the_newest_five(many: Home) -> None:
    with reader(many.database) as con, pytest.raises(StoreError, match="the ids of 6 boots begin with 'x'") as caught:
        find(con, "x")
    listed = [line.split()[0] for line in str(caught.value).splitlines()[1:]]
    assert listed == ["x5", "x4", "x3", "x2", "x1"]


@pytest.mark.parametrize("word", ["z", "", "%", "ab1 "])
def test_an_unknown_id_lists_the_newest_boots(many: Home, word: str) -> None:
    with reader(many.database) as con, pytest.raises(StoreError, match="the store has no boot") as caught:
        find(con, word)
    listed = [line.split()[0] for line in str(caught.value).splitlines()[1:]]
    assert listed == ["x5", "x4", "x3", "x2", "x1"]


def test_an_empty_store_has_no_last_boot(home: Home) -> None:
    with database.connect(home.database) as con:
        database.migrate(con)
    with reader(home.database) as con:
        for word, said in (("last", "holds no boot"), ("last-failed", "holds no failed boot"), ("b", "it is empty")):
            with pytest.raises(StoreError, match=said):
                find(con, word)


# -- what an earlier version wrote


def test_a_run_file_of_version_2_is_read_and_stored(home: Home) -> None:
    (old,) = read_run(OLD).boots
    assert (old.engine, old.attribution, old.hints) == ("llamacpp", Attribution(), ())
    assert [phase.name for phase in old.phases] == ["unattributed", "first_request"]
    assert ingest(home, [OLD]).problems == []
    with reader(home.database) as con:
        assert load(con, old.boot_id) == old


def test_a_store_of_schema_2_is_migrated_and_its_boots_are_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = database.migrations()
    with monkeypatch.context() as earlier:
        earlier.setattr(database, "migrations", lambda: {number: steps[number] for number in (1, 2)})
        assert ingest(home, [OLD]).boots_added == 1
        with reader(home.database) as con:
            assert version(con) == 2
    (old,) = read_run(OLD).boots
    with reader(home.database) as con:
        assert version(con) == max(steps)
        found = load(con, old.boot_id)
    assert found == old
    assert dataclasses.asdict(found.attribution) == dataclasses.asdict(Attribution())
