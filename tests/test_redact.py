"""Secrets do not reach a file or a terminal; what is no secret stays readable."""

from __future__ import annotations

import pytest

from pytest_coldstart.redact import MASK, Redactor, is_secret

HF = "hf_" + "aBcDeFgHiJkLmNoPqRsT"


@pytest.mark.parametrize(
    "secret",
    [
        HF,
        "ghp_" + "a1" * 18,
        "glpat-" + "x" * 20,
        "sk-" + "Ab3" * 10,
        "xoxb-" + "1234567890-abcdef",
        "AKIA" + "ABCDEFGHIJKLMNOP",
    ],
)
def test_tokens_of_known_forms_are_masked_anywhere_in_a_text(secret: str) -> None:
    assert Redactor({}).text(f"login with {secret} failed") == f"login with {MASK} failed"


def test_passwords_in_urls_and_bearer_headers_are_masked() -> None:
    redactor = Redactor({})
    assert redactor.text("GET https://user:pa55word@host/x?y=1") == f"GET https://{MASK}@host/x?y=1"
    assert redactor.text("Authorization: Bearer abcdefgh12345") == f"Authorization: Bearer {MASK}"
    assert redactor.text("http://127.0.0.1:8000/health") == "http://127.0.0.1:8000/health"


def test_values_of_secret_variables_are_masked_wherever_they_show_up() -> None:
    redactor = Redactor({"MY_API_KEY": "open sesame", "HOME": "/root", "SHORT_TOKEN": "abc"})
    assert redactor.text("key is 'open sesame' in /root") == f"key is '{MASK}' in /root"
    assert redactor.text("abc") == "abc", "too short: it would mask parts of words"


def test_the_longer_of_two_nested_secrets_is_masked_whole() -> None:
    redactor = Redactor({"A_TOKEN": "secret-1", "B_TOKEN": "secret-1-and-more"})
    assert redactor.text("x secret-1-and-more y") == f"x {MASK} y"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["serve", "--api-key", "abc", "--port", "1"], ("serve", "--api-key", MASK, "--port", "1")),
        (["serve", "--api-key=abc"], ("serve", f"--api-key={MASK}")),
        (["serve", "--hf-token", "x"], ("serve", "--hf-token", MASK)),
        (["serve", "--api-key", "--port", "1"], ("serve", "--api-key", "--port", "1")),
        (["env", "HF_TOKEN=abc", "serve"], ("env", f"HF_TOKEN={MASK}", "serve")),
        (["serve", "--model", "m.gguf", "a=b"], ("serve", "--model", "m.gguf", "a=b")),
        (["serve", HF], ("serve", MASK)),
    ],
)
def test_a_command_line_hides_what_follows_a_secret_flag(argv: list[str], shown: tuple[str, ...]) -> None:
    assert Redactor({}).command(argv) == shown


def test_an_environment_is_sorted_and_secret_names_are_masked() -> None:
    redactor = Redactor({})
    found = redactor.environment({"Z": "1", "AWS_SECRET_ACCESS_KEY": "x", "A": f"has {HF}"})
    assert list(found.items()) == [("A", f"has {MASK}"), ("AWS_SECRET_ACCESS_KEY", MASK), ("Z", "1")]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *(("HF_TOKEN", True), ("DB_PASSWORD", True), ("apikey", True), ("API_KEY", True), ("SESSION_KEY", True)),
        *(("GOOGLE_CREDENTIALS", True), ("COOKIE", True), ("PATH", False), ("CUDA_VISIBLE_DEVICES", False)),
        *(("KEYBOARD", False), ("HF_HOME", False), ("AUTHORIZATION", True), ("authToken", True), ("API_TOKENS", True)),
        *(("TOKENIZERS_PARALLELISM", False), ("VLLM_MAX_TOKENS", False), ("GIT_AUTHOR_NAME", False)),
        *(("TOKEN_FILE", True), ("SSH_AUTH_SOCK", True), ("HFTOKEN", True), ("MAX_TOKENS_PER_S", False)),
    ],
)
def test_which_names_are_secret(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@pytest.mark.parametrize("flag", ["--max-tokens", "--n-tokens", "--max-num-batched-tokens", "--tokenizer"])
def test_options_that_count_tokens_or_name_a_tokenizer_stay_readable(flag: str) -> None:
    assert Redactor({}).command(["serve", flag, "512"]) == ("serve", flag, "512")
    assert Redactor({}).command(["serve", f"{flag}=512"]) == ("serve", f"{flag}=512")


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "VLLM_MAX_TOKENS", "GIT_AUTHOR_NAME"])
def test_variables_that_only_sound_like_secrets_stay_readable(name: str) -> None:
    assert Redactor({}).environment({name: "false"}) == {name: "false"}
