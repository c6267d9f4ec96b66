#!/usr/bin/env bash
# Where boots of vLLM, SGLang and LMDeploy go on a bare CUDA host without network: first and second boot of each.
#
#   benchmarks/gpu/phases.sh PARTS OUT [pytest options]
#
# PARTS holds part.NN, sglang.part.NN and lmdeploy.part.NN (each a tar.xz of a site-packages, in pieces) and wheels/ (this
# package and duckdb). OUT gets what `coldstart show` says of each boot, the store, and an archive of logs and samples.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
parts=$(cd "$1" && pwd); out=$(mkdir -p "$2" && cd "$2" && pwd); shift 2
export COLDSTART_WORK=${COLDSTART_GPU_WORK:-/tmp/coldstart-phases}
export COLDSTART_SITES=$COLDSTART_WORK/sites COLDSTART_MODELS=$COLDSTART_WORK/models COLDSTART_MODEL=$COLDSTART_WORK/model
tools=$COLDSTART_WORK/tools; store=$COLDSTART_WORK/store
# NVLink multicast stays off on shared hosts.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 TM_COMM_NVLS_ENABLE=0
export PYTHONPATH=$tools

if [[ ! -e $COLDSTART_WORK/ready ]]; then
  mkdir -p "$tools" "$COLDSTART_SITES"/{vllm,sglang,lmdeploy} "$COLDSTART_WORK"/home-{vllm,sglang,lmdeploy}
  cat "$parts"/part.* | xz -dc -T0 | tar -xf - -C "$COLDSTART_SITES/vllm"
  for name in sglang lmdeploy; do
    if compgen -G "$parts/$name.part.*" > /dev/null; then
      cat "$parts/$name".part.* | xz -dc -T0 | tar -xf - -C "$COLDSTART_SITES/$name"
    fi
  done
  for wheel in "$parts"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$tools"; done
  python3 -m pytest_coldstart.cli make-model qwen2-0.5b --output "$COLDSTART_MODEL"
  touch "$COLDSTART_WORK/ready"
fi

cp "$here/benchmarks/gpu/test_phases.py" "$COLDSTART_WORK/"
cd "$COLDSTART_WORK"
status=0
python3 -m pytest --coldstart test_phases.py --rootdir "$COLDSTART_WORK" -p no:cacheprovider -p no:randomly --benchmark-disable \
  --coldstart-store "$store" --coldstart-keep-logs all --coldstart-require vllm "$@" 2>&1 | tee "$out/pytest.txt" || status=$?
nvidia-smi --query-gpu=memory.used --format=csv,noheader
python3 - "$store" > "$out/boots.txt" <<'P'
import subprocess, sys
import duckdb
store = sys.argv[1]
rows = duckdb.connect(f"{store}/coldstart.duckdb", read_only=True).execute("SELECT boot_id FROM boot ORDER BY started_at").fetchall()
for (boot,) in rows:
    print("=" * 100, flush=True)
    subprocess.run([sys.executable, "-m", "pytest_coldstart.cli", "show", boot, "--store", store])
P
cp "$store"/*.duckdb "$out/"
tar -czf "$out/logs.tar.gz" -C "$store" runs logs
exit "$status"
