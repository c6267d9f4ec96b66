"""A mistake in a suite is a collection error at file:line that names what is valid, before anything boots."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Inner, text_of

pytestmark = pytest.mark.usefixtures("covered_children")

#: name -> (decorators of a test, what the message says)
MISTAKES: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown_argument": (
        "@pytest.mark.coldstart(**ENGINE, round=3)",
        ("coldstart has no argument 'round'; valid arguments: engine, model, matrix, include, exclude, tier, rounds",),
    ),
    "positional_argument": ('@pytest.mark.coldstart("openai")', ("keyword arguments only, got 'openai'",)),
    "no_engine": ("@pytest.mark.coldstart(rounds=1)", ("coldstart needs engine=",)),
    "unknown_engine": (
        "@pytest.mark.coldstart(engine='llama.cpp')",
        ("unknown engine 'llama.cpp'; valid engines: llamacpp, openai",),
    ),
    "unknown_axis": (
        "@pytest.mark.coldstart(engine='llamacpp', matrix={'context': [1]})",
        ("unknown axis 'context'; valid axes: model, python, command, warmup, tier, env.NAME", "n_ctx"),
    ),
    "unknown_axis_in_exclude": (
        "@pytest.mark.coldstart(engine='llamacpp', exclude=[{'nctx': 1}])",
        ("unknown axis 'nctx'",),
    ),
    "wrong_type": (
        "@pytest.mark.coldstart(engine='llamacpp', options={'n_ctx': '512'})",
        ("option 'n_ctx': '512' is not of type int",),
    ),
    "bool_is_no_int": (
        "@pytest.mark.coldstart(engine='llamacpp', matrix={'n_ctx': [True]})",
        ("option 'n_ctx': True is not of type int",),
    ),
    "wrong_choice": (
        "@pytest.mark.coldstart(engine='llamacpp', options={'flash_attn': 'yes'})",
        ("option 'flash_attn': 'yes' is not one of 'auto', 'on', 'off'",),
    ),
    "unknown_option": (
        "@pytest.mark.coldstart(engine='llamacpp', options={'ctx': 1})",
        ("engine 'llamacpp' has no option 'ctx'; valid options: cache_type_k",),
    ),
    "unknown_tier": (
        "@pytest.mark.coldstart(**{**ENGINE, 'tier': 'cold'})",
        ("unknown tier 'cold'; valid tiers: pristine, scale_out, redeploy, restart",),
    ),
    "impossible_tier": (
        "@pytest.mark.coldstart(**{**ENGINE, 'tier': ['restart', 'wake']})",
        ("engine 'openai' cannot boot at tier 'wake'; valid tiers: pristine, redeploy, restart, scale_out",),
    ),
    "empty_axis": ("@pytest.mark.coldstart(**ENGINE, matrix={'api': []})", ("axis 'api' is empty",)),
    "empty_tiers": ("@pytest.mark.coldstart(**{**ENGINE, 'tier': []})", ("tier=[] is empty",)),
    "axis_of_text": (
        "@pytest.mark.coldstart(**ENGINE, matrix={'api': 'chat'})",
        ("axis 'api': 'chat' is not a list of values",),
    ),
    "all_excluded": (
        "@pytest.mark.coldstart(**ENGINE, matrix={'api': ['chat']}, exclude=[{'api': 'chat'}])",
        ("the matrix is empty: exclude= drops every cell",),
    ),
    "zero_rounds": (
        "@pytest.mark.coldstart(**{**ENGINE, 'rounds': 0})",
        ("rounds=0 is not a whole number from 1",),
    ),
    "negative_rounds": (
        "@pytest.mark.coldstart(**{**ENGINE, 'rounds': -2})",
        ("rounds=-2 is not a whole number from 1",),
    ),
    "zero_requests": (
        "@pytest.mark.coldstart(**{**ENGINE, 'requests': 0})",
        ("requests=0 is not a whole number from 1",),
    ),
    "no_prompt_words": ("@pytest.mark.coldstart(**ENGINE, prompt_words=[0])", ("prompt_words=[0]",)),
    "wrong_port": ("@pytest.mark.coldstart(**ENGINE, port=70000)", ("port=70000 is not a port number",)),
    "env_of_numbers": ("@pytest.mark.coldstart(**ENGINE, env={'A': 1})", ("env['A']=1 is not a string",)),
    "same_cell_twice": (
        "@pytest.mark.coldstart(**ENGINE, matrix={'api': ['chat', 'chat']})",
        ("two cells are the same: 'api:chat-restart' and 'api:chat-restart'",),
    ),
    "two_cells_one_id": (
        "@pytest.mark.coldstart(**ENGINE, matrix={'served_model': ['a b', 'a_b'.replace('_', ',')]})",
        ("two different cells have the id 'served_model:a.b-restart'; name their values with pytest.param",),
    ),
    "unknown_warmup": (
        "@pytest.mark.coldstart(**ENGINE, warmup='long')",
        ("unknown warm-up strategy 'long'; valid strategies: none, prompts",),
    ),
    "unknown_warmup_argument": (
        "@pytest.mark.coldstart(**ENGINE, warmup={'strategy': 'prompts', 'size': 1})",
        ("warm-up strategy 'prompts' takes no 'size'; valid arguments: count, lengths, tokens",),
    ),
    "bad_warmup_value": (
        "@pytest.mark.coldstart(**ENGINE, warmup={'strategy': 'prompts', 'count': 0})",
        ("count must be whole numbers from 1, got 0",),
    ),
    "slo_not_a_bound": (
        "@fake\n@pytest.mark.slo('cold_start<=1')",
        ("SLO 'cold_start<=1': '1' has no unit; valid units here: 'ns'",),
    ),
    "slo_not_text": ("@fake\n@pytest.mark.slo(10)", ("slo(10): a bound is a string",)),
    "slo_keyword": ("@fake\n@pytest.mark.slo(cold_start='10s')", ("slo takes bounds as strings",)),
    "slo_empty": ("@fake\n@pytest.mark.slo()", ("slo needs at least one bound",)),
    "missing_interpreter": (
        "@pytest.mark.coldstart(engine='llamacpp', python='/no/such/python')",
        ("python='/no/such/python' is no executable file",),
    ),
    "missing_model": (
        "@pytest.mark.coldstart(engine='llamacpp', model='/no/such.gguf')",
        ("model '/no/such.gguf': no such file", "'smollm2-135m-instruct'"),
    ),
    "not_gguf": (
        "@pytest.mark.coldstart(engine='llamacpp', model='wrong.gguf')",
        ("model 'wrong.gguf' is not a GGUF file: it begins with b'PK\\x03\\x04'",),
    ),
    "no_weights": (
        "@pytest.mark.coldstart(**ENGINE, options={'weights': '/no/weights'})",
        ("option 'weights': '/no/weights' does not exist",),
    ),
    "docker_alone": (
        "@pytest.mark.coldstart(engine='openai', command=['docker', 'run', 'image', '{port}'])",
        ("starts a container", "Give container={'stop': [...], 'port': ..., 'paths': {...}} too"),
    ),
    "container_keys": (
        "@pytest.mark.coldstart(engine='openai', command=['docker'], container={'stop': ['x'], 'ports': 1})",
        ("container= needs exactly the keys", "missing: ['paths', 'port'], unknown: ['ports']"),
    ),
    "no_command": (
        "@pytest.mark.coldstart(engine='openai')",
        ("engine 'openai' needs command=[...]", "with {port} in it"),
    ),
    "no_port": (
        "@pytest.mark.coldstart(engine='openai', command=['serve'])",
        ("engine 'openai': command= has no {port}",),
    ),
    "command_of_text": (
        "@pytest.mark.coldstart(engine='openai', command='serve {port}')",
        ("command='serve {port}' is not a list of words",),
    ),
    "near_miss_of_vllm": (
        "@pytest.mark.coldstart(engine='vllm', options={'max_num_seq': 1})",
        ("engine 'vllm' has no option 'max_num_seq'; did you mean 'max_num_seqs'? valid options: ",),
    ),
    "near_miss_axis_of_vllm": (
        "@pytest.mark.coldstart(engine='vllm', matrix={'enforce_eagre': [True]})",
        ("unknown axis 'enforce_eagre'; did you mean 'enforce_eager'? valid axes: model, python",),
    ),
    "flag_of_vllm": (
        "@pytest.mark.coldstart(engine='vllm', matrix={'--seed': [1]})",
        ("engine 'vllm' has no option '--seed'; did you mean 'seed'?",),
    ),
    "reserved_option_of_vllm": (
        "@pytest.mark.coldstart(engine='vllm', options={'port': 8000})",
        ("engine 'vllm': option 'port' is set by the boot itself; the suite's model= and port= decide it",),
    ),
    "restore_of_vllm": (
        "@pytest.mark.coldstart(engine='vllm', tier='restore')",
        ("engine 'vllm' cannot boot at tier 'restore'; valid tiers: pristine, redeploy, restart, scale_out, wake",),
    ),
    "model_of_vllm": (
        "@pytest.mark.coldstart(engine='vllm', model='./none')",
        ("model './none': no such folder; valid models: 'random:qwen2-tiny'",),
    ),
    "cut_model_of_vllm": (
        "@pytest.mark.coldstart(engine='vllm', model='cut')",
        ("cut/model.safetensors is cut: it has 4 bytes and no header; copy it again",),
    ),
    "preset_of_transformers": (
        "@pytest.mark.coldstart(engine='transformers', model='random:qwen')",
        ("model 'random:qwen': unknown preset 'qwen'; valid presets: qwen2-tiny",),
    ),
    "wake_of_transformers": (
        "@pytest.mark.coldstart(engine='transformers', tier='wake')",
        ("engine 'transformers' cannot boot at tier 'wake'; valid tiers: pristine, redeploy, restart, scale_out",),
    ),
    "param_of_two": (
        "@pytest.mark.coldstart(**ENGINE, matrix={'api': [pytest.param('chat', 2)]})",
        ("pytest.param in an axis takes one value, got 2",),
    ),
}
NO_FIXTURE = "the test asks for none of the fixtures that boot an engine: cold_boot, coldstart_client, shared_cold_boot"


def test_every_mistake_is_found_at_its_line_before_anything_boots(inner: Inner) -> None:
    """One run over a module for each mistake, and one good module, which does not boot either."""
    (inner.path / "cut").mkdir()
    (inner.path / "cut" / "config.json").write_text("{}")
    (inner.path / "cut" / "model.safetensors").write_bytes(b"\x08\0\0\0")
    (inner.path / "wrong.gguf").write_bytes(b"PK\x03\x04 a zip archive")
    lines: dict[str, int] = {}
    for name, (decorators, _) in MISTAKES.items():
        source = inner.suite(
            f"{decorators}\ndef test_it(cold_boot):\n    raise AssertionError('ran')\n", f"test_{name}"
        )
        text = source.read_text().splitlines()
        lines[name] = text.index(next(line for line in text if line.startswith(("@pytest.mark", "@fake")))) + 1
    source = inner.suite("@fake\ndef test_it(tmp_path): ...\n", "test_no_fixture")
    inner.suite("@fake\ndef test_good(cold_boot): ...\n", "test_good")
    result = inner.run()
    assert result.ret == 2
    result.assert_outcomes(errors=len(MISTAKES) + 1)
    errors = errors_by_module(result)
    wrong = {}
    for name, (_, words) in MISTAKES.items():
        text = errors.get(f"test_{name}.py", "")
        expected = (f"test_{name}.py:{lines[name]}: test_it: ", *words)
        if missing := [word for word in expected if word not in text]:
            wrong[name] = (missing, text)
    assert wrong == {}
    assert NO_FIXTURE in errors["test_no_fixture.py"]
    assert "Traceback" not in text_of(result)
    assert inner.nothing_booted()


def errors_by_module(result: pytest.RunResult) -> dict[str, str]:
    """The text below each ``ERROR collecting`` line, its line breaks taken out."""
    found: dict[str, str] = {}
    module = ""
    for line in result.outlines:
        if " ERROR collecting " in line:
            module = line.split(" ERROR collecting ")[1].split()[0]
        elif line.startswith("==="):
            module = ""
        elif module:
            found[module] = found.get(module, "") + line.removeprefix("E").strip()
    return found


def test_an_interpreter_that_does_not_run_is_a_skip_with_what_enables_it(inner: Inner) -> None:
    """It exists, so the suite is right; that it is broken is a state of the host."""
    broken = inner.path / "python-broken"
    broken.write_text("#!/bin/sh\nexit 9\n")
    broken.chmod(0o755)
    inner.suite(f"@pytest.mark.coldstart(engine='llamacpp', python={str(broken)!r})\ndef test_a(cold_boot): ...\n")
    result = inner.run("-rs")
    assert result.ret == 5
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*interpreter {broken} does not exist or does not run; to enable: fix python=*"])


def test_mistakes_do_not_matter_to_runs_that_boot_nothing(inner: Inner) -> None:
    inner.suite("@pytest.mark.coldstart(engine='nix', rounds=0)\ndef test_a(cold_boot): ...\n")
    assert inner.idle().ret == 0
