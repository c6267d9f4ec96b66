"""Cache statements: real folders before and after, with the file names that engines were seen to write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart import cache_kinds
from pytest_coldstart.attribution import Attribution, Process
from pytest_coldstart.coldness import TIERS, Coldness
from pytest_coldstart.engines.base import CacheRoot
from pytest_coldstart.record import BootRecord, Cache, Inventory
from pytest_coldstart.report.explain import cache_words
from pytest_coldstart.reuse import moved, outside, statement, statements

NAMES: dict[str, Any] = dict.fromkeys(("boot_id", "run_id", "nodeid", "cell_id", "cell_digest", "base_digest"), "x")

AOT = "torch_compile_cache/torch_aot_compile/e04de1e9da86477b"
#: Written again at each restart by vLLM 0.25.1 on an H200, beside files that stay.
VLLM_AGAIN = (
    f"{AOT}/inductor_cache/ab/1a757946fa775b9a.best_config",
    f"{AOT}/inductor_cache/aotautograd/ab7o35jn/p6c6hhsi",
    f"{AOT}/inductor_cache/aotautograd/afga4kkx/kajfu62q",
    f"{AOT}/inductor_cache/fxgraph/hv/fhv2qybx/nicron3r",
    f"{AOT}/rank_0_0/model",
)
VLLM_STAYS = (
    "modelinfos/vllm-model_executor-models-qwen2-Qwen2ForCausalLM.json",
    "torch_compile_cache/c875e6924a/rank_0_0/backbone/artifact_compile_range_1_8192_subgraph_0",
    "torch_compile_cache/c875e6924a/rank_0_0/backbone/cache_key_factors.json",
    f"{AOT}/inductor_cache/2n/c2ngyvec.main.cpp",
    f"{AOT}/inductor_cache/2n/c2ngyvec.main.so",
    f"{AOT}/inductor_cache/locks/c2ngyvec.lock",
    f"{AOT}/inductor_cache/zu/czuj5lts.py",
)


def triton_kernel(key: str, name: str) -> tuple[str, ...]:
    """The files of one kernel as Triton 3.6 writes them."""
    ends = ("cubin", "json", "llir", "ptx", "ttgir", "ttir", "source")
    return (f"{key}/__grp__{name}.json", *(f"{key}/{name}.{end}" for end in ends))


def write(root: Path, names: Iterable[str], size: int = 10) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)


def boot(tmp_path: Path, name: str, before: Iterable[str], written: Iterable[str], size: int = 10) -> Cache:
    """The cache as a boot leaves it that found *before* and wrote *written*."""
    root = CacheRoot(name, tmp_path / name)
    write(root.path, before)
    for file in root.path.rglob("*"):
        os.utime(file, (1e9, 1e9))
    coldness = Coldness(TIERS["restart"], tmp_path, [root], [], [])
    coldness.prepare()
    coldness.prove()
    write(root.path, written, size)
    (cache,) = coldness.caches()
    return cache


def record(*caches: Cache, processes: tuple[Process, ...] = ()) -> BootRecord:
    return BootRecord(
        **NAMES,
        cell={},
        engine="vllm",
        tier="restart",
        role="measured",
        round=1,
        outcome="ok",
        started_at="2026-11-30T10:00:00+00:00",
        caches=caches,
        attribution=Attribution(processes=processes),
    )


def test_full_cache_with_nothing_written_is_a_hit(tmp_path: Path) -> None:
    found = statement(boot(tmp_path, "triton", triton_kernel("2IVZ", "_bad_words_kernel"), ()))
    assert (found.verdict, found.text) == ("hit", "hit: 8 files before, none written")


def test_empty_cache_that_has_files_afterwards_was_filled(tmp_path: Path) -> None:
    kernels = [*triton_kernel("2IVZ", "_bad_words_kernel"), *triton_kernel("AAAA", "_topk")]
    launcher = "4NOV/__triton_launcher.cpython-312-x86_64-linux-gnu.so"
    found = statement(boot(tmp_path, "triton", (), [*kernels, launcher]))
    assert found.verdict == "filled"
    assert found.text == "filled: empty before, 2 kernels, 1 launcher compiled, 14 other files written (170 B)"


def test_empty_cache_that_stays_empty_was_ignored(tmp_path: Path) -> None:
    found = statement(boot(tmp_path, "flashinfer", (), ()))
    assert (found.verdict, found.text) == ("ignored", "ignored: empty and not used")


def test_cache_that_nobody_counted_afterwards_is_unknown() -> None:
    found = statement(Cache("triton", "/c/triton", Inventory(3, 30, "d")))
    assert (found.verdict, found.text) == ("unknown", "unknown: 3 files before, not counted after the boot")


def test_full_cache_that_is_written_over_names_what_was_compiled_again(tmp_path: Path) -> None:
    cache = boot(tmp_path, "vllm", [*VLLM_STAYS, *VLLM_AGAIN], VLLM_AGAIN, size=1000)
    kinds = {"AOT graphs": 2, "AOT models": 1, "graphs": 1, "tuning results": 1}
    assert (cache.new_files, cache.new_kinds, cache.new_bytes) == (5, kinds, 5000)
    found = statement(cache)
    assert found.verdict == "grew"
    assert found.text == (
        "grew although full: 2 AOT graphs, 1 AOT model, 1 graph compiled again, 1 tuning result written again "
        "(5 KB, in place of old files)"
    )
    assert cache_words(cache) == found.text


def test_full_cache_that_gets_more_files_says_so(tmp_path: Path) -> None:
    old = [*triton_kernel("2IVZ", "_bad_words_kernel")]
    new = [name for n in range(41) for name in triton_kernel(f"K{n}", "_kernel")]
    found = statement(boot(tmp_path, "triton", old, new, size=0))
    assert found.text == (
        "grew although full: 41 kernels compiled, 287 other files written (0 B, beside the 8 files before)"
    )


def test_some_files_in_place_and_some_beside(tmp_path: Path) -> None:
    cache = boot(tmp_path, "cuda", ["index", "a/b/1"], ["index", "a/b/2"])
    assert statement(cache).text == (
        "grew although full: 1 entry compiled, 1 other file written (20 B, 1 of 2 beside the 2 files before)"
    )


def test_record_from_before_kinds_were_counted_keeps_its_names() -> None:
    inventory = Inventory(36, 21_072_430, "d")
    cache = Cache("vllm", "/c/vllm", inventory, inventory, 12, ("a/b.best_config", "c/model"))
    assert statement(cache).text == (
        "grew although full: 12 files written again (b.best_config, model, in place of old files)"
    )


def test_bytecode_of_a_real_interpreter_is_filled_and_then_hit(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / "source" / f"{name}.py").write_text("x = 1\n")
    root = CacheRoot("bytecode", tmp_path / "home" / "bytecode")
    environment = {"PYTHONPYCACHEPREFIX": str(root.path), "PYTHONPATH": str(tmp_path / "source")}
    texts = []
    for _ in range(2):
        coldness = Coldness(TIERS["restart"], tmp_path / "home", [root], [], [])
        coldness.prepare()
        coldness.prove()
        subprocess.run([sys.executable, "-S", "-c", "import one, two, three"], env=environment, check=True)
        (cache,) = coldness.caches()
        ours = {name: state for name, state in cache.new_kinds.items() if name == "modules"}
        texts.append((statement(cache).verdict, ours.get("modules", 0) >= 3))
    assert texts == [("filled", True), ("hit", False)]


@pytest.mark.parametrize(
    ("cache", "name", "kind"),
    [
        ("vllm", VLLM_STAYS[0], "model descriptions"),
        ("vllm", VLLM_STAYS[1], "graphs"),
        ("vllm", VLLM_STAYS[2], "files"),
        ("vllm", VLLM_STAYS[3], "files"),
        ("vllm", VLLM_STAYS[4], "kernels"),
        ("vllm", VLLM_STAYS[5], "files"),
        ("vllm", VLLM_STAYS[6], "files"),
        ("triton", "AAAA/_kernel.autotune.json", "tuning results"),
        ("triton", "AAAA/cuda_utils.cpython-312-x86_64-linux-gnu.so", "launchers"),
        ("inductor", "precompiled_headers/c4zl3qzp.h.gch", "precompiled headers"),
        ("flashinfer", ".cache/flashinfer/0.2/90a/cached_ops/norm/norm.so", "kernels"),
        ("flashinfer", ".cache/flashinfer/0.2/90a/cached_ops/norm/build.ninja", "files"),
        ("tvm-ffi", "abc/main.so", "kernels"),
        ("cuda", "a/0/0123456789abcdef", "entries"),
        ("cuda", "index", "files"),
        ("bytecode", "usr/lib/python3.12/ast.cpython-312.pyc", "modules"),
        ("somebodys own", "kernel.so", "files"),
    ],
)
def test_kind_of_a_file(cache: str, name: str, kind: str) -> None:
    assert cache_kinds.kind(cache, name) == kind


def test_a_boot_has_one_statement_for_each_cache_in_order(tmp_path: Path) -> None:
    found = statements(record(boot(tmp_path, "triton", (), ()), boot(tmp_path, "vllm", VLLM_STAYS, ())))
    assert [(item.cache, item.verdict) for item in found] == [("triton", "ignored"), ("vllm", "hit")]


class TestOutside:
    def test_folder_that_the_engine_chose_itself_below_a_root_is_covered(self, tmp_path: Path) -> None:
        cache = boot(tmp_path, "vllm", VLLM_STAYS, ())
        paths = {"TORCHINDUCTOR_CACHE_DIR": f"{cache.path}/{AOT}/inductor_cache", "VLLM_CACHE_ROOT": cache.path}
        assert outside(record(cache, processes=(Process(1, 0, "EngineCore", 0.0, cache_paths=paths),))) == ()

    def test_folder_in_no_root_is_named_once_with_all_who_used_it(self, tmp_path: Path) -> None:
        cache = boot(tmp_path, "triton", (), ())
        paths = {"TRITON_CACHE_DIR": "/x", "HF_HOME": "/hf"}
        first, second = (Process(pid, 0, name, 0.0, cache_paths=paths) for pid, name in ((1, "APIServer"), (2, "Core")))
        assert outside(record(cache, processes=(first,))) == (
            "APIServer used TRITON_CACHE_DIR=/x, which no inventory covers",
        )
        assert outside(record(cache, processes=(first, second))) == (
            "APIServer, Core used TRITON_CACHE_DIR=/x, which no inventory covers",
        )

    def test_folder_beside_a_root_with_the_same_beginning_is_outside(self, tmp_path: Path) -> None:
        cache = boot(tmp_path, "triton", (), ())
        process = Process(1, 0, "python", 0.0, cache_paths={"TRITON_CACHE_DIR": cache.path + "-other"})
        assert len(outside(record(cache, processes=(process,)))) == 1

    def test_root_reached_by_a_link_is_covered(self, tmp_path: Path) -> None:
        cache = boot(tmp_path, "triton", (), ())
        (tmp_path / "link").symlink_to(cache.path)
        process = Process(1, 0, "python", 0.0, cache_paths={"TRITON_CACHE_DIR": str(tmp_path / "link")})
        assert outside(record(cache, processes=(process,))) == ()

    def test_workspace_whose_cache_folder_is_a_root_is_covered(self, tmp_path: Path) -> None:
        root = Cache("flashinfer", str(tmp_path / ".cache/flashinfer"), Inventory(0, 0, "d"))
        process = Process(1, 0, "python", 0.0, cache_paths={"FLASHINFER_WORKSPACE_BASE": str(tmp_path)})
        assert outside(record(root, processes=(process,))) == ()


class TestPlacesThatChange:
    def boots(self, tmp_path: Path, *paths: dict[str, str]) -> list[BootRecord]:
        cache = boot(tmp_path, "triton", (), ())
        made = [record(cache, processes=(Process(1, 0, "EngineCore", 0.0, cache_paths=one),)) for one in paths]
        return [replace(one, round=number) for number, one in enumerate(made, 1)]

    def test_variable_that_is_gone_in_the_next_boot_is_said_with_where_it_was(self, tmp_path: Path) -> None:
        (text,) = moved(self.boots(tmp_path, {"TRITON_CACHE_DIR": "/x"}, {}, {}))
        assert text.startswith("round 2: EngineCore has no TRITON_CACHE_DIR where it had /x in the boot before")

    def test_variable_that_points_elsewhere_is_said_with_both(self, tmp_path: Path) -> None:
        (text,) = moved(self.boots(tmp_path, {"TRITON_CACHE_DIR": "/x"}, {"TRITON_CACHE_DIR": "/y"}))
        assert "has TRITON_CACHE_DIR=/y where it had /x" in text

    def test_what_stays_or_is_new_is_not_said(self, tmp_path: Path) -> None:
        same = {"TRITON_CACHE_DIR": "/x"}
        assert moved(self.boots(tmp_path, same, same, {**same, "CUDA_CACHE_PATH": "/c"})) == ()
