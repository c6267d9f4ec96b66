"""The adapter of Triton: its command line, model repositories, its requests against bytes of a real server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.cell import Cell, Container
from pytest_coldstart.client import Client, RequestFailed
from pytest_coldstart.engines import EngineError, EngineRegistry, triton_bundle
from pytest_coldstart.engines.triton import Generate
from pytest_coldstart.record import Request
from tests.engines.conftest import spec_of

ENGINE = EngineRegistry().get("triton")
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
STUB = "triton_python_backend_stub"

#: What Triton 2.51.0 sent for the built-in model, ``{"text_input": "one two", "max_tokens": 4}``, byte for byte.
HEAD = b"Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
ONE = b'47\r\ndata: {"model_name":"words","model_version":"1","text_output":"one "}\n\n\r\n'
TWO = b'47\r\ndata: {"model_name":"words","model_version":"1","text_output":"two "}\n\n\r\n'
END = b"0\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\n" + HEAD + ONE + TWO + ONE + TWO + END
#: A model that sent an error after its words; one without its second input; one whose process was killed.
HALF = ANSWER.removesuffix(END) + b'20\r\ndata: {"error":"out of words"}\n\n\r\n' + END
REFUSED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 205\r\n\r\n"
    b'{"error":"[request id: <id_unknown>] expected 2 inputs but got 1 inputs for model \'words\'. Got input(s) '
    b"['text_input'], but missing required input(s) ['max_tokens']. Please provide all required input(s).\"}"
)
DEAD = (
    b"HTTP/1.1 400 Bad Request\r\n"
    + HEAD
    + b'3c\r\ndata: {"error":"Stub process \'words_0_0\' is not healthy."}\n\n\r\n'
    + END
)


def cell_of(model: str | None = None, **options: Any) -> Cell:
    return Cell("triton", model, "restart", options=options, command=("tritonserver",))


def dialect_of(model: str | None = None, **options: Any) -> Generate:
    found = ENGINE.dialect(spec_of(ENGINE, cell_of(model, **options)))
    assert isinstance(found, Generate)
    return found


def repository(folder: Path, **models: str) -> Path:
    """A repository of models, each with a config and a file in version 1."""
    for name, config in models.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        (folder / name / "1" / "model.py").write_text("pass\n")
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The interpreter of an environment with what nvidia-pytriton has, as far as the adapter looks at it."""
    site = tmp_path / "env" / "site"
    server = site / "pytriton" / "tritonserver"
    files = ["bin/tritonserver", "backends/python/libtriton_python.so", f"python_backend_stubs/{VERSION}/{STUB}"]
    for name in files:
        (server / name).parent.mkdir(parents=True, exist_ok=True)
        (server / name).write_text("")
    info = site / "nvidia_pytriton-0.7.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-pytriton\nVersion: 0.7.0\n")
    (info / "RECORD").write_text("".join(f"pytriton/tritonserver/{name},,\n" for name in files))
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def with_stub(python: Path) -> Path:
    """The same, with the stub where the backend looks for it."""
    server = python.parent.parent / "site" / "pytriton" / "tritonserver"
    shutil.copy(server / "python_backend_stubs" / VERSION / STUB, server / "backends" / "python")
    return server


class TestCommand:
    def test_metrics_are_on_the_same_port_of_another_address(self, tmp_path: Path) -> None:
        models = repository(tmp_path, chat='backend: "vllm"')
        assert ENGINE.command(spec_of(ENGINE, cell_of(str(models)))) == [
            *("tritonserver", f"--model-repository={models}", "--http-address=127.0.0.1", "--http-port=8123"),
            *("--metrics-address=127.0.0.2", "--metrics-port=8123", "--allow-grpc=false", "--exit-timeout-secs=5"),
        ]
        assert ENGINE.metrics_host == "127.0.0.2"

    def test_options_of_its_own_and_others_passed_on(self) -> None:
        options = {"exit_timeout": 2, "auto_complete_config": False, "log_verbose": 1, "strict_readiness": True}
        backends = ["python,shm-default-byte-size=1048576", "vllm,x=1"]
        words = ENGINE.command(spec_of(ENGINE, cell_of(**options, backend_config=backends)))
        assert words[7:] == [
            *("--exit-timeout-secs=2", "--disable-auto-complete-config", f"--backend-config={backends[0]}"),
            *(f"--backend-config={backends[1]}", "--log-verbose=1", "--strict-readiness=true"),
        ]
        assert ENGINE.stop_grace(cell_of(**options)) == 12

    def test_server_of_a_bundle_with_the_environment_of_its_interpreter(
        self, bundle: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "/usr/bin")
        monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
        server = with_stub(bundle)
        spec = spec_of(ENGINE, Cell("triton", None, "restart", python=str(bundle)))
        words = ENGINE.command(spec)
        assert words[0] == str(server / "bin" / "tritonserver")
        assert words[-1] == f"--backend-directory={server / 'backends'}"
        variables = ENGINE.environment(spec)
        assert variables["PATH"] == f"{bundle.parent}:/usr/bin"
        folder = variables.get("LD_LIBRARY_PATH")
        assert folder is None or (Path(folder) / f"libpython{VERSION}.so.1.0").exists()
        assert server / "bin" / "tritonserver" in ENGINE.libraries(spec.cell)

    def test_installed_server_comes_before_a_bundle(self, tmp_path: Path) -> None:
        server = tmp_path / "tritonserver"
        server.write_text("#!/bin/sh\n")
        server.chmod(0o755)
        cell = Cell("triton", None, "restart", env={"PATH": str(tmp_path)})
        assert ENGINE.availability(cell).ok
        spec = spec_of(ENGINE, cell)
        assert ENGINE.command(spec)[0] == str(server)
        assert not [word for word in ENGINE.command(spec) if word.startswith("--backend-directory")]
        assert (ENGINE.environment(spec), ENGINE.libraries(cell), ENGINE.cache_roots(spec)) == ({}, [], [])


class TestBundle:
    def test_whole_one_is_available(self, bundle: Path) -> None:
        with_stub(bundle)
        found = ENGINE.availability(Cell("triton", None, "restart", python=str(bundle)))
        assert (found.ok, found.version) == (True, "0.7.0") or "libpython" in found.reason

    def test_without_a_stub_the_message_says_how_to_have_one(self, bundle: Path) -> None:
        found = ENGINE.availability(Cell("triton", None, "restart", python=str(bundle)))
        assert not found.ok
        assert f"lacks {bundle.parent.parent}/site/pytriton/tritonserver/backends/python/{STUB}" in found.reason
        command = found.enable.split()
        assert command[0] == "cp"
        subprocess.run(command, check=True)
        found = ENGINE.availability(Cell("triton", None, "restart", python=str(bundle)))
        assert found.ok or "libpython" in found.reason

    def test_versions_and_libraries_that_it_lacks(self, tmp_path: Path) -> None:
        server = tmp_path / "bin" / "tritonserver"
        for version in ("3.8", "3.11"):
            (tmp_path / "python_backend_stubs" / version).mkdir(parents=True)
        newer = triton_bundle.Bundle(server, "3.14", "")
        assert newer.problem() == ("nvidia-pytriton has no stub for Python 3.14", "use Python 3.11, 3.8")
        static = triton_bundle.Bundle(server, "3.11", None)
        for file in (static.shipped_stub, static.stub):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        reason, enable = static.problem()
        assert reason == "its Python backend needs libpython3.11.so.1.0"
        assert enable.startswith("install libpython3.11.so.1.0")

    def test_interpreter_without_it(self, tmp_path: Path) -> None:
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        found = ENGINE.availability(Cell("triton", None, "restart", python=str(python)))
        assert found.reason == f"the distribution 'nvidia-pytriton' is not installed in {python}"
        assert "coldstart env triton DIR" in found.enable


class TestRepository:
    def test_built_in_model(self) -> None:
        found = ENGINE.model(cell_of())
        assert (found.name, found.served) == ("words", "words")
        assert [file.name for file in found.files] == ["model.py", "config.pbtxt"]
        assert found.path == found.files[1].parent.parent

    def test_the_only_model_or_the_one_that_is_asked_for(self, tmp_path: Path) -> None:
        one = repository(tmp_path / "one", chat='backend: "vllm"')
        assert ENGINE.model(cell_of(str(one))).served == "chat"
        two = repository(tmp_path / "two", ensemble='platform: "ensemble"', tensorrt_llm='backend: "tensorrtllm"')
        assert ENGINE.model(cell_of(str(two), model_name="ensemble")).served == "ensemble"
        with pytest.raises(EngineError, match="holds ensemble, tensorrt_llm; say with model_name= which one"):
            ENGINE.model(cell_of(str(two)))
        with pytest.raises(EngineError, match="has no model 'chat'; it has ensemble, tensorrt_llm"):
            ENGINE.model(cell_of(str(two), model_name="chat"))

    def test_bytecode_and_hidden_folders_are_no_models_and_no_weights(self, tmp_path: Path) -> None:
        models = repository(tmp_path, chat="")
        (models / ".git").mkdir()
        (models / "chat" / "1" / "__pycache__").mkdir()
        (models / "chat" / "1" / "__pycache__" / "model.cpython-311.pyc").write_text("")
        assert [file.name for file in ENGINE.model(cell_of(str(models))).files] == ["model.py", "config.pbtxt"]

    def test_folders_that_are_none(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("")
        empty = tmp_path / "empty"
        empty.mkdir()
        models = repository(tmp_path / "models", chat='backend: "python"')
        for path, words in (
            ("./none", "no such folder; valid models: 'words'"),
            (str(file), "a file; valid models: 'words'"),
            (str(empty), "holds no model; put NAME/config.pbtxt and NAME/1/model.py there"),
            (str(models / "chat"), f"is one model and not a repository of them; give its parent: {models}?"),
        ):
            with pytest.raises(EngineError) as caught:
                ENGINE.model(cell_of(path))
            assert words in str(caught.value)

    def test_models_that_could_not_load(self, tmp_path: Path) -> None:
        models = repository(tmp_path, a='backend: "python"', b='name: "b"\nbackend: "python"', c="")
        (models / "a" / "1" / "model.py").unlink()
        shutil.rmtree(models / "b" / "1")
        shutil.rmtree(models / "c" / "1")
        (models / "c" / "config.pbtxt").unlink()
        with pytest.raises(EngineError) as caught:
            ENGINE.model(cell_of(str(models)))
        assert "a is on the Python backend and lacks a/1/model.py" in str(caught.value)
        assert "b has config.pbtxt and no version folder, such as b/1/" in str(caught.value)
        assert "c has neither config.pbtxt nor a version folder, such as c/1/" in str(caught.value)


class TestRequest:
    def test_built_in_model_and_those_of_tensorrt_llm_take_the_length_as_an_input(self) -> None:
        dialect = dialect_of()
        assert dialect.path == "/v2/models/words/generate_stream"
        assert dialect.body("words", "hello", 16) == {"text_input": "hello", "stream": True, "max_tokens": 16}
        assert dialect.counts_events

    def test_vllm_backend_takes_it_as_a_parameter(self, tmp_path: Path) -> None:
        dialect = dialect_of(str(repository(tmp_path, chat='backend: "vllm"\n')))
        assert dialect.body("chat", "hello", 16) == {
            "text_input": "hello",
            "stream": True,
            "parameters": {"max_tokens": 16, "temperature": 0, "ignore_eos": True},
        }
        assert not dialect.counts_events

    def test_names_and_extras_of_a_model(self, tmp_path: Path) -> None:
        models = repository(tmp_path, chat="")
        names = {"prompt_name": "QUERY", "answer_name": "REPLY", "tokens_name": "request_output_len"}
        dialect = dialect_of(str(models), **names, request={"end_id": -1, "stream": False})
        assert dialect.body("chat", "hi", 3) == {
            "QUERY": "hi",
            "request_output_len": 3,
            "stream": False,
            "end_id": -1,
        }
        assert dialect.read({"REPLY": "a"}).text
        assert not dialect.read({"text_output": "a"}).token

    def test_endpoints_name_the_model(self) -> None:
        found = [(endpoint.path, endpoint.trusted) for endpoint in ENGINE.endpoints_for(cell_of())]
        assert found == [("/v2/health/ready", True), ("/v2/health/live", False), ("/v2/models/words/ready", False)]


def ask(answer: bytes, tokens: int = 4, dialect: Generate | None = None) -> Request:
    """Asks a server that sends *answer* and keeps the connection open, as Triton does, unless it is cut short."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)
            if answer.endswith(END):
                ended.wait(10)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    dialect = dialect or dialect_of()
    try:
        return Client("127.0.0.1", listener.getsockname()[1], "words", dialect, time.monotonic()).complete(
            "x", tokens, 9
        )
    finally:
        ended.set()
        thread.join(10)


class TestRealAnswers:
    def test_whole_stream_is_a_whole_answer_with_its_tokens_counted(self) -> None:
        found = ask(ANSWER)
        assert (found.events, found.completion_tokens, found.finish_reason) == (4, 4, "length")
        assert found.first_token == found.first_text
        assert found.done is not None

    def test_fewer_tokens_than_asked_for(self) -> None:
        with pytest.raises(RequestFailed, match="4 tokens came where 5 were asked for"):
            ask(ANSWER, tokens=5)

    def test_where_events_are_no_tokens_none_are_counted(self) -> None:
        found = ask(ANSWER, tokens=5, dialect=Generate(model="words"))
        assert (found.completion_tokens, found.finish_reason) == (None, "length")

    @pytest.mark.parametrize("left", [len(END), len(END) + len(TWO), len(END) + 9])
    def test_stream_that_was_cut_is_no_answer(self, left: int) -> None:
        with pytest.raises(RequestFailed) as caught:
            ask(ANSWER[:-left])
        assert caught.value.kind == "broken"

    @pytest.mark.parametrize(
        ("answer", "words"),
        [(HALF, "out of words"), (REFUSED, "missing required input"), (DEAD, "'words_0_0' is not healthy")],
    )
    def test_error(self, answer: bytes, words: str) -> None:
        with pytest.raises(RequestFailed, match=words) as caught:
            ask(answer)
        assert caught.value.kind == "status"


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"http_port": 8000}, "option 'http_port': the adapter sets this flag itself"),
            ({"model_nam": "x"}, "did you mean 'model_name'?"),
            ({"tokens_as": "header"}, "'header' is not one of 'input', 'parameter'"),
            ({"exit_timeout": -1}, "-1 is not a number of seconds from 0 to 3600"),
        ],
    )
    def test_option(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(EngineError) as caught:
            ENGINE.check(cell_of(**options))
        assert words in str(caught.value)

    def test_container(self) -> None:
        with pytest.raises(EngineError, match="cannot run in a container yet"):
            ENGINE.check(Cell("triton", None, "restart", container=Container(("stop",), 8000)))


def test_fragmentation_cannot_be_measured_and_its_gpus_are_not_known() -> None:
    cell = cell_of()
    assert {"fragmentation", "allocator_fragmentation", "kv_fragmentation"} <= ENGINE.impossible(cell).keys()
    assert ENGINE.gpus(cell) is None


def test_repository_is_not_read_again_once_a_boot_evicted_it(tmp_path: Path) -> None:
    """Its dialect is asked for after the eviction, and what it read would be resident again."""
    cell = cell_of(str(repository(tmp_path, chat='backend: "vllm"')))
    spec = spec_of(ENGINE, cell)
    config = tmp_path / "chat" / "config.pbtxt"
    before = config.stat()
    config.write_text('backend: "none"')
    os.utime(config, ns=(before.st_atime_ns, before.st_mtime_ns))
    dialect = ENGINE.dialect(spec)
    assert isinstance(dialect, Generate)
    assert dialect.tokens_as == "parameter"
