"""vLLM: API server, engine core and workers."""

from __future__ import annotations

from pytest_coldstart.phases.rules.rule import Rule

_SERVER = (
    Rule("imports", "vllm.plugins", "load_plugins_by_group", "plugins"),
    Rule("imports", "vllm.plugins", "load_general_plugins", "plugins"),
    Rule("server_start", "vllm.entrypoints.cli.*", "subparser_init", "command line"),
    Rule("server_start", "vllm.entrypoints.*", "make_arg_parser", "command line"),
    Rule("server_start", "vllm.engine.arg_utils", "add_cli_args", "command line"),
    Rule("server_start", "vllm.utils.argparse_utils", "parse_*", "command line"),
    Rule("server_start", "vllm.engine.arg_utils", "create_engine_config", "configuration"),
    Rule("server_start", "vllm.engine.arg_utils", "create_model_config", "configuration"),
    Rule("server_start", "vllm.engine.arg_utils", "__post_init__", "configuration"),
    Rule("server_start", "vllm.config.*", "__post_init__", "configuration"),
    Rule("server_start", "vllm.entrypoints.*", "build_app", "routes"),
    Rule("server_start", "vllm.entrypoints.*", "register_api_routers", "routes"),
    Rule("server_start", "vllm.entrypoints.*", "init_app_state", "application state"),
    Rule("server_start", "vllm.entrypoints.*", "setup_server", "socket"),
    Rule("server_start", "vllm.usage.usage_lib", "_report_*", "usage statistics"),
    Rule("warmup", "vllm.renderers.*", "warmup*", "chat template and processor"),
    Rule("server_start", "vllm.logger", "configure_logging*", "logging"),
    Rule("tokenizer", "vllm.tokenizers*", "from_pretrained"),
    Rule("tokenizer", "vllm.tokenizers*", "maybe_make_thread_pool", "a copy for each thread"),
    Rule("tokenizer", "vllm.tokenizers*", "*get_tokenizer"),
    Rule("tokenizer", "vllm.tokenizers*", "load_tokenizer"),
    Rule("tokenizer", "vllm.tokenizers*", "cached_tokenizer_from_config"),
    Rule("tokenizer", "vllm.transformers_utils.tokenizer*", "*get_*tokenizer*"),
    Rule("", "vllm.v1.engine.utils", "wait_for_engine_startup", wait="children"),
    Rule("", "vllm.v1.utils", "wait_for_completion_or_failure", wait="children"),
    # A child that only looks at a model's class; its imports are its own.
    Rule("imports", "vllm.model_executor.models.registry", "_run_in_subprocess", "model inspection", wait="children"),
    Rule("imports", "vllm.model_executor.models.registry", "inspect_model_cls", "model inspection"),
)

_CORE = (
    Rule("", "vllm.v1.executor.multiproc_executor", "wait_for_ready", wait="children"),
    Rule("", "vllm.v1.executor.multiproc_executor", "get_response", wait="children"),
    Rule("", "vllm.v1.executor.multiproc_executor", "_wait_for_response", wait="children"),
    Rule("", "vllm.distributed.device_communicators.shm_broadcast", "acquire_*", wait="idle"),
    Rule("", "vllm.distributed.device_communicators.shm_broadcast", "dequeue", wait="idle"),
    Rule("", "vllm.distributed.device_communicators.shm_broadcast", "wait", wait="idle"),
    Rule("", "vllm.distributed.device_communicators.shm_broadcast", "wait_until_ready", wait="peers"),
    Rule("kv_alloc", "vllm.v1.core.kv_cache_utils", "get_kv_cache_config*", "plan of the cache"),
    Rule("server_start", "vllm.v1.core.sched.*", "__init__", "scheduler"),
    Rule("server_start", "vllm.v1.structured_output", "__init__", "structured output"),
    Rule("server_start", "vllm.utils.gc_utils", "freeze_gc_heap", "garbage collection"),
)

_WORKER = (
    Rule("device_init", "vllm.platforms.*", "register_triton_kernel_overrides", "platform"),
    Rule("device_init", "vllm.v1.worker.*", "init_device"),
    Rule("device_init", "vllm.v1.worker.*", "_init_workspace_and_model_runner", "model runner"),
    Rule("device_init", "vllm.v1.worker.*", "_make_model_runner", "model runner"),
    Rule("distributed_init", "vllm.v1.worker.*", "init_worker_distributed_environment"),
    Rule("distributed_init", "vllm.distributed.parallel_state", "init*"),
    Rule("distributed_init", "vllm.distributed.parallel_state", "ensure_model_parallel_initialized"),
    Rule("distributed_init", "vllm.distributed.device_communicators.pynccl", "__init__", "NCCL"),
    Rule("load_weights", "vllm.v1.worker.*", "load_model", "vLLM"),
    Rule("load_weights", "vllm.worker.*", "load_model", "vLLM"),
    Rule("load_weights", "vllm.model_executor.model_loader*", "load_model", "vLLM"),
    Rule("load_weights", "vllm.model_executor.model_loader*", "load_weights", "vLLM: weights"),
    Rule("load_weights", "vllm.model_executor.model_loader*", "*_iterator", "vLLM: weights"),
    Rule("load_weights", "vllm.model_executor.model_loader*", "initialize_model", "vLLM: model"),
    Rule("load_weights", "vllm.model_executor.model_loader*", "download_*", "vLLM: download"),
    Rule("load_weights", "vllm.model_executor.model_loader*", "process_weights_after_loading", "vLLM: conversion"),
    Rule("profile", "vllm.v1.worker.*", "determine_available_memory"),
    Rule("profile", "vllm.v1.worker.*", "profile_run"),
    Rule("profile", "vllm.v1.worker.*", "profile_cudagraph_memory", "CUDA graphs"),
    Rule("profile", "vllm.worker.*", "determine_num_available_blocks"),
    Rule("kv_alloc", "vllm.v1.worker.*", "initialize_from_config"),
    Rule("kv_alloc", "vllm.v1.worker.*", "initialize_kv_cache*"),
    Rule("kv_alloc", "vllm.worker.*", "initialize_cache"),
    Rule("kv_alloc", "vllm.v1.worker.*", "get_kv_cache_spec"),
    Rule("warmup", "vllm.v1.worker.*", "compile_or_warm_up_model"),
    Rule("warmup", "vllm.v1.worker.*", "warming_up_model"),
    Rule("warmup", "vllm.v1.worker.*", "warmup_kernels", "kernels"),
    Rule("warmup", "vllm.model_executor.warmup.*", "*warmup*", "kernels"),
    Rule("compile", "vllm.model_executor.warmup.*", "*autotune*", "kernel autotuning"),
    Rule("graph_capture", "vllm.v1.worker.*", "capture_model", "CUDA graphs"),
    Rule("graph_capture", "vllm.v1.worker.*", "_capture_cudagraphs", "CUDA graphs"),
    Rule("graph_capture", "vllm.v1.worker.gpu.cudagraph_utils", "capture", "CUDA graphs"),
)

_COMPILE = (
    Rule("compile", "vllm.compilation.backends", "__call__", "vLLM backend"),
    Rule("compile", "vllm.compilation.backends", "compile", "vLLM backend"),
    Rule("compile", "vllm.compilation.backends", "load", "vLLM backend: cache"),
    Rule("compile", "vllm.compilation.compiler_interface", "compile", "Inductor"),
    Rule("compile", "vllm.compilation.compiler_interface", "load", "load of a compiled graph"),
    Rule("compile", "vllm.compilation.wrapper", "aot_compile", "torch.compile"),
    Rule("compile", "vllm.compilation.decorators", "*load*", "load of a compiled model"),
    Rule("compile", "vllm.compilation.caching", "*deserialize*", "load of a compiled model"),
    Rule("compile", "vllm.compilation.caching", "finalize_loading", "load of a compiled model"),
    Rule("compile", "vllm.compilation.caching", "serialize*", "save of a compiled model"),
    Rule("compile", "vllm.compilation.decorators", "save_aot_compiled_function", "save of a compiled model"),
    Rule("compile", "vllm.compilation.caching", "*load*", "load of a compiled model"),
)

RULES: tuple[Rule, ...] = (*_SERVER, *_CORE, *_WORKER, *_COMPILE)
