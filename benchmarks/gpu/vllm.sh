#!/usr/bin/env bash
# Boot suites/test_vllm.py on a bare CUDA host that has no network: set up from what was carried there, run, print a table.
#
#   benchmarks/gpu/vllm.sh PARTS OUT [pytest options]
#
# PARTS holds part.NN (a tar.xz of site-packages with vLLM, in pieces) and wheels/ (this package and duckdb for the host's
# Python). OUT gets the DuckDB file, run files and engine's logs in one archive, and the state of the GPU before and after. Called again with the same
# PARTS it sets up nothing anew. The host's own python3 has torch and pytest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/gpu.txt"
echo "before: $(gpu)" | tee -a "$out/gpu.txt"
cp "$here/suites/test_vllm.py" "$work/"
cd "$work"
status=0
# The cases of one module in the order they are written: restart finds what pristine filled.
python3 -m pytest --coldstart test_vllm.py --rootdir "$work" -p no:cacheprovider -p no:randomly --coldstart-store "$store" \
  --coldstart-require vllm --coldstart-keep-logs all --benchmark-json "$out/benchmark.json" "$@" 2>&1 | tee "$out/pytest.txt" || status=$?
sleep 2
echo "after: $(gpu)" | tee -a "$out/gpu.txt"
pgrep -fa 'vllm|EngineCore' | grep -v "$0" | tee "$out/left.txt" || echo "no process of vLLM is left" | tee "$out/left.txt"
cp "$store"/*.duckdb "$out/"
tar -czf "$out/runs-and-logs.tar.gz" -C "$store" runs logs
exit "$status"
