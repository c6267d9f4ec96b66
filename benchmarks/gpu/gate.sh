#!/usr/bin/env bash
# `coldstart gate` with both sides booted now, on a bare CUDA host without network:
#
#   benchmarks/gpu/gate.sh PARTS OUT [gate options]
#
# Both sides are vLLM 0.25.1 in a virtual environment of its own. That of the head never writes bytecode, as an image with a
# read-only file system: each of its processes compiles every module it imports. What the gate should find: regressed,
# phase imports, and the counter of compiled bytecode. PARTS: as for vllm.sh, its wheels with scipy and ruptures.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
export PYTHONPATH=$tools
for side in base head; do
  [[ -e $work/$side ]] && continue
  python3 -m venv --system-site-packages --without-pip "$work/$side"
  packages=$("$work/$side/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # The host's own Python may be a virtual environment too: its torch comes after what was carried here.
  { echo "$site"; python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))'; } > "$packages/vllm.pth"
done
echo 'import sys; sys.dont_write_bytecode = True' > "$packages/frozen.pth"
cp "$here/benchmarks/gpu/test_gate.py" "$work/"
cd "$work"
status=0
python3 -m pytest_coldstart.cli gate --base "python:vllm=$work/base/bin/python" --head "python:vllm=$work/head/bin/python" --store "$store" \
  --json "$out/gate.json" --markdown "$out/gate.md" "$@" test_gate.py > >(tee "$out/gate.txt") 2>&1 || status=$?
sleep 2
echo "exit status $status"
echo "after: $(gpu)" | tee "$out/gpu.txt"
pgrep -fa 'vllm|EngineCore' | grep -v "$0" || echo "no process of vLLM is left"
cp "$store"/*.duckdb "$out/" || true
tar -czf "$out/runs-and-logs.tar.gz" -C "$store" runs logs || true
echo "$status" > "$out/done"
