"""Hugging Face transformers, tokenizers and `transformers serve`."""

from __future__ import annotations

from pytest_coldstart.phases.rules.rule import Rule

_WEIGHTS = (
    Rule("load_weights", "transformers.modeling_utils", "from_pretrained", "transformers"),
    Rule("load_weights", "transformers.models.auto.auto_factory", "from_pretrained", "transformers"),
    Rule("load_weights", "transformers.modeling_utils", "_load_pretrained_model", "transformers"),
    Rule("load_weights", "transformers.modeling_utils", "load_state_dict", "transformers"),
    Rule("load_weights", "transformers.core_model_loading", "convert_and_load_state_dict_in_model", "transformers"),
    Rule("load_weights", "transformers.core_model_loading", "_materialize_copy", "transformers"),
    Rule("load_weights", "transformers.core_model_loading", "_job", "transformers"),
    Rule("load_weights", "accelerate.utils.modeling", "load_checkpoint_in_model", "accelerate"),
    Rule("load_weights", "accelerate.big_modeling", "dispatch_model", "accelerate"),
)

_TOKENIZER = (
    Rule("tokenizer", "transformers.models.auto.tokenization_auto", "from_pretrained"),
    Rule("tokenizer", "transformers.models.auto.processing_auto", "from_pretrained", "processor"),
    Rule("tokenizer", "transformers.processing_utils", "from_pretrained", "processor"),
    Rule("tokenizer", "transformers.image_processing_*", "from_pretrained", "processor"),
    Rule("tokenizer", "transformers.tokenization_*", "from_pretrained"),
    Rule("tokenizer", "transformers.tokenization_*", "_from_pretrained"),
    Rule("tokenizer", "transformers.tokenization_*", "__init__"),
    Rule("tokenizer", "transformers.tokenization_*", "get_vocab"),
    Rule("tokenizer", "transformers.convert_slow_tokenizer", "convert*"),
    Rule("tokenizer", "mistral_common.tokens.*", "from_*"),
)

_SERVE = (
    Rule("server_start", "transformers.cli.serving.server", "build_server", "routes"),
    Rule("", "transformers.cli.serve", "start_server", wait="threads", leaf=True),
    Rule("load_weights", "transformers.cli.serving.model_manager", "_load_model", "transformers"),
    Rule("tokenizer", "transformers.cli.serving.model_manager", "_load_processor", "processor"),
    Rule("warmup", "transformers.generation.continuous_batching.*", "warmup", "continuous batching"),
    Rule("warmup", "transformers.generation.continuous_batching.*", "run_one_warmup", "continuous batching"),
    Rule("kv_alloc", "transformers.generation.continuous_batching.cache", "__init__", "paged cache"),
)

RULES: tuple[Rule, ...] = (*_WEIGHTS, *_TOKENIZER, *_SERVE)
