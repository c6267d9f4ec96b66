"""What makes vLLM send the spans of its boot: variables, where its version and its environment can."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.engines.vllm_facts import facts_for
from tests.engines.conftest import MakeEnvironment, checkpoint_at, spec_of

VLLM = EngineRegistry().get("vllm")
HERE = "http://127.0.0.1:4711/v1/traces"
OPENTELEMETRY = {
    "opentelemetry_sdk": "1.45.2",
    "opentelemetry_exporter_otlp_proto_http": "1.45.2",
    "opentelemetry_exporter_otlp_proto_grpc": "1.45.2",
}
NOTHING: tuple[list[str], dict[str, str]] = ([], {})


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def tracing(folder: Path, python: Path | None, **fields: Any) -> tuple[list[str], dict[str, str]]:
    model = checkpoint_at(folder / "tiny", "model.safetensors")
    cell = Cell("vllm", str(model), "restart", python=python and str(python), **fields)
    return VLLM.tracing(spec_of(VLLM, cell), HERE)


def test_engine_core_and_workers_find_the_receiver_and_no_request_is_traced(
    environment: MakeEnvironment, tmp_path: Path
) -> None:
    words, variables = tracing(tmp_path, environment(vllm="0.32.0+cpu", **OPENTELEMETRY))
    assert words == [], "the flag would make the front end trace each request"
    assert variables == {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE,
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "500",
    }


@pytest.mark.parametrize(("version", "traces"), [("0.14.1", "no"), ("0.19.1", "yes"), ("0.33.0", "yes")])
def test_versions_that_trace(version: str, traces: str) -> None:
    assert facts_for(version)["spans"] == traces


def test_nothing_where_the_version_or_the_environment_cannot(environment: MakeEnvironment, tmp_path: Path) -> None:
    assert tracing(tmp_path, environment("old", vllm="0.14.1", **OPENTELEMETRY)) == NOTHING
    for name in OPENTELEMETRY:
        some = {key: version for key, version in OPENTELEMETRY.items() if key != name}
        assert tracing(tmp_path, environment(f"no {name}", vllm="0.32.0", **some)) == NOTHING


def test_nothing_where_the_cell_sends_its_traces_elsewhere(environment: MakeEnvironment, tmp_path: Path) -> None:
    python = environment(vllm="0.32.0", **OPENTELEMETRY)
    assert tracing(tmp_path, python, options={"otlp_traces_endpoint": "http://tempo:4318"}) == NOTHING
    assert tracing(tmp_path, python, env={"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo:4318"}) == NOTHING


def test_command_whose_environment_is_not_known_gets_the_variables(tmp_path: Path) -> None:
    _, variables = tracing(tmp_path, None, command=(sys.executable, "serve"))
    assert variables["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == HERE


@pytest.mark.parametrize(
    ("given", "past"),
    [
        ({"HTTP_PROXY": "http://proxy:8080"}, "127.0.0.1"),
        ({"http_proxy": "http://proxy:8080", "no_proxy": "hub.local"}, "hub.local,127.0.0.1"),
        ({"https_proxy": "http://proxy:8080"}, None),
        ({"NO_PROXY": "hub.local"}, None),
    ],
)
def test_spans_go_past_a_proxy(
    environment: MakeEnvironment, tmp_path: Path, given: dict[str, str], past: str | None
) -> None:
    _, variables = tracing(tmp_path, environment(vllm="0.32.0", **OPENTELEMETRY), env=given)
    assert (variables.get("no_proxy"), variables.get("NO_PROXY")) == (past, past)


def test_other_engines_send_none(tmp_path: Path) -> None:
    engine = EngineRegistry().get("openai")
    cell = Cell("openai", None, "restart", command=("server", "{port}"))
    assert engine.tracing(spec_of(engine, cell), HERE) == NOTHING
