"""How cold a boot was: the evidence of real boots of llama.cpp, and what is refused or contradicted."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_coldstart import residency
from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell
from pytest_coldstart.coldness import TIERS, Coldness, TierContradicted, TierRefused
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.engines.base import CacheRoot, ModelMissing
from pytest_coldstart.engines.llamacpp import embedded_model
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from pytest_coldstart.warmup import create
from tests.conftest import MakePlan, assert_nothing_left

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20
MakeBoot = Callable[[Plan], Boot]

OPTIONS = {"n_ctx": 256, "n_threads": 1, "n_parallel": 1, "fit": False}


def llama_plan(home: Path, model: Path, tier: str) -> Plan:
    engine = EngineRegistry().get("llamacpp")
    cell = Cell("llamacpp", str(model), tier, options=OPTIONS)
    engine.check(cell)
    if not engine.availability(cell).ok:
        pytest.skip(engine.availability(cell).reason)
    (home / "logs").mkdir(exist_ok=True)
    return Plan(
        cell,
        "cell",
        "nodeid",
        engine,
        engine.model(cell),
        create("none"),
        requests=2,
        boot_timeout=120.0,
        caches=home / "caches",
        logs=home / "logs",
        keep_logs="all",
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the embedded model that no other process knows."""
    try:
        source = embedded_model()
    except ModelMissing as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("weights") / "model.gguf"
    shutil.copyfile(source, path)
    if residency.filesystem(path) not in residency.LOCAL:
        pytest.skip(f"the temporary folder is on {residency.filesystem(path)}, no local disk")
    return path


@pytest.fixture(scope="module")
def records(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, BootRecord]:
    """One boot at each tier, in this order, of one cell."""
    home = tmp_path_factory.mktemp("home")
    found = {}
    for tier in ("pristine", "restart", "redeploy", "scale_out"):
        boot = Boot(llama_plan(home, weights, tier))
        boot.run()
        found[tier] = boot.stop()
        assert_nothing_left(boot)
        assert boot.failure is None
    return found


class TestRealBoots:
    @pytest.mark.parametrize("tier", ["pristine", "redeploy"])
    def test_evicted_weights_are_read_from_the_disk(
        self, records: dict[str, BootRecord], weights: Path, tier: str
    ) -> None:
        evidence = records[tier].evidence
        size = weights.stat().st_size
        assert evidence.resident_fraction is not None
        assert evidence.resident_fraction <= 0.01
        assert [(item.path, item.bytes, item.status) for item in evidence.weights] == [(str(weights), size, "proved")]
        assert evidence.tree_read_bytes is not None
        assert evidence.tree_read_bytes >= 0.9 * size
        assert evidence.contradictions == ()

    @pytest.mark.parametrize("tier", ["restart", "scale_out"])
    def test_resident_weights_are_not_read_from_the_disk(
        self, records: dict[str, BootRecord], weights: Path, tier: str
    ) -> None:
        evidence = records[tier].evidence
        # Not exactly 1: the kernel may reclaim a few pages of a clean file at any time.
        assert evidence.resident_fraction is not None
        assert evidence.resident_fraction >= 0.99
        assert evidence.tree_read_bytes is not None
        assert evidence.tree_read_bytes < 0.5 * weights.stat().st_size
        assert evidence.contradictions == ()

    @pytest.mark.parametrize("tier", ["pristine", "scale_out"])
    def test_caches_are_empty_before_and_filled_after(self, records: dict[str, BootRecord], tier: str) -> None:
        (cache,) = records[tier].caches
        assert cache.name == "bytecode"
        assert (cache.before.files, cache.before.bytes) == (0, 0)
        assert cache.after is not None
        assert cache.after.files > 0
        assert cache.new_files == cache.after.files
        assert cache.new_names

    @pytest.mark.parametrize(("tier", "earlier"), [("restart", "pristine"), ("redeploy", "restart")])
    def test_caches_that_are_kept_are_found_and_nothing_is_compiled_again(
        self, records: dict[str, BootRecord], tier: str, earlier: str
    ) -> None:
        (cache,), (filled,) = records[tier].caches, records[earlier].caches
        assert filled.after is not None
        assert cache.path == filled.path
        assert cache.before == filled.after
        assert cache.after == cache.before
        assert cache.new_files == 0

    def test_libraries_are_listed_with_what_of_them_was_resident(self, records: dict[str, BootRecord]) -> None:
        """Other processes of the host may load them at any time, so how much it was is not ours to say."""
        libraries = records["pristine"].evidence.libraries
        assert any("xllamacpp" in item.path for item in libraries)
        for item in libraries:
            assert item.status in ("proved", "cannot_evict")
            assert item.resident_bytes is not None
            assert 0 <= item.resident_bytes <= item.bytes

    def test_identity_of_what_was_booted(self, records: dict[str, BootRecord], weights: Path) -> None:
        record = records["pristine"]
        assert record.model["digest"] == hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
        assert "xllamacpp" in record.versions
        assert len({item.base_digest for item in records.values()}) == 1
        assert len({item.cell_digest for item in records.values()}) == 4

    def test_answers_are_whole_and_the_record_survives_its_file_form(self, records: dict[str, BootRecord]) -> None:
        for record in records.values():
            assert record.requests[0].completion_tokens == 16
            assert record.instants["listen"] <= record.instants["ready"] < record.instants["first_token"]
            assert record.stop.exit_code == 0
            assert BootRecord.from_dict(record.to_dict()) == record


class TestBadModels:
    def test_file_that_is_no_gguf(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.gguf"
        path.write_bytes(b"PK\x03\x04" * 100)
        with pytest.raises(EngineError, match=r"not a GGUF file: it begins with b'PK\\x03\\x04'"):
            EngineRegistry().get("llamacpp").model(Cell("llamacpp", str(path), "restart"))

    def test_missing_path(self, tmp_path: Path) -> None:
        with pytest.raises(EngineError, match=r"no such file; valid models: 'smollm2-135m-instruct' or"):
            EngineRegistry().get("llamacpp").model(Cell("llamacpp", str(tmp_path / "none.gguf"), "restart"))

    def test_truncated_file_fails_with_the_words_of_llama_cpp(
        self, weights: Path, tmp_path: Path, boots: MakeBoot
    ) -> None:
        path = tmp_path / "truncated.gguf"
        with weights.open("rb") as source:
            path.write_bytes(source.read(30 * MIB))
        boot = boots(llama_plan(tmp_path, path, "restart"))
        boot.run()
        record = boot.stop()
        assert record.failure is not None
        assert record.failure.kind == "exit"
        assert "model is corrupted or incomplete" in record.failure.log_tail
        assert_nothing_left(boot)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """8 MiB that were just written."""
    path = tmp_path / "weights.bin"
    path.write_bytes(os.urandom(8 * MIB))
    if residency.filesystem(path) not in residency.LOCAL:
        pytest.skip("the temporary folder is on no local disk")
    return path


@pytest.fixture
def shm_file() -> Iterator[Path]:
    path = Path(f"/dev/shm/coldstart-tiers-{os.getpid()}")
    path.write_bytes(b"x" * MIB)
    yield path
    path.unlink()


class TestRefusal:
    @pytest.mark.parametrize("tier", ["pristine", "redeploy"])
    def test_weights_in_memory_cannot_be_evicted(self, shm_file: Path, tmp_path: Path, tier: str) -> None:
        coldness = Coldness(TIERS[tier], tmp_path / "home", [], [shm_file], [])
        with pytest.raises(TierRefused, match=rf"tier '{tier}' needs .*{shm_file}: file system tmpfs"):
            coldness.prepare()

    def test_weights_in_memory_are_fine_where_they_shall_be_resident(self, shm_file: Path, tmp_path: Path) -> None:
        coldness = Coldness(TIERS["restart"], tmp_path / "home", [], [shm_file], [])
        coldness.prepare()
        assert coldness.prove().resident_fraction >= 0.99

    def test_weights_that_a_process_maps_are_refused_with_its_pid(self, file: Path, tmp_path: Path) -> None:
        code = (
            "import mmap, sys\nfile = open(sys.argv[1], 'rb')\n"
            "view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
            "sum(view[::4096])\nprint('mapped', flush=True)\nsys.stdin.read()\n"
        )
        words = [sys.executable, "-S", "-c", code, str(file)]
        coldness = Coldness(TIERS["pristine"], tmp_path / "home", [], [file], [])
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"mapped\n"
            with pytest.raises(TierRefused, match=rf"mapped by living processes: .*\(pid {process.pid}\)"):
                coldness.prepare()
        coldness.prepare()
        assert coldness.prove().resident_fraction <= 0.01

    def test_refused_boot_launches_nothing_and_frees_its_port(
        self, shm_file: Path, make_plan: MakePlan, boots: MakeBoot
    ) -> None:
        boot = boots(make_plan(tier="pristine", options={"weights": str(shm_file)}))
        with pytest.raises(TierRefused):
            boot.run()
        assert boot.tree is None
        assert_nothing_left(boot)
        assert shm_file.exists()


class TestEvidence:
    def test_file_that_was_just_written_is_evicted(self, file: Path, tmp_path: Path) -> None:
        assert residency.resident_bytes(file) == 8 * MIB
        before = file.read_bytes()
        coldness = Coldness(TIERS["pristine"], tmp_path / "home", [], [file], [])
        coldness.prepare()
        evidence = coldness.prove()
        assert evidence.resident_fraction <= 0.01
        assert evidence.contradictions == ()
        assert file.read_bytes() == before

    @pytest.mark.parametrize(("tier", "resident"), [("pristine", 0), ("redeploy", 0), ("restart", 8 * MIB)])
    def test_libraries_are_evicted_with_the_weights(self, file: Path, tmp_path: Path, tier: str, resident: int) -> None:
        coldness = Coldness(TIERS[tier], tmp_path / "home", [], [], [file, tmp_path / "gone.so"])
        coldness.prepare()
        assert [(item.path, item.resident_bytes) for item in coldness.prove().libraries] == [(str(file), resident)]

    def test_link_is_followed_to_the_file(self, file: Path, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(file)
        coldness = Coldness(TIERS["pristine"], tmp_path / "home", [], [link], [])
        coldness.prepare()
        assert [item.path for item in coldness.prove().weights] == [str(file)]
        assert residency.resident_bytes(file) == 0

    def test_reader_between_eviction_and_proof_contradicts_with_the_share(self, file: Path, tmp_path: Path) -> None:
        coldness = Coldness(TIERS["redeploy"], tmp_path / "home", [], [file], [])
        coldness.prepare()
        with file.open("rb", buffering=0) as source:
            os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            os.pread(source.fileno(), 4 * MIB, 0)
        (words,) = coldness.prove().contradictions
        assert words.startswith("redeploy declared, 50.0% of ")
        assert words.endswith(" of weights resident before the start")
        file.read_bytes()
        (words,) = coldness.prove().contradictions
        assert words.startswith("redeploy declared, 100.0% of ")

    def test_eviction_between_reading_and_proof_contradicts_too(self, file: Path, tmp_path: Path) -> None:
        coldness = Coldness(TIERS["restart"], tmp_path / "home", [], [file], [])
        residency.evict([file])
        coldness.prepare()
        assert coldness.prove().contradictions == ()
        residency.evict([file])
        (words,) = coldness.prove().contradictions
        assert words.startswith("restart declared, only 0.0% of ")

    def test_caches_are_emptied_and_a_file_that_appears_contradicts(self, tmp_path: Path) -> None:
        root = CacheRoot("kernels", tmp_path / "home" / "kernels")
        coldness = Coldness(TIERS["scale_out"], tmp_path / "home", [root], [], [])
        root.path.mkdir(parents=True)
        (root.path / "old").write_text("x")
        coldness.prepare()
        assert list(root.path.iterdir()) == []
        (root.path / "new").write_text("x")
        assert "scale_out declared, cache 'kernels' holds 1 files before the start" in coldness.prove().contradictions

    def test_caches_that_are_kept_say_what_was_made_again(self, tmp_path: Path) -> None:
        root = CacheRoot("kernels", tmp_path / "home" / "kernels")
        root.path.mkdir(parents=True)
        (root.path / "old").write_text("x")
        coldness = Coldness(TIERS["restart"], tmp_path / "home", [root], [], [])
        coldness.prepare()
        coldness.prove()
        (root.path / "sub").mkdir()
        (root.path / "sub" / "new").write_text("yy")
        (cache,) = coldness.caches()
        assert (cache.before.files, cache.before.bytes) == (1, 1)
        assert cache.after is not None
        assert (cache.after.files, cache.after.bytes) == (2, 3)
        assert (cache.new_files, cache.new_names) == (1, ("sub/new",))

    def test_cache_that_the_cells_own_variable_moves_is_not_claimed_to_be_empty(self, tmp_path: Path) -> None:
        """The engine finds what lies there; the isolated folder would be empty and prove nothing."""
        path = tmp_path / "home" / "kernels"
        root = CacheRoot("kernels", path, {"KERNELS": str(path), "WRITE": ""})
        warm = tmp_path / "warm"
        warm.mkdir()
        (warm / "kernel").write_text("x")
        coldness = Coldness(TIERS["pristine"], tmp_path / "home", [root], [], [], {"KERNELS": str(warm)})
        coldness.prepare()
        evidence = coldness.prove()
        words = "caches empty: cache 'kernels' is where the cell's KERNELS says, not isolated and not looked at"
        assert words in evidence.unprovable
        assert coldness.caches() == ()
        assert (warm / "kernel").exists()
        for env in ({"KERNELS": str(path)}, {"WRITE": "1"}, {}):
            same = Coldness(TIERS["pristine"], tmp_path / "home", [root], [], [], env)
            same.prepare()
            assert not [text for text in same.prove().unprovable if text.startswith("caches")]
            assert [cache.name for cache in same.caches()] == ["kernels"]

    def test_boot_at_wake_fills_no_cache_for_restart(self, tmp_path: Path) -> None:
        """It runs with other flags, so a restart after it needs its own priming boot."""
        wake, restart = (Coldness(TIERS[name], tmp_path / "home", [], [], []) for name in ("wake", "restart"))
        wake.prepare()
        wake.mark_filled("boot", {"engine": "1"})
        assert restart.needs_priming({"engine": "1"})

    def test_priming_is_needed_until_a_whole_boot_of_these_versions(self, tmp_path: Path) -> None:
        kept = Coldness(TIERS["restart"], tmp_path / "home", [], [], [])
        empty = Coldness(TIERS["pristine"], tmp_path / "home", [], [], [])
        kept.prepare()
        assert kept.needs_priming({"engine": "1"})
        assert not empty.needs_priming({"engine": "1"})
        kept.mark_filled("boot", {"engine": "1"})
        assert not kept.needs_priming({"engine": "1"})
        assert kept.needs_priming({"engine": "2"})
        empty.prepare()
        assert kept.needs_priming({"engine": "1"})

    def test_unknown_weights_are_unprovable_and_no_contradiction(self, tmp_path: Path) -> None:
        coldness = Coldness(TIERS["pristine"], tmp_path / "home", [], [], [])
        coldness.prepare()
        evidence = coldness.prove()
        assert "weights evicted: no weight files are known" in evidence.unprovable
        assert evidence.contradictions == ()

    def test_engine_that_never_reads_the_evicted_weights_contradicts(
        self, file: Path, make_plan: MakePlan, boots: MakeBoot
    ) -> None:
        """It serves other files than the suite names: its boot was not the cold one that was declared."""
        # Large: a hundredth of it is more than what the interpreter may have to read from storage.
        file.write_bytes(os.urandom(MIB) * 256)
        boot = boots(make_plan(tier="pristine", options={"weights": str(file)}))
        with pytest.raises(TierContradicted, match="it loads other files than the adapter names"):
            boot.run()
        assert boot.record is not None
        assert boot.record.outcome == "error"
        assert not boot.record.counted
        assert boot.record.evidence.resident_fraction <= 0.01
        assert_nothing_left(boot)

    def test_engine_that_reads_the_evicted_weights_does_not(
        self, file: Path, make_plan: MakePlan, boots: MakeBoot, tmp_path: Path
    ) -> None:
        fake = Path(__file__).parents[1] / "fake_engine.py"
        script = tmp_path / "reads.py"
        script.write_text(
            f"import runpy, sys\nopen({str(file)!r}, 'rb').read()\n"
            f"sys.argv[0] = {str(fake)!r}\nrunpy.run_path({str(fake)!r}, run_name='__main__')\n"
        )
        command = (sys.executable, "-S", str(script), "--port", "{port}")
        boot = boots(make_plan(command=command, tier="pristine", options={"weights": str(file)}))
        boot.run()
        record = boot.stop()
        assert record.outcome == "ok"
        assert record.evidence.tree_read_bytes is not None
        assert record.evidence.tree_read_bytes >= 8 * MIB
        assert_nothing_left(boot)
