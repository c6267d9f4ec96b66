"""Random-weight models: their bytes, their geometry, and that what is in the cache is whole."""

from __future__ import annotations

import hashlib
import json
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from pytest_coldstart.cli import main
from pytest_coldstart.random_model import PRESETS, Geometry, make, make_at, models_home, named, weights
from pytest_coldstart.random_model.folder import MANIFEST, config, is_whole
from pytest_coldstart.random_model.tokenizer import SPECIAL, UNSPOKEN, tokenizer

TINY = PRESETS["qwen2-tiny"]
LLAMA = PRESETS["llama-tiny"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(TINY, tmp_path_factory.mktemp("models"))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def values(file: Path) -> dict[str, np.ndarray]:
    """The tensors of a file as float32, read by the layout's description and not by the code under test."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    found = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        raw = content[begin:end]
        if entry["dtype"] == "BF16":
            array = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            array = np.frombuffer(raw, "<f4")
        found[name] = array.reshape(entry["shape"])
    return found


# -- bytes


def test_the_bytes_of_the_tiny_model_are_the_same_everywhere(tiny: Path) -> None:
    """Pinned: a change here needs another RECIPE, since caches elsewhere hold the old bytes."""
    assert tiny.name == "qwen2-f83486f556c2"
    assert sha256(tiny / "model.safetensors") == "15597ef653fbf5d935d70f2cb5c5a5a4b9378bf1db075027804c2076f47cc216"
    assert sha256(tiny / "tokenizer.json") == "1a14a18c5302ac0b40f5917e0422c42f6620fc87dd5202a94d4c44621992ae09"


def test_making_it_again_gives_the_same_bytes_and_another_seed_gives_others(tiny: Path, tmp_path: Path) -> None:
    again = make(TINY, tmp_path)
    assert [sha256(path) for path in sorted(again.iterdir())] == [sha256(path) for path in sorted(tiny.iterdir())]
    other = make(replace(TINY, seed=1), tmp_path)
    assert other != again
    assert sha256(other / "model.safetensors") != sha256(tiny / "model.safetensors")


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [  # As published for Qwen2-0.5B and Qwen2-7B.
        ("qwen2-0.5b", 494_032_768),
        ("qwen2-7b", 7_615_616_512),
    ],
)
def test_the_real_geometries_have_the_real_number_of_parameters(preset: str, parameters: int) -> None:
    geometry = PRESETS[preset]
    assert (geometry.parameters, geometry.bytes) == (parameters, 2 * parameters)
    assert sum(tensor.count for tensor in weights.tensors(geometry)) == parameters


@pytest.mark.parametrize("geometry", [TINY, LLAMA], ids=["qwen2", "llama"])
def test_the_safetensors_library_reads_every_tensor_with_its_shape(geometry: Geometry, tmp_path: Path) -> None:
    folder = make(geometry, tmp_path)
    with safe_open(folder / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    assert shapes == {tensor.name: tensor.shape for tensor in weights.tensors(geometry)}
    assert sum(np.prod(shape) for shape in shapes.values()) == geometry.parameters
    assert shapes["model.layers.3.self_attn.k_proj.weight"] == (64, 128)
    assert ("lm_head.weight" in shapes) == (not geometry.tied)
    assert ("model.layers.0.self_attn.q_proj.bias" in shapes) == (geometry.architecture == "qwen2")


def test_weights_are_small_and_random_and_norms_are_one(tiny: Path) -> None:
    found = values(tiny / "model.safetensors")
    for name, array in found.items():
        if "norm" in name:
            assert (array == 1).all()
        else:
            spoken = array[UNSPOKEN:] if "embed" in name else array
            assert np.abs(spoken).max() < 0.1
            assert spoken.size < 1000 or abs(spoken.std() - 0.02) < 0.001
            assert spoken.size < 1000 or abs(spoken.mean()) < 0.001
    distinct = {array.tobytes() for name, array in found.items() if "norm" not in name}
    assert len(distinct) == len([name for name in found if "norm" not in name])


def test_rows_of_tokens_that_are_no_text_are_zero(tmp_path: Path) -> None:
    found = values(make(LLAMA, tmp_path) / "model.safetensors")
    for table in (found["model.embed_tokens.weight"], found["lm_head.weight"]):
        assert not table[:UNSPOKEN].any()
        assert table[UNSPOKEN:].any(axis=1).all()


def test_no_two_rows_are_alike_where_a_block_repeats(tmp_path: Path) -> None:
    geometry = replace(TINY, vocab=24_000, layers=1)
    table = values(make(geometry, tmp_path) / "model.safetensors")["model.embed_tokens.weight"]
    assert table.size > 2 * 1_048_573
    rows = {row.tobytes() for row in table[UNSPOKEN:]}
    assert len(rows) == len(table) - UNSPOKEN


def test_float32_holds_the_values_of_bfloat16(tiny: Path, tmp_path: Path) -> None:
    wide = values(make(replace(TINY, dtype="float32"), tmp_path) / "model.safetensors")
    narrow = values(tiny / "model.safetensors")
    assert wide.keys() == narrow.keys()
    assert all(np.array_equal(wide[name], narrow[name]) for name in narrow)


def test_shards_have_an_index_and_hold_the_same_tensors(tiny: Path, tmp_path: Path) -> None:
    weights.write(TINY, tmp_path, limit=700_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert [path.name for path in shards] == [f"model-0000{n}-of-00004.safetensors" for n in (1, 2, 3, 4)]
    assert index["metadata"] == {"total_size": TINY.bytes}
    whole = values(tiny / "model.safetensors")
    assert index["weight_map"].keys() == whole.keys()
    for shard in shards:
        assert shard.stat().st_size < 700_000 + 10_000
        for name, array in values(shard).items():
            assert index["weight_map"][name] == shard.name
            assert np.array_equal(array, whole[name])


# -- configuration and tokenizer


def test_the_configuration_names_the_geometry_and_the_tokenizers_ids(tiny: Path) -> None:
    read = json.loads((tiny / "config.json").read_text())
    assert read == config(TINY)
    assert read["hidden_size"] // read["num_attention_heads"] == 64
    generation = json.loads((tiny / "generation_config.json").read_text())
    reader = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    words = json.loads((tiny / "tokenizer_config.json").read_text())
    for kind in ("bos", "eos", "pad"):
        number = reader.token_to_id(words[f"{kind}_token"])
        assert number == read[f"{kind}_token_id"] == generation[f"{kind}_token_id"]
    assert words["model_max_length"] == read["max_position_embeddings"] == 2048


@pytest.mark.parametrize("text", ["Name a colour.", " two  spaces\n\ttab", "Grüße, 世界 🚢", "x" * 300, "{}<|>"])
def test_a_text_survives_the_tokenizer(tiny: Path, text: str) -> None:
    reader = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    ids = reader.encode(text).ids
    assert reader.decode(ids) == text
    assert max(ids) < TINY.vocab


def test_the_tokenizer_merges_and_knows_its_special_tokens(tiny: Path) -> None:
    reader = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    assert len(reader.encode("the first token of the server").ids) < 15  # of 29 bytes
    assert [reader.token_to_id(token) for token in SPECIAL] == [0, 1, 2]
    assert reader.encode("<|im_start|>the<|im_end|>").ids[0] == 1
    assert reader.encode("<|im_start|>the<|im_end|>").ids[-1] == 2


@pytest.mark.parametrize("vocab", [320, 2048, 5000])
def test_each_id_of_the_vocabulary_is_a_token_and_those_that_can_be_picked_are_text(vocab: int) -> None:
    reader = Tokenizer.from_str(json.dumps(tokenizer(vocab)))
    assert reader.get_vocab_size() == vocab
    assert sorted(reader.get_vocab().values()) == list(range(vocab))
    spoken = [reader.decode([number]) for number in range(UNSPOKEN, vocab)]
    assert [text for text in spoken if not text or not text.isascii() or not text.isprintable()] == []


# -- names and validation


def test_a_name_is_a_preset_with_fields_changed() -> None:
    assert named("random:qwen2-tiny") == TINY
    changed = named("random:qwen2-tiny, layers=6,hidden=256,tied=false,dtype=float32,seed=3")
    assert changed == replace(TINY, layers=6, hidden=256, tied=False, dtype="float32", seed=3)
    assert named("org/model") is None
    assert named("/models/random:qwen2-tiny") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("random:", "unknown preset ''; valid presets: qwen2-tiny, llama-tiny, qwen2-0.5b, qwen2-7b"),
        ("random:gpt2", "unknown preset 'gpt2'; valid presets: qwen2-tiny"),
        ("random:qwen2-tiny,depth=3", "unknown field 'depth'; valid fields: hidden, intermediate, layers, heads"),
        ("random:qwen2-tiny,architecture=llama", "unknown field 'architecture'; valid fields: hidden"),
        ("random:qwen2-tiny,layers", "'layers' is not FIELD=VALUE; valid fields: hidden"),
        ("random:qwen2-tiny,layers=many", "layers='many' is not a whole number"),
        ("random:qwen2-tiny,tied=no", "tied='no' is not one of true, false"),
        ("random:qwen2-tiny,dtype=int8", "dtype='int8' is not one of bfloat16, float32"),
        ("random:qwen2-tiny,layers=0", "layers=0 is below 1"),
        ("random:qwen2-tiny,seed=-1", "seed=-1 is below 0"),
        ("random:qwen2-tiny,vocab=300", "vocab=300 is below 320"),
        ("random:qwen2-tiny,heads=3", "heads=3 does not divide hidden=128; valid: 1, 2, 4, 8, 16, 32, 64"),
        ("random:qwen2-tiny,heads=4,kv_heads=3", "kv_heads=3 does not divide heads=4; valid: 1, 2, 4"),
        ("random:qwen2-tiny,hidden=130", "rotary positions need an even number; hidden=132 would do"),
    ],
)
def test_a_wrong_name_says_what_is_valid(name: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        named(name)
    assert str(caught.value).startswith(f"{name!r}: ")
    assert said in str(caught.value)


def test_a_field_of_another_type_is_named() -> None:
    with pytest.raises(ValueError, match=r"layers='2' is not of type int; tied=1 is not of type bool"):
        replace(TINY, layers="2", tied=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="architecture='gpt2' is not one of qwen2, llama"):
        replace(TINY, architecture="gpt2")


def test_the_digest_tells_every_field_apart() -> None:
    others = [
        *(replace(TINY, **{name: getattr(TINY, name) * 2}) for name in ("hidden", "intermediate", "layers", "heads")),
        *(replace(TINY, **{name: getattr(TINY, name) * 2}) for name in ("kv_heads", "vocab", "context")),
        replace(TINY, seed=1),
        replace(TINY, dtype="float32"),
        replace(TINY, tied=False),
        replace(TINY, architecture="llama"),
    ]
    assert len({geometry.digest for geometry in [TINY, *others]}) == 12


# -- the cache


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COLDSTART_MODELS", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models_home() == tmp_path / ".cache" / "pytest-coldstart" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models_home() == tmp_path / "xdg" / "pytest-coldstart" / "models"
    monkeypatch.setenv("COLDSTART_MODELS", "~/mine")
    assert models_home() == tmp_path / "mine"


def test_a_whole_model_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(TINY, tmp_path)
    before = folder.stat().st_ino
    monkeypatch.setattr(weights, "write", lambda *_: pytest.fail("written again"))
    assert make(TINY, tmp_path) == folder
    assert folder.stat().st_ino == before


@pytest.mark.parametrize("damage", ["cut", "lost", "manifest"])
def test_a_damaged_model_is_made_again(tmp_path: Path, damage: str) -> None:
    folder = make(TINY, tmp_path)
    before = sha256(folder / "model.safetensors")
    if damage == "cut":
        with open(folder / "model.safetensors", "r+b") as file:
            file.truncate(1000)
    elif damage == "lost":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / MANIFEST).write_text("[]")
    assert not is_whole(folder, TINY)
    assert make(TINY, tmp_path) == folder
    assert is_whole(folder, TINY)
    assert sha256(folder / "model.safetensors") == before


_MAKE = "import sys; from pathlib import Path; from pytest_coldstart.random_model import PRESETS, make, weights; "


def test_processes_that_race_get_the_same_whole_model(tmp_path: Path) -> None:
    said = "real = weights.write; weights.write = lambda *a: (print('written'), real(*a)); "
    command = [sys.executable, "-c", f"{_MAKE}{said}print(make(PRESETS['qwen2-tiny'], Path(sys.argv[1])))", tmp_path]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    folder = tmp_path / TINY.name
    assert {output[-1] for output in outputs} == {str(folder)}
    assert sum("written" in output for output in outputs) == 1
    assert is_whole(folder, TINY)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".{TINY.name}.lock", TINY.name]


def test_what_a_killed_process_left_is_no_model_and_is_removed(tmp_path: Path) -> None:
    hang = "import time; weights.write = lambda g, f: ((f / 'half').write_text('?'), time.sleep(600)); "
    command = [sys.executable, "-c", f"{_MAKE}{hang}make(PRESETS['qwen2-tiny'], Path(sys.argv[1]))", str(tmp_path)]
    partial = tmp_path / f".{TINY.name}.partial"
    with subprocess.Popen(command) as process:
        while not (partial / "half").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / TINY.name).exists()
    assert is_whole(make(TINY, tmp_path), TINY)
    assert not partial.exists()


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(geometry: Geometry, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weights, "write", full)
    with pytest.raises(OSError, match="No space left"):
        make(TINY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f".{TINY.name}.lock"]


def test_a_folder_with_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for place in (tmp_path, tmp_path / "mine"):
        with pytest.raises(FileExistsError, match="exists and is not this model"):
            make_at(TINY, place)
    assert (tmp_path / "mine").read_text() == "mine"


# -- the command


def test_the_command_prints_the_folder_and_tells_the_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLDSTART_MODELS", str(tmp_path))
    assert main(["make-model", "qwen2-tiny", "--layers", "8", "--kv-heads", "2"]) == 0
    out, err = capsys.readouterr()
    geometry = replace(TINY, layers=8, kv_heads=2)
    assert out == f"{tmp_path / geometry.name}\n"
    assert is_whole(tmp_path / geometry.name, geometry)
    size = sum(path.stat().st_size for path in (tmp_path / geometry.name).iterdir())
    assert err == (
        f"coldstart: {size / 1e6:.3g} MB, {geometry.parameters} parameters;"
        " model='random:qwen2-tiny,layers=8,kv_heads=2' in suites\n"
    )


def test_the_command_writes_where_it_is_told_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = tmp_path / "a" / "model"
    for _ in range(2):
        assert main(["make-model", "random:llama-tiny", "--output", str(place)]) == 0
        assert capsys.readouterr().out == f"{place}\n"
    assert main(["make-model", "qwen2-tiny", "--output", str(place)]) == 2
    assert f"{place} exists and is not this model" in capsys.readouterr().err
    assert is_whole(place, LLAMA)


def test_list_names_each_preset_and_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make-model", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(PRESETS)
    assert lines[2] == "qwen2-0.5b: 988 MB, 494032768 parameters"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "unknown preset ''; valid presets: qwen2-tiny"),
        (["gpt2"], "unknown preset 'gpt2'; valid presets: qwen2-tiny"),
        (["qwen2-tiny", "--heads", "3"], "heads=3 does not divide hidden=128"),
        (["qwen2-tiny", "--layers", "x"], "layers='x' is not a whole number"),
        (["qwen2-tiny", "--output", "/proc/none/model"], "could not be written: No such file or directory"),
    ],
)
def test_a_mistake_exits_2_and_is_named(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["make-model", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("coldstart: ")
    assert said in err
