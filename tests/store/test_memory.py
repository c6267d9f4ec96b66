"""A boot's memory in the store: each field has a column, and old run files and stores have none of it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pytest_coldstart.memory import GPU, Burst, KVCache, Load, Memory, Series
from pytest_coldstart.store import database
from pytest_coldstart.store.boots import load
from pytest_coldstart.store.database import reader, version
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.export import export
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import IngestReport, ingest
from pytest_coldstart.store.runfile import read_run
from tests.store.memory_sample import MEMORY
from tests.store.samples import FULL, record, write

#: A run file as the version before the memory wrote it: one boot of llama.cpp, paths replaced.
OLD = Path(__file__).with_name("run_version_3.jsonl")


@pytest.mark.parametrize(
    "part",
    [MEMORY.gpus[0], MEMORY.gpus[0].foreign[0], MEMORY.allocators[0], MEMORY.kv[0], MEMORY.burst, MEMORY.load, MEMORY],
    ids=lambda part: type(part).__name__,
)
def test_the_sample_has_a_value_of_its_own_for_every_field(part: Any) -> None:
    values = [getattr(part, field.name) for field in dataclasses.fields(part)]
    assert not [value for value in values if value in (None, "", (), {}, Series())]
    told_apart = [value for value in values if not isinstance(value, bool)]
    assert all(told_apart.count(value) == 1 for value in told_apart)


def ask(home: Home, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(home.database), read_only=True) as con:
        return con.execute(sql).fetchall()


def test_the_tables_answer_in_sql(home: Home) -> None:
    write(home, "main", record("b-1"))
    assert ingest(home).problems == []
    assert ask(home, 'SELECT "index", state, total_bytes, pcie_gen_max FROM gpu ORDER BY 1') == [
        (6, "mig", 150_000_000_000, 5),
        (7, "vanished", None, None),
    ]
    assert ask(home, "SELECT foreign_processes->>'$[0].name' FROM gpu WHERE uuid = 'GPU-aaaa'") == [("trainer",)]
    over_time = "SELECT unnest(sample_times), unnest(samples['memory_used']) FROM gpu WHERE uuid = 'GPU-aaaa'"
    assert ask(home, over_time) == [(0.25, 1e9), (0.5, None), (1.5, 9.5e10)]
    assert ask(home, "SELECT point, 1 - active / reserved FROM allocator WHERE pid = 71") == [
        ("held", pytest.approx(0.05))
    ]
    # 50 blocks of 16 hold 800 tokens, of which 776 are there.
    kv = "SELECT at_s, 1 - tokens / (used_blocks * block_size) FROM kv_cache WHERE point = 'held'"
    assert ask(home, kv) == [(2.75, pytest.approx(0.03))]
    assert ask(home, "SELECT list_max(prompt_tokens), end_s - begin_s, held FROM burst") == [(1024, 1.875, True)]
    assert ask(home, "SELECT weight_bytes / seconds, bound_by FROM weight_load") == [(4e9, "loader")]
    assert ask(home, "SELECT memory_sizes->>'kv_pool' FROM boot") == [("110000000000",)]


def test_parts_of_a_memory_come_back_as_they_were(home: Home) -> None:
    """Nothing at all; a device without samples; a burst that is all defaults but one."""
    kinds = (
        Memory(),
        Memory(gpus=(GPU(0, "GPU-x", "A"),), missing=("no NVML",)),
        Memory(burst=Burst(requests=3), kv=(KVCache("ready"), KVCache("held", tokens=0))),
        Memory(load=Load(missing=("no phase",)), gpus=(GPU(1, "u", "n", series=Series((0.5,), {"power": (None,)})),)),
    )
    write(home, "main", *(record(f"b-{number}", memory=memory) for number, memory in enumerate(kinds)))
    assert ingest(home).problems == []
    with reader(home.database) as con:
        assert tuple(load(con, f"b-{number}").memory for number in range(4)) == kinds
    assert ask(home, "SELECT count(*) FROM burst") == [(1,)]


def test_the_new_tables_are_exported(home: Home) -> None:
    write(home, "main", record("b-1"))
    ingest(home)
    out = io.StringIO()
    export(home, "csv", out, table="gpu")
    got = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [(row["boot_id"], row["index"], row["peak_bytes"]) for row in got] == [
        ("b-1", "6", "145000000000"),
        ("b-1", "7", ""),
    ]
    out = io.StringIO()
    export(home, "json", out, table="gpu")
    assert json.loads(out.getvalue())[0]["samples"]["power"] == [75.5, 80.25, None]


# -- what an earlier version wrote


def test_a_run_file_of_version_3_is_read_and_stored(home: Home) -> None:
    data = read_run(OLD)
    assert (data.header["version"], len(data.boots)) == (3, 1)
    assert [boot.memory for boot in data.boots] == [Memory()]
    assert ingest(home, [OLD]).problems == []
    with reader(home.database) as con:
        assert [load(con, boot.boot_id) for boot in data.boots] == data.boots


@pytest.fixture
def schema_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A store as the version before this one left it."""
    old = Home.at(tmp_path / "old")
    old.prepare()
    steps = database.migrations()
    with monkeypatch.context() as earlier:
        earlier.setattr(database, "migrations", lambda: {number: steps[number] for number in (1, 2, 3)})
        assert ingest(old, [OLD]).boots_added == 1
        with reader(old.database) as con:
            assert version(con) == 3
    return old


def test_a_store_of_schema_3_is_migrated_and_its_boots_are_read(schema_3: Home) -> None:
    boots = read_run(OLD).boots
    with reader(schema_3.database) as con:
        assert version(con) == max(database.migrations())
        assert [load(con, boot.boot_id) for boot in boots] == boots
    write(schema_3, "main", FULL)
    assert ingest(schema_3).problems == []
    with reader(schema_3.database) as con:
        assert load(con, "b-1").memory == MEMORY


def test_stores_of_this_and_of_the_earlier_schema_are_merged(home: Home, schema_3: Home, tmp_path: Path) -> None:
    write(home, "main", FULL)
    ingest(home)
    assert ingest(home, [schema_3.database]) == IngestReport(files=1, boots_added=1, runs_added=1)
    third = Home.at(tmp_path / "third")
    third.prepare()
    assert ingest(third, [home.database]) == IngestReport(files=1, boots_added=2, runs_added=2)
    with reader(third.database) as con:
        assert load(con, "b-1") == FULL


def test_a_broken_memory_costs_its_own_file_alone(home: Home) -> None:
    good, bad = write(home, "a", record("b-1")), home.runs / "bad.jsonl"
    lines = [json.loads(line) for line in good.read_text().splitlines()]
    lines[1]["boot_id"], lines[1]["memory"]["gpus"] = "b-2", [{"index": 0}]
    bad.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = ingest(home, [bad, good])
    assert (report.files, report.boots_added) == (1, 1)
    assert "bad.jsonl:2: broken boot line" in report.problems[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sizes", []),
        ("sizes", {"weights": "much"}),
        ("sizes", {"weights": 1.5}),
        ("impossible", "all"),
        ("impossible", {"a": 1}),
    ],
)
def test_sizes_and_impossible_of_another_kind_are_a_broken_line(home: Home, name: str, value: Any) -> None:
    path = write(home, "a", record("b-1"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["memory"][name] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(StoreError, match=f"jsonl:2: broken boot line: TypeError: {name} is no object"):
        read_run(path)


def test_a_row_with_sizes_of_another_kind_cannot_be_read_and_is_named(home: Home) -> None:
    write(home, "a", record("b-1"))
    ingest(home)
    with duckdb.connect(str(home.database)) as con:
        con.execute("""UPDATE boot SET memory_sizes = '["weights"]'""")
    with reader(home.database) as con, pytest.raises(StoreError, match="the boot b-1 cannot be read: TypeError: sizes"):
        load(con, "b-1")
