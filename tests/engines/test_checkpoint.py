"""Checkpoints: found by path or hub name, checked from their files alone, refused with what is wrong and what helps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_coldstart.engines.base import EngineError
from pytest_coldstart.engines.checkpoint import find, hub_cache, hub_snapshot, safetensors_problem
from tests.engines.conftest import checkpoint_at, safetensors


def refused(name: object, environ: dict[str, str] | None = None, **fields: bool) -> str:
    with pytest.raises(EngineError) as caught:
        find(str(name), environ or {}, **fields)
    return str(caught.value)


class TestFolder:
    def test_whole_checkpoint_is_found_with_its_files_and_served_by_the_name_in_the_suite(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpoint_at(tmp_path / "tiny", "model.safetensors")
        monkeypatch.chdir(tmp_path)
        found = find("./tiny", {})
        assert (found.name, found.served, found.path) == ("./tiny", "./tiny", tmp_path / "tiny")
        assert found.files == (tmp_path / "tiny" / "model.safetensors",)
        assert found.bytes == len(safetensors())

    def test_links_are_followed_to_the_files(self, tmp_path: Path) -> None:
        checkpoint_at(tmp_path / "real", "blob")
        folder = checkpoint_at(tmp_path / "links")
        (folder / "model.safetensors").symlink_to(tmp_path / "real" / "blob")
        assert find(str(folder), {}).files == (tmp_path / "real" / "blob",)

    def test_home_of_the_engines_own_environment(self, tmp_path: Path) -> None:
        checkpoint_at(tmp_path / "m", "model.safetensors")
        assert find("~/m", {"HOME": str(tmp_path)}).path == tmp_path / "m"

    @pytest.mark.parametrize("name", ["./none", "/no/such/folder", "~/no-such-folder", "none", "a/b/c", "~nobody/x"])
    def test_missing_folder_lists_what_a_model_can_be(self, name: str) -> None:
        message = refused(name)
        assert message.startswith(f"model {name!r}: no such folder; valid models: 'random:qwen2-tiny'")
        assert "coldstart make-model --list" in message
        assert "OWNER/NAME" in message

    def test_file_is_no_checkpoint(self, tmp_path: Path) -> None:
        checkpoint_at(tmp_path, "model.safetensors")
        message = refused(tmp_path / "model.safetensors")
        assert "is a file" in message
        assert f"give the folder with config.json and weights: {tmp_path}" in message

    def test_folder_without_config(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").write_bytes(safetensors())
        message = refused(tmp_path)
        assert f"the folder {tmp_path} has no config.json; give the folder that holds" in message

    @pytest.mark.parametrize("inner", ["hf", "snapshots/abc"])
    def test_folder_above_the_checkpoint_is_told_which_was_meant(self, tmp_path: Path, inner: str) -> None:
        checkpoint_at(tmp_path / inner, "model.safetensors")
        assert f"did you mean {tmp_path / inner}?" in refused(tmp_path)

    @pytest.mark.parametrize("config", ["", "{", "\xff"])
    def test_config_that_is_no_json(self, tmp_path: Path, config: str) -> None:
        checkpoint_at(tmp_path, "model.safetensors", config=config)
        assert re.search(r"config\.json is not JSON: .*; copy it again$", refused(tmp_path))

    def test_config_without_weights(self, tmp_path: Path) -> None:
        checkpoint_at(tmp_path)
        (tmp_path / "training_args.bin").write_bytes(b"no weights")
        message = refused(tmp_path)
        assert f"{tmp_path} has config.json and no weights (*.safetensors or *.bin); copy them there" in message
        assert "load_format='dummy'" in message

    def test_weights_need_not_be_there_where_none_are_loaded(self, tmp_path: Path) -> None:
        checkpoint_at(tmp_path)
        assert find(str(tmp_path), {}, weights_needed=False).files == ()

    @pytest.mark.parametrize(
        ("there", "weights"),
        [
            (("model.safetensors", "pytorch_model.bin"), ["model.safetensors"]),
            (("model.safetensors", "consolidated.safetensors"), ["model.safetensors"]),
            (("consolidated.00.safetensors",), ["consolidated.00.safetensors"]),
            (("pytorch_model.bin", "training_args.bin"), ["pytorch_model.bin"]),
        ],
    )
    def test_one_kind_of_weights_is_loaded(self, tmp_path: Path, there: tuple[str, ...], weights: list[str]) -> None:
        checkpoint_at(tmp_path, *there)
        assert [file.name for file in find(str(tmp_path), {}).files] == weights


class TestWhole:
    def shards(self, folder: Path, names: list[str], kind: str = "safetensors") -> None:
        index = {"metadata": {}, "weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
        stem = "model" if kind == "safetensors" else "pytorch_model"
        (folder / f"{stem}.{kind}.index.json").write_text(json.dumps(index))

    @pytest.mark.parametrize("kind", ["safetensors", "bin"])
    def test_missing_shard_of_an_index(self, tmp_path: Path, kind: str) -> None:
        checkpoint_at(tmp_path, f"a.{kind}")
        self.shards(tmp_path, [f"a.{kind}", f"b.{kind}"], kind)
        message = refused(tmp_path)
        assert f"{tmp_path} lacks b.{kind}, which " in message
        assert "copy or fetch the rest" in message
        (tmp_path / f"b.{kind}").write_bytes(safetensors())
        assert len(find(str(tmp_path), {}).files) == 2

    def test_index_of_the_kind_that_is_not_loaded_asks_for_nothing(self, tmp_path: Path) -> None:
        """Downloads often leave the PyTorch shards out and keep their index."""
        checkpoint_at(tmp_path, "model.safetensors")
        self.shards(tmp_path, ["pytorch_model-00001-of-00002.bin"], "bin")
        (tmp_path / "vector.index.json").write_text("[]")  # somebody else's
        assert find(str(tmp_path), {}).files == (tmp_path / "model.safetensors",)

    def test_numbers_in_the_names_tell_too(self, tmp_path: Path) -> None:
        checkpoint_at(tmp_path, "model-00002-of-00006.safetensors")
        message = refused(tmp_path)
        names = ", ".join(f"model-0000{n}-of-00006.safetensors" for n in (1, 3, 4))
        assert f"lacks {names} and 2 more, which the number in the names of the others asks for" in message

    @pytest.mark.parametrize("text", ["", "[]", '{"weight_map": 3}', "{}"])
    def test_index_that_is_none(self, tmp_path: Path, text: str) -> None:
        checkpoint_at(tmp_path, "model.safetensors")
        (tmp_path / "model.safetensors.index.json").write_text(text)
        assert "model.safetensors.index.json is no index of weights (JSON with a weight_map" in refused(tmp_path)

    def test_link_to_nowhere(self, tmp_path: Path) -> None:
        checkpoint_at(tmp_path)
        (tmp_path / "model.safetensors").symlink_to("../blobs/gone")
        assert "model.safetensors is a link to ../blobs/gone, which is gone; fetch it again" in refused(tmp_path)

    @pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
    def test_pointer_of_git_lfs(self, tmp_path: Path, name: str) -> None:
        checkpoint_at(tmp_path)
        (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98\n")
        message = refused(tmp_path)
        assert f"{tmp_path / name} is a pointer of Git LFS and not the file itself; run git lfs pull" in message

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "is cut: it has 0 bytes and no header; copy it again"),
            (b"\x10\0\0", "is cut: it has 3 bytes and no header"),
            (b"PK\x03\x04" * 4, "is cut or no safetensors file: its header should have "),
            (safetensors()[:20], "is cut or no safetensors file: its header should have "),
            (safetensors()[:-1], f"is cut: its header promises {len(safetensors())} bytes and the file has"),
            (safetensors() + b"x", f"its header promises {len(safetensors())} bytes and the file has"),
            (b"\x02\0\0\0\0\0\0\0xx", "has a header that is none of safetensors; copy it again"),
            (safetensors(b"", {"w": {"data_offsets": "no"}}), "has a header that is none of safetensors"),
            (safetensors(b"", {"w": [1]}), "has a header that is none of safetensors"),
            (safetensors(b"", ["w"]), "has a header that is none of safetensors"),
        ],
        ids=["empty", "three-bytes", "zip", "in-header", "one-byte-less", "one-more", "text", "types", "list", "array"],
    )
    def test_safetensors_that_is_not_whole(self, tmp_path: Path, content: bytes, words: str) -> None:
        checkpoint_at(tmp_path)
        file = tmp_path / "model.safetensors"
        file.write_bytes(content)
        message = refused(tmp_path)
        assert message.startswith(f"model {str(tmp_path)!r}: {file} ")
        assert words in message
        assert "copy it again" in message

    def test_the_reference_reader_agrees(self, tmp_path: Path) -> None:
        """What it opens is whole here, and what it does not is not."""
        reference = pytest.importorskip("safetensors")
        file = tmp_path / "x.safetensors"
        whole = safetensors(b"\1" * 64, {"__metadata__": {"format": "pt"}} | one_tensor(64))
        for content in (whole, safetensors(), whole[:-1], whole[:30], whole[:7], whole + b"y", b"", b"{}" * 20):
            file.write_bytes(content)
            try:
                with reference.safe_open(str(file), "numpy"):
                    opens = True
            except (reference.SafetensorError, OSError, ValueError):
                opens = False
            assert (safetensors_problem(file) == "") is opens, content


def one_tensor(size: int) -> dict[str, object]:
    return {"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}


class TestRandom:
    def test_model_is_made_when_its_cell_boots_and_not_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        name = "random:qwen2-tiny,layers=1,vocab=320"
        found = find(name, {})
        assert list(tmp_path.rglob("*.safetensors")) == []
        assert (found.name, found.served, found.files, found.path) == (name, name, (), None)
        made = found.made()
        assert (made.name, made.served) == (name, name)
        assert made.path is not None
        assert made.path.is_relative_to(tmp_path)
        assert made.files == (made.path / "model.safetensors",)
        assert made.made() is made
        assert json.loads((made.path / "config.json").read_text())["num_hidden_layers"] == 1

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("random:qwen3-tiny", "unknown preset 'qwen3-tiny'; valid presets: qwen2-tiny, llama-tiny"),
            ("random:", "unknown preset ''; valid presets: qwen2-tiny"),
            ("random:qwen2-tiny,depth=3", "unknown field 'depth'; valid fields: "),
            ("random:qwen2-tiny,layers", "'layers' is not FIELD=VALUE"),
            ("random:qwen2-tiny,layers=x", "layers='x' is not a whole number"),
        ],
    )
    def test_name_that_is_wrong(self, name: str, words: str) -> None:
        message = refused(name)
        assert words in message
        assert message.count(repr(name)) == 1


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def hub(cache: Path, *names: str, commit: str = COMMIT, ref: str | None = "main") -> Path:
    """A repository a/b as huggingface_hub lays it out: refs, snapshots of links, blobs."""
    repository = cache / "models--a--b"
    snapshot = checkpoint_at(repository / "snapshots" / commit)
    (repository / "blobs").mkdir(exist_ok=True)
    for name in names:
        (repository / "blobs" / f"blob-{name}").write_bytes(safetensors())
        (snapshot / name).symlink_to(f"../../blobs/blob-{name}")
    if ref:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / ref).write_text(commit)
    return snapshot


class TestHub:
    def test_snapshot_is_booted_by_its_path_and_served_by_its_name(self, tmp_path: Path) -> None:
        snapshot = hub(tmp_path, "model.safetensors")
        found = find("a/b", {"HF_HUB_CACHE": str(tmp_path)})
        assert (found.name, found.served, found.path) == ("a/b", "a/b", snapshot)
        assert found.files == (tmp_path / "models--a--b" / "blobs" / "blob-model.safetensors",)

    @pytest.mark.parametrize(
        ("variables", "place"),
        [
            ({"HF_HUB_CACHE": "{0}/1", "HF_HOME": "{0}/2"}, "1"),
            ({"HUGGINGFACE_HUB_CACHE": "{0}/1", "HF_HOME": "{0}/2"}, "1"),
            ({"HF_HOME": "{0}/2", "XDG_CACHE_HOME": "{0}/3"}, "2/hub"),
            ({"XDG_CACHE_HOME": "{0}/3"}, "3/huggingface/hub"),
            ({"HF_HOME": "~/4"}, "4/hub"),
            ({"HF_HOME": "$HOME/5"}, "5/hub"),
            ({}, ".cache/huggingface/hub"),
        ],
    )
    def test_place_of_the_cache_is_that_of_huggingface_hub(
        self, tmp_path: Path, variables: dict[str, str], place: str
    ) -> None:
        """Against the library itself, in a process with the same variables."""
        pytest.importorskip("huggingface_hub")
        environ = {"HOME": str(tmp_path), **{name: text.format(tmp_path) for name, text in variables.items()}}
        assert hub_cache(environ) == tmp_path / place
        code = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(tmp_path / place)

    def test_revision_is_a_branch_a_tag_or_a_commit(self, tmp_path: Path) -> None:
        environ = {"HF_HUB_CACHE": str(tmp_path)}
        main = hub(tmp_path, "model.safetensors")
        other = hub(tmp_path, "model.safetensors", commit="f" * 40, ref="v2")
        assert hub_snapshot("a/b", environ) == main
        assert hub_snapshot("a/b", environ, "v2") == other
        assert hub_snapshot("a/b", environ, "f" * 40) == other
        assert hub_snapshot("a/b", environ, "v3") is None
        assert hub_snapshot("a/c", environ) is None

    def test_name_that_is_not_cached_is_left_to_the_engine(self, tmp_path: Path) -> None:
        found = find("a/b", {"HF_HUB_CACHE": str(tmp_path)})
        assert (found.served, found.path, found.files, found.pending) == ("a/b", None, (), None)

    @pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
    @pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
    def test_offline_and_not_there_names_the_variable_and_what_helps(
        self, tmp_path: Path, variable: str, value: str
    ) -> None:
        message = refused("a/b", {"HF_HUB_CACHE": str(tmp_path), variable: value})
        assert message == (
            f"model 'a/b' is a hub name, {variable} is set and the hub cache {tmp_path} does not hold it; "
            f"fetch it first (hf download a/b), give a local folder, or unset {variable}"
        )

    @pytest.mark.parametrize("value", ["0", "", "false", "no"])
    def test_variable_that_says_online(self, tmp_path: Path, value: str) -> None:
        assert find("a/b", {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": value}).path is None

    def test_part_of_a_download_is_fetched_by_the_engine_or_refused_offline(self, tmp_path: Path) -> None:
        """A look at the configuration alone leaves such a snapshot."""
        hub(tmp_path)
        environ = {"HF_HUB_CACHE": str(tmp_path)}
        assert find("a/b", environ).path is None
        message = refused("a/b", {**environ, "HF_HUB_OFFLINE": "1"})
        assert "the hub cache does not hold it whole (" in message
        assert "has config.json and no weights" in message
        assert "hf download a/b)" in message

    def test_blob_that_is_cut_is_refused_online_too(self, tmp_path: Path) -> None:
        """Nothing fetches it again: the cache takes it for whole."""
        hub(tmp_path, "model.safetensors")
        blob = tmp_path / "models--a--b" / "blobs" / "blob-model.safetensors"
        os.truncate(blob, blob.stat().st_size - 5)
        assert "is cut: its header promises" in refused("a/b", {"HF_HUB_CACHE": str(tmp_path)})
