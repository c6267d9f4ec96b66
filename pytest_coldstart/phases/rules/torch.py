"""PyTorch, Triton and the libraries that compile kernels when they are first called."""

from __future__ import annotations

from pytest_coldstart.phases.rules.rule import Rule

_DEVICE = (
    Rule("device_init", "torch.cuda", "_lazy_init", "CUDA context"),
    Rule("device_init", "torch.cuda", "init", "CUDA context"),
    Rule("device_init", "torch.cuda", "set_device", "CUDA context"),
    Rule("device_init", "torch.cuda", "is_available", "CUDA driver"),
    Rule("device_init", "torch.cuda", "device_count", "CUDA driver"),
    Rule("device_init", "torch.cuda", "_raw_device_count_nvml", "CUDA driver"),
    Rule("device_init", "torch.cuda", "get_device_properties", "CUDA context"),
    Rule("device_init", "torch.cuda", "get_device_capability", "CUDA context"),
    Rule("device_init", "torch.xpu", "_lazy_init", "XPU context"),
    Rule("device_init", "pynvml*", "nvmlInit*", "NVML"),
)

_DISTRIBUTED = (
    Rule("distributed_init", "torch.distributed.distributed_c10d", "init_process_group", wait="peers"),
    Rule("distributed_init", "torch.distributed.distributed_c10d", "_new_process_group_helper", wait="peers"),
    Rule("distributed_init", "torch.distributed.distributed_c10d", "_store_based_barrier", wait="peers"),
    Rule("distributed_init", "torch.distributed.distributed_c10d", "new_group", wait="peers"),
    Rule("distributed_init", "torch.distributed.distributed_c10d", "_new_group_with_tag", wait="peers"),
    Rule("distributed_init", "torch.distributed.rendezvous", "*_handler", wait="peers"),
    Rule("distributed_init", "torch.distributed.rendezvous", "_create_c10d_store", wait="peers"),
    Rule("distributed_init", "torch.distributed.device_mesh", "_init_process_groups", wait="peers"),
    Rule("", "torch.distributed.distributed_c10d", "barrier", wait="peers"),
    Rule("", "torch.distributed.distributed_c10d", "monitored_barrier", wait="peers"),
    Rule("", "torch.distributed.distributed_c10d", "broadcast*", wait="peers"),
    Rule("", "torch.distributed.distributed_c10d", "all_*", wait="peers"),
)

_WEIGHTS = (
    Rule("load_weights", "torch.serialization", "load", "torch.load"),
    Rule("load_weights", "safetensors.torch", "load*", "safetensors"),
    Rule("load_weights", "runai_model_streamer*", "*", "Run:ai streamer"),
    Rule("load_weights", "gguf.gguf_reader", "__init__", "GGUF"),
)

_DYNAMO = (
    Rule("compile", "torch._dynamo.convert_frame", detail="Dynamo"),
    Rule("compile", "torch._dynamo.symbolic_convert", detail="Dynamo"),
    Rule("compile", "torch._dynamo.output_graph", "compile_and_call_fx_graph", "Dynamo"),
    Rule("compile", "torch._dynamo.aot_compile*", "deserialize*", "load of a compiled model"),
    Rule("compile", "torch._dynamo.aot_compile*", "aot_compile*", "Dynamo"),
    Rule("compile", "torch._functorch.aot_autograd", "aot_*", "AOTAutograd"),
    Rule("compile", "torch._functorch._aot_autograd.*", "load*", "AOTAutograd cache"),
    Rule("compile", "torch._functorch._aot_autograd.*", "*compile*", "AOTAutograd"),
)

_INDUCTOR = (
    Rule("compile", "torch._inductor.compile_fx", "compile_fx*", "Inductor"),
    Rule("compile", "torch._inductor.compile_fx", "_compile_fx*", "Inductor"),
    Rule("compile", "torch._inductor.compile_fx", "fx_codegen_and_compile", "Inductor"),
    Rule("compile", "torch._inductor.compile_fx", "codegen_and_compile", "Inductor"),
    Rule("compile", "torch._inductor.standalone_compile", "standalone_compile", "Inductor"),
    Rule("compile", "torch._inductor.standalone_compile", "load", "load of a compiled graph"),
    Rule("compile", "torch._inductor", "standalone_compile", "Inductor"),
    Rule("compile", "torch._inductor.graph", "compile_to_*", "Inductor"),
    Rule("compile", "torch._inductor.codecache", "load*", "Inductor: code cache"),
    Rule("compile", "torch._inductor.codecache", "_load*", "Inductor: code cache"),
    Rule("compile", "torch._inductor.codecache", "*compile*", "Inductor: code cache"),
    # Generated code that is loaded as a module.
    Rule("compile", "torch._inductor.runtime.compile_tasks.*", "<module>", "Inductor: code cache"),
    Rule("compile", "torch._inductor.output_code", "post_compile", "Inductor: code cache"),
    Rule("compile", "torch._inductor.cpp_builder", "build", "C++ compiler"),
    Rule("compile", "torch._inductor.cpp_builder", "run_compile_cmd", "C++ compiler"),
    Rule("compile", "torch._inductor.async_compile", "wait", "Inductor: workers"),
    Rule("compile", "torch._inductor.async_compile", "_wait_futures", "Inductor: workers"),
    Rule("compile", "torch._inductor.async_compile", "_compile_*", "Inductor: workers"),
    Rule("compile", "torch._inductor.runtime.triton_heuristics", "precompile", "Inductor: Triton kernels"),
    Rule("compile", "torch._inductor.runtime.triton_heuristics", "autotune_to_one_config", "Inductor: autotuning"),
    Rule("compile", "torch._inductor.select_algorithm", "__call__", "Inductor: autotuning"),
    Rule("", "torch._inductor.compile_worker.__main__", "main", wait="idle", leaf=True),
    Rule("", "torch._inductor.compile_worker.subproc_pool", "_read_thread", wait="idle"),
    Rule("", "torch._inductor.compile_worker.subproc_pool", "main", wait="idle", leaf=True),
    Rule("", "torch._inductor.compile_worker.subproc_pool", "_recv_msg", wait="idle"),
)

_KERNELS = (
    Rule("compile", "torch.utils.cpp_extension", "load*", "C++ extension"),
    Rule("compile", "torch.utils.cpp_extension", "_jit_compile", "C++ extension"),
    Rule("compile", "torch.utils.cpp_extension", "_run_ninja_build", "C++ extension"),
    Rule("compile", "triton.compiler.compiler", "compile", "kernel JIT: Triton"),
    Rule("compile", "triton.compiler.compiler", "_init_handles", "kernel JIT: Triton, load"),
    Rule("compile", "triton.runtime.jit", "_do_compile", "kernel JIT: Triton"),
    Rule("compile", "triton.runtime.jit", "create_binder", "kernel JIT: Triton"),
    Rule("compile", "triton.runtime.build", "_build", "kernel JIT: Triton launcher"),
    Rule("compile", "triton.runtime.build", "compile_module_from_src", "kernel JIT: Triton launcher"),
    Rule("compile", "triton.runtime.autotuner", "_bench", "kernel autotuning: Triton"),
    Rule("compile", "flashinfer.jit.core", "build*", "kernel JIT: FlashInfer"),
    Rule("compile", "flashinfer.jit.core", "load", "kernel JIT: FlashInfer, load"),
    Rule("compile", "flashinfer.jit.cpp_ext", "run_ninja", "kernel JIT: FlashInfer"),
    Rule("compile", "flashinfer.jit.cubin_loader", "get_*", "kernel JIT: FlashInfer, download"),
    Rule("compile", "flashinfer.autotuner", "choose_one", "kernel autotuning: FlashInfer"),
    Rule("compile", "tvm_ffi.cpp.extension", "build*", "kernel JIT: TVM FFI"),
    Rule("compile", "tvm_ffi.cpp.extension", "load*", "kernel JIT: TVM FFI"),
    Rule("compile", "tvm_ffi.cpp.extension", "_build*", "kernel JIT: TVM FFI"),
    Rule("compile", "tilelang.jit*", "compile*", "kernel JIT: TileLang"),
    Rule("compile", "cutlass.base_dsl.compiler", "compile*", "kernel JIT: CuTe DSL"),
    Rule("compile", "cutlass.base_dsl.dsl", "compile_and_*", "kernel JIT: CuTe DSL"),
    Rule("compile", "numba.core.dispatcher", "compile", "numba"),
)

_GRAPHS = (
    Rule("graph_capture", "torch.cuda.graphs", "capture_begin", "CUDA graphs"),
    Rule("graph_capture", "torch.cuda.graphs", "capture_end", "CUDA graphs"),
)

RULES: tuple[Rule, ...] = (
    *_DEVICE,
    *_DISTRIBUTED,
    *_WEIGHTS,
    *_DYNAMO,
    *_INDUCTOR,
    *_KERNELS,
    *_GRAPHS,
)
