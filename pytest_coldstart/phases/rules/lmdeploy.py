"""LMDeploy: TurboMind and the PyTorch engine."""

from __future__ import annotations

from pytest_coldstart.phases.rules.rule import Rule

_TURBOMIND = (
    Rule("load_weights", "lmdeploy.turbomind.turbomind", "_from_hf", "TurboMind: model"),
    Rule("load_weights", "lmdeploy.turbomind.model_loader", "export*", "TurboMind"),
    Rule("load_weights", "lmdeploy.turbomind.turbomind", "_process_weights", "TurboMind: weight conversion"),
    Rule("load_weights", "lmdeploy.turbomind.checkpoint", "create_checkpoint", "TurboMind"),
    Rule("device_init", "lmdeploy.turbomind.turbomind", "_create_weight*", "TurboMind: contexts"),
    # Native code that takes the cache's memory and tunes its kernels in one call.
    Rule("warmup", "lmdeploy.turbomind.turbomind", "_create_engine", "TurboMind: engine, cache and kernel tuning"),
    Rule("load_weights", "lmdeploy.utils", "get_model", "download"),
)

_PYTORCH = (
    Rule("load_weights", "lmdeploy.pytorch.weight_loader.*", "load_model_weights", "LMDeploy"),
    Rule("load_weights", "lmdeploy.pytorch.engine.model_agent*", "build_model", "LMDeploy"),
    Rule("kv_alloc", "lmdeploy.pytorch.engine.model_agent*", "build_cache_engine", "LMDeploy"),
    Rule("graph_capture", "lmdeploy.pytorch.engine.model_agent*", "build_graph_runner", "LMDeploy"),
    Rule("warmup", "lmdeploy.pytorch.engine.model_agent*", "warmup", "LMDeploy"),
)

_SERVER = (
    Rule("tokenizer", "lmdeploy.tokenizer", "__init__"),
    Rule("tokenizer", "lmdeploy.tokenizer", "indexes_containing_token", "stop words"),
    Rule("tokenizer", "lmdeploy.utils", "_stop_words", "stop words"),
    Rule("server_start", "lmdeploy.serve.openai.api_server", "set_parsers", "parsers"),
    Rule("server_start", "lmdeploy.serve.openai.api_server", "mount_metrics", "metrics"),
)

RULES: tuple[Rule, ...] = (*_TURBOMIND, *_PYTORCH, *_SERVER)
