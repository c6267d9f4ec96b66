"""Names of engines' own spans -> the phases that each covers, as data.

Read off the sources of vLLM 0.19.1, 0.25.1, 0.32.0 and 0.33.0 and off real boots. A span that covers several
phases says what they took together; one that covers whatever a part of the engine happens to do is in
``LEFT_OUT``, with the reason, since a number about it would be compared with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Engine -> span -> phases.
SPAN_PHASES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {
        # The worker's init_device also makes the process groups, before its first look at the memory.
        "Init device": ("device_init", "distributed_init"),
        # Building the layers and filling them: one takes the other in, and all are counted once.
        "Loading (GPU)": ("load_weights",),
        "Loading (CPU)": ("load_weights",),
        "Load model": ("load_weights",),
        "Initialize model": ("load_weights",),
        "Load weights": ("load_weights",),
        "Download weights - HF": ("load_weights",),
        "Allocate KV cache": ("kv_alloc",),
        # "Inductor compilation" takes in one "Compile graph" for each piece of the model.
        "Inductor compilation": ("compile",),
        "Compile graph": ("compile",),
        "Capture model": ("graph_capture",),
        # Compiles the sizes that are left, warms kernels up, then captures the graphs.
        "Warmup (GPU)": ("compile", "warmup", "graph_capture"),
        # A first pass through the model, which compiles it.
        "Warmup (CPU)": ("compile", "warmup"),
        "DeepGemm warmup": ("warmup",),
        "CuTeDSL warmup": ("warmup",),
        "MiniMax M3 MSA warmup": ("warmup",),
        "DeepSeek V4 mHC warmup": ("warmup",),
        # Checks the arguments and binds the port.
        "API server setup": ("server_start",),
    },
}

#: Engine -> span -> why no reading is made of it.
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "Overall Loading": "from the front end's first wait to the engine's end: every phase but its own imports",
        "AsyncMPClient init": "the same as Overall Loading",
        "SyncMPClient init": "the same as Overall Loading",
        "EngineCoreProc init": "every phase of the engine's process after its imports",
        "Executor init": "imports of the worker, device and weights, and a wait for workers where there are several",
        "Worker init": "imports, and whatever the worker's class does in its constructor",
        "Prepare model": "profile, compile, KV cache, warm-up and graphs, each of which has a span of its own or none",
        "llm_request": "a request",
    },
}
