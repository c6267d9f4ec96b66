#!/usr/bin/env bash
# What this tool costs a boot of vLLM on a bare CUDA host: benchmarks/engine_pairs.py. Arguments as vllm.sh, then those of engine_pairs.py.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$work"
python3 "$here/benchmarks/engine_pairs.py" --engine vllm --model "$COLDSTART_VLLM_MODEL" --option enforce_eager=true \
  --option max_model_len=1024 --env HF_HUB_OFFLINE=1 --caches "$work/pair-caches" --json "$@" 2>&1 | tee "$out/pairs.txt"
echo "after: $(gpu)"
