"""What differs between two sides, and what is masked since it is other in each boot."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_coldstart.gate.comparison import Difference, SideBoot
from pytest_coldstart.gate.differences import differences
from tests.store.samples import HEADER, record


def boot(number: int = 1, header: dict[str, Any] | None = None, **changes: Any) -> SideBoot:
    """A boot as a store writes it: with a port, a log and paths of its own."""
    home = f"/data/home{number}"
    plain = {
        "run_id": f"20261130T1747{number:02}-1",
        "log_path": f"{home}/logs/b-{number}.log",
        "command": ("/opt/v/bin/vllm", "serve", "/m/tiny", "--port", str(20000 + number), "--max-model-len", "2048"),
        "environment": {
            "COLDSTART_PROBE_OUT": f"{home}/logs/b-{number}.probe",
            "TRITON_CACHE_DIR": f"{home}/caches/c0ffee/triton",
            "TMPDIR": f"/tmp/pytest-{number}/x",
            "MASTER": f"127.0.0.1:{20000 + number}",
            "HF_TOKEN": "***",
        },
    }
    merged = {name: {**plain[name], **value} if name == "environment" else value for name, value in changes.items()}
    return SideBoot(record(f"b-{number}", **{**plain, **merged}), {**HEADER, **(header or {})})


def test_ports_paths_and_ids_that_are_other_in_each_boot_are_no_difference() -> None:
    assert differences([boot(1), boot(2)], [boot(3), boot(4)]) == ()


def test_versions_machine_model_and_commit_are_compared() -> None:
    base = boot(1, versions={"vllm": "0.25.1", "torch": "2.11.0"}, model={"name": "tiny", "digest": "aa", "path": "/x"})
    other = {"driver": "580.1", "gpu": None, "git_commit": "fedcba9876543210"}
    head = boot(
        2,
        other,
        versions={"vllm": "0.26.0", "torch": "2.11.0", "triton": "3.6"},
        model={"name": "tiny", "digest": "bb", "path": "/y"},
    )
    assert differences([base], [head]) == (
        Difference("versions.vllm", "0.25.1", "0.26.0"),
        Difference("versions.triton", "none", "3.6"),
        Difference("model.digest", "aa", "bb"),
        Difference("gpu", "NVIDIA H200", "none"),
        Difference("driver", "570.86.15", "580.1"),
        Difference("git_commit", "0123abc", "fedcba987654"),
    )


def test_a_value_that_differs_within_a_side_varies_and_is_told_only_where_the_other_side_has_others() -> None:
    old, new = boot(1, versions={"torch": "2.10"}), boot(2, versions={"torch": "2.11"})
    assert differences([old], [old, new]) == (Difference("versions.torch", "2.10", "varies (2.10; 2.11)"),)
    assert differences([old, new], [new, old]) == ()


def test_a_boot_that_failed_before_its_versions_were_read_says_nothing_about_them() -> None:
    assert differences([boot(1)], [boot(2, versions={}, command=())]) == ()


def test_an_option_is_told_once_though_the_command_has_it_too() -> None:
    base = boot(1, cell={"options": {"enforce_eager": True}}, command=("vllm", "serve", "--enforce-eager"))
    head = boot(
        2, cell={"options": {"enforce_eager": False}}, command=("vllm", "serve", "--no-enforce-eager", "--such=1")
    )
    assert differences([base], [head]) == (
        Difference("options.enforce_eager", "true", "false"),
        Difference("command.--such", "none", "1"),
    )


def test_words_of_a_command_are_options_with_values_and_arguments() -> None:
    base = boot(1, command=("server", "n_ctx=512", "model.gguf", "--verbose", "--port=4711"))
    head = boot(2, command=("server", "n_ctx=1024", "other.gguf", "--port=4712"))
    assert differences([base], [head]) == (
        Difference("command.n_ctx", "512", "1024"),
        Difference("command.arguments", "model.gguf", "other.gguf"),
        Difference("command.--verbose", "given", "none"),
    )


@pytest.mark.parametrize("name", ["HF_TOKEN", "MY_API_KEY", "DB_PASSWORD"])
def test_of_what_may_be_a_secret_the_name_alone_is_told(name: str) -> None:
    head = boot(2, environment={name: "value-of-a-secret"})
    base = boot(1)
    del base.record.environment["HF_TOKEN"]
    found = {item.what: item for item in differences([base], [head])}
    assert found[f"environment.{name}"] == Difference(f"environment.{name}", "none", "set, and hidden")
    assert "value-of-a-secret" not in repr(found)


def test_a_token_in_an_ordinary_variable_is_masked_and_long_values_are_cut() -> None:
    head = boot(2, environment={"URL": "https://hf_abcdefghijklmnopqrstuvwx@host", "LONG": "x" * 999, "EMPTY": ""})
    found = {item.what: item.head for item in differences([boot(1)], [head])}
    assert "abcdefghijkl" not in found["environment.URL"]
    assert len(found["environment.LONG"]) == 300
    assert found["environment.EMPTY"] == "empty"
