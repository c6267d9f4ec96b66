"""SGLang: server, scheduler and its model runner."""

from __future__ import annotations

from pytest_coldstart.phases.rules.rule import Rule

_SCHEDULER = (
    Rule("distributed_init", "sglang.srt.model_executor.model_runner", "init_torch_distributed"),
    Rule("distributed_init", "sglang.srt.distributed.parallel_state", "init*"),
    Rule("load_weights", "sglang.srt.model_executor.model_runner", "load_model", "SGLang"),
    Rule("load_weights", "sglang.srt.model_loader.*", "load_model", "SGLang"),
    Rule("load_weights", "sglang.srt.model_loader.*", "load_weights*", "SGLang"),
    Rule("load_weights", "sglang.srt.model_loader.weight_utils", "*_iterator", "SGLang"),
    Rule("kv_alloc", "sglang.srt.model_executor.model_runner", "alloc_memory_pool", "memory pool"),
    Rule("kv_alloc", "sglang.srt.model_executor.model_runner_kv_cache_mixin", "init_memory_pool*", "memory pool"),
    Rule("kv_alloc", "sglang.srt.managers.scheduler", "init_*memory_pool*", "memory pool"),
    Rule("kv_alloc", "sglang.srt.mem_cache.memory_pool", "__init__", "memory pool"),
    Rule("warmup", "sglang.srt.model_executor.model_runner", "init_cublas", "cuBLAS"),
    Rule("warmup", "sglang.srt.model_executor.model_runner", "init_attention_backend*", "attention backend"),
    Rule("warmup", "sglang.srt.model_executor.runner.base_runner", "warmup", "kernels"),
    Rule("compile", "sglang.srt.model_executor.*", "_flashinfer_autotune", "kernel autotuning: FlashInfer"),
    Rule("graph_capture", "sglang.srt.model_executor.model_runner", "init_*cuda_graph*", "CUDA graphs"),
    Rule("graph_capture", "sglang.srt.model_executor.runner.*", "capture*", "CUDA graphs"),
    Rule("graph_capture", "sglang.srt.model_executor.*graph_runner", "capture*", "CUDA graphs"),
    Rule("tokenizer", "sglang.srt.managers.scheduler", "init_tokenizer"),
    Rule("server_start", "sglang.srt.managers.scheduler", "init_grammar_manager", "scheduler"),
    Rule("server_start", "sglang.srt.managers.scheduler", "init_schedule_policy", "scheduler"),
    # A loop that asks for requests without a pause; what it does for one is told by the frames below it.
    Rule("", "sglang.srt.managers.scheduler", "event_loop_*", wait="idle"),
    Rule("", "sglang.srt.managers.detokenizer_manager", "event_loop", wait="idle"),
)

_KERNELS = (
    Rule("compile", "sglang.jit_kernel.utils", "load_jit", "kernel JIT: SGLang"),
    Rule("compile", "sglang.srt.layers.deep_gemm_wrapper.*", "*compile*", "kernel JIT: DeepGEMM"),
    Rule("compile", "sglang.srt.compilation.*", "compile*", "torch.compile"),
)

_SERVER = (
    Rule("imports", "sglang.srt.plugins*", "load_plugins*", "plugins"),
    Rule("imports", "sglang.srt.plugins.hook_registry", "_propagate_patch", "plugins"),
    Rule("", "sglang.srt.entrypoints.engine", "_wait_for_scheduler_ready", wait="children"),
    Rule("", "sglang.srt.entrypoints.engine", "wait_for_ready", wait="children"),
    Rule("tokenizer", "sglang.srt.utils.hf_transformers*", "get_tokenizer"),
    Rule("tokenizer", "sglang.srt.utils.hf_transformers*", "get_processor", "processor"),
    Rule("tokenizer", "sglang.srt.managers.tokenizer_manager", "init_tokenizer*"),
    Rule("tokenizer", "sglang.srt.managers.template_manager", "initialize_templates", "chat template"),
    Rule("server_start", "sglang.srt.server_args", "prepare_server_args", "configuration"),
    Rule("server_start", "sglang.srt.server_args", "__post_init__", "configuration"),
    # A request to itself: what the scheduler then does says more.
    Rule("warmup", "sglang.srt.entrypoints.http_server", "_execute_server_warmup", "request", wait="children"),
    Rule("warmup", "sglang.srt.entrypoints.warmup", "execute_warmups", "request", wait="children"),
)

RULES: tuple[Rule, ...] = (*_SCHEDULER, *_KERNELS, *_SERVER)
