"""The command coldstart: what it writes and prints, and how it exits."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from pytest_coldstart import __version__
from pytest_coldstart.attribution import Attribution
from pytest_coldstart.cli import main
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import Phase
from pytest_coldstart.store.home import Home
from tests.store.samples import record, write

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns its exit status, standard output and standard error."""

    def go(*words: str | Path) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return go


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the run files of two boots, not ingested yet."""
    home = Home.at(tmp_path / "store")
    home.prepare()
    write(home, "main", record("b-1"), record("b-2", cell_id='with "quotes", commas'))
    return home.root


# -- init


def test_init_copies_the_starter_suites_and_says_how_to_run_them(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("init", tmp_path / "mine")
    assert status == 0
    copied = sorted(path.name for path in (tmp_path / "mine").iterdir())
    assert "test_llamacpp.py" in copied
    assert [line for line in out.splitlines() if line.endswith(".py")] == [str(tmp_path / "mine" / n) for n in copied]
    assert out.splitlines()[-1] == f"run it: pytest --coldstart {tmp_path / 'mine'}"
    original = Path(__file__).parent.parent / "suites" / "test_llamacpp.py"
    assert (tmp_path / "mine" / "test_llamacpp.py").read_text() == original.read_text()


def test_init_leaves_a_file_that_exists_as_it_is_and_exits_1(run: Run, tmp_path: Path) -> None:
    assert run("init", tmp_path)[0] == 0
    for path in tmp_path.glob("*.py"):
        path.write_text("# mine\n")
    status, out, err = run("init", tmp_path)
    assert (status, out) == (1, "")
    assert f"{tmp_path / 'test_llamacpp.py'} exists and was left as it is" in err
    assert {path.read_text() for path in tmp_path.glob("*.py")} == {"# mine\n"}


# -- ingest


def test_ingest_takes_the_run_files_of_the_store_once(run: Run, store: Path) -> None:
    database = store / "coldstart.duckdb"
    assert run("ingest", "--store", store) == (0, f"2 boots of 1 new runs added to {database}, from 1 files\n", "")
    assert run("ingest", "--store", store) == (0, f"0 boots of 0 new runs added to {database}, from 0 files\n", "")
    with duckdb.connect(str(database), read_only=True) as con:
        assert con.execute("SELECT boot_id FROM boot ORDER BY 1").fetchall() == [("b-1",), ("b-2",)]


def test_ingest_takes_files_and_stores_from_elsewhere(run: Run, store: Path, tmp_path: Path) -> None:
    (file,) = (store / "runs").glob("*.jsonl")
    status, out, _ = run("ingest", "--store", tmp_path / "other", file)
    assert (status, out.split(" added")[0]) == (0, "2 boots of 1 new runs")
    status, out, _ = run("ingest", "--store", tmp_path / "third", tmp_path / "other" / "coldstart.duckdb")
    assert (status, out.split(" added")[0]) == (0, "2 boots of 1 new runs")


def test_ingest_names_a_file_it_cannot_read_takes_the_others_and_exits_1(run: Run, store: Path, tmp_path: Path) -> None:
    (file,) = (store / "runs").glob("*.jsonl")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("no json\n" * 2)
    status, out, err = run("ingest", "--store", store, broken, tmp_path / "missing.jsonl", file)
    assert status == 1
    assert out.startswith("2 boots of 1 new runs")
    assert f"coldstart: {broken}:1: broken line" in err
    assert "missing.jsonl: No such file or directory" in err


# -- export


def test_export_as_csv_is_one_row_a_boot_with_a_column_for_each_metric(run: Run, store: Path) -> None:
    run("ingest", "--store", store)
    status, out, _ = run("export", "--store", store)
    assert status == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["boot_id"] for row in rows] == ["b-1", "b-2"]
    assert rows[1]["cell_id"] == 'with "quotes", commas'
    assert (float(rows[0]["cold_start"]), rows[0]["fragmentation"], rows[0]["hostname"]) == (2.0, "", "node7")
    assert set(METRICS) <= set(rows[0])


def test_export_as_json_and_parquet_hold_the_same_boots(run: Run, store: Path, tmp_path: Path) -> None:
    run("ingest", "--store", store)
    status, out, _ = run("export", "--store", store, "--format", "json")
    assert status == 0
    assert [(row["boot_id"], row["cold_start"]) for row in json.loads(out)] == [("b-1", 2.0), ("b-2", 2.0)]
    path = tmp_path / "boots.parquet"
    assert run("export", "--store", store, "--format", "parquet", "--output", path) == (0, "", "")
    found = duckdb.sql(f"SELECT boot_id, cold_start FROM '{path}' ORDER BY 1").fetchall()
    assert found == [("b-1", 2.0), ("b-2", 2.0)]


def test_export_of_a_table_is_that_table(run: Run, store: Path) -> None:
    run("ingest", "--store", store)
    status, out, _ = run("export", "--store", store, "--table", "instant", "--format", "csv")
    assert status == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {"boot_id", "name", "seconds"} == set(rows[0])
    assert ("b-1", "first_done", "2.0") in {(row["boot_id"], row["name"], row["seconds"]) for row in rows}


def test_export_of_an_unknown_table_lists_the_known_ones(run: Run, store: Path) -> None:
    run("ingest", "--store", store)
    status, out, err = run("export", "--store", store, "--table", "boot; DROP TABLE boot")
    assert (status, out) == (1, "")
    assert "unknown table 'boot; DROP TABLE boot'; valid tables: boots, allocator, boot" in err
    assert run("export", "--store", store)[0] == 0


def test_export_of_parquet_needs_a_file(run: Run, store: Path) -> None:
    run("ingest", "--store", store)
    assert run("export", "--store", store, "--format", "parquet") == (1, "", "coldstart: parquet needs --output FILE\n")


def test_export_without_a_store_says_what_makes_one(run: Run, tmp_path: Path) -> None:
    status, _, err = run("export", "--store", tmp_path / "nothing")
    assert status == 1
    assert f"there is no store at {tmp_path / 'nothing' / 'coldstart.duckdb'}; run `coldstart ingest`" in err
    assert not (tmp_path / "nothing").exists()


def test_export_into_a_folder_that_does_not_exist_is_named(run: Run, store: Path, tmp_path: Path) -> None:
    run("ingest", "--store", store)
    status, _, err = run("export", "--store", store, "--output", tmp_path / "no" / "boots.csv")
    assert status == 1
    assert f"could not write {tmp_path / 'no' / 'boots.csv'}" in err


def test_a_reader_that_closes_its_end_early_is_no_error(store: Path) -> None:
    write(Home.at(store), "more", *(record(f"m-{n}") for n in range(400)), run_id="r-2")
    main(["ingest", "--store", str(store)])
    command = [sys.executable, "-m", "pytest_coldstart.cli", "export", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


# -- show


@pytest.fixture
def kept(run: Run, store: Path) -> Path:
    run("ingest", "--store", store)
    return store


def test_show_prints_one_boot_by_its_id_or_as_the_last(run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    status, out, err = run("show", "last", "--store", kept)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "boot b-2"
    assert "total 1.00 s, unattributed 0 ms (0.0%); probe full" in out
    assert max(map(len, out.splitlines())) <= 90
    assert run("show", "b-1", "--store", kept)[1].splitlines()[0] == "boot b-1"


def test_show_as_json_is_one_object(run: Run, kept: Path) -> None:
    status, out, _ = run("show", "b-1", "--json", "--store", kept / "coldstart.duckdb")
    assert status == 0
    found = json.loads(out)
    assert (found["boot_id"], found["total"], found["host"]["hostname"]) == ("b-1", 1.0, "node7")
    assert [piece["phase"] for piece in found["critical_path"]] == ["imports", "load_weights"]


def test_show_of_no_such_boot_lists_those_there_are(run: Run, kept: Path, tmp_path: Path) -> None:
    for word, said in (("b", "the ids of 2 boots begin with 'b'"), ("c", "the store has no boot 'c'")):
        status, out, err = run("show", word, "--store", kept)
        assert (status, out) == (1, "")
        assert said in err
        assert [line.split()[0] for line in err.splitlines()[1:]] == ["b-2", "b-1"]
    assert run("show", "last-failed", "--store", kept) == (1, "", "coldstart: the store holds no failed boot\n")
    status, _, err = run("show", "last", "--store", tmp_path / "nothing")
    assert (status, "there is no store at" in err) == (1, True)


def test_show_writes_a_trace_beside_what_it_prints(run: Run, kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    status, out, err = run("show", "b-1", "--otlp", file, "--store", kept)
    assert (status, err, out.splitlines()[0]) == (0, "", "boot b-1")
    spans = json.loads(file.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {"imports", "load_weights"} <= {span["name"] for span in spans}


def test_show_says_what_could_not_be_exported_and_exits_1(run: Run, kept: Path, tmp_path: Path) -> None:
    status, out, err = run("show", "b-1", "--otlp", tmp_path / "no" / "trace.json", "--store", kept)
    assert (status, out.splitlines()[0]) == (1, "boot b-1")
    assert "the trace was not exported: [Errno 2] No such file" in err
    status, _, err = run("show", "b-1", "--speedscope", tmp_path / "s.json", "--store", kept)
    assert (status, err) == (1, "coldstart: the samples of this boot are no longer in /h/probe/b-1\n")
    write(Home.at(kept), "third", record("b-3", attribution=Attribution("full")), run_id="r-3")
    run("ingest", "--store", kept)
    status, _, err = run("show", "b-3", "--speedscope", tmp_path / "s.json", "--store", kept)
    assert (status, "run with --coldstart-keep-logs=all" in err) == (1, True)
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize("to", ["localhost:4318", "10.0.0.1:4318/v1/traces", "grpc://localhost:4317", ""])
def test_show_takes_no_address_for_the_name_of_a_file(
    run: Run, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    status, _, err = run("show", "b-1", "--otlp", to, "--store", kept)
    assert (status, f"{to!r} is no file and no http:// or https:// address" in err) == (1, True)
    assert list(here.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_show_says_that_it_could_not_print(kept: Path) -> None:
    words = [sys.executable, "-m", "pytest_coldstart.cli", "show", "b-1", "--store", str(kept)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "coldstart: the boot was not printed: [Errno 28] No space left on device\n",
    )


def test_show_prints_what_a_terminal_of_ascii_cannot(kept: Path) -> None:
    write(Home.at(kept), "more", record("u-1", phases=(Phase("imports", 0.0, 1.0, "probe", "模型"),)), run_id="r-4")
    main(["ingest", "--store", str(kept)])
    words = [sys.executable, "-m", "pytest_coldstart.cli", "show", "u-1", "--store", str(kept)]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u6a21\\u578b" in done.stdout


# -- doctor, usage


def test_doctor_lists_each_engine_its_model_and_what_can_be_proved(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("doctor", "--store", tmp_path)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith(f"platform: {sys.platform}, kernel ")
    begins = ("GPUs: ", "engine llamacpp: ", "engine openai: ", f"store: {tmp_path} on ", "load average: ")
    assert [begin for begin in begins if not any(line.startswith(begin) for line in lines)] == []


def test_doctor_makes_no_store(run: Run, tmp_path: Path) -> None:
    run("doctor", "--store", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("boot",), "invalid choice: 'boot'"),
        (("export", "--format", "xml"), "invalid choice: 'xml' (choose from"),
        (("export", "--nonsense"), "unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_usage_exits_4_and_says_what_was_wrong(run: Run, words: tuple[str, ...], said: str) -> None:
    status, out, err = run(*words)
    assert (status, out) == (4, "")
    assert said in err


def test_help_and_version_exit_0(run: Run) -> None:
    assert run("--version") == (0, f"coldstart {__version__}\n", "")
    status, out, _ = run("--help")
    assert status == 0
    assert [word for word in ("doctor", "init", "ingest", "export", "show") if word not in out] == []


def test_a_store_that_is_no_database_is_a_clear_error(run: Run, store: Path) -> None:
    (store / "coldstart.duckdb").write_text("words, no tables\n" * 500)
    for command in ("ingest", "export"):
        status, _, err = run(command, "--store", store)
        assert status == 1
        assert f"could not open the store {store / 'coldstart.duckdb'}" in err
