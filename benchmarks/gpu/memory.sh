#!/usr/bin/env bash
# Memory of vLLM, LMDeploy and SGLang on a bare CUDA host without network. One call a group, in any order, again and again:
#
#   benchmarks/gpu/memory.sh PARTS OUT GROUP [pytest options]
#
#   small      five cells of vLLM with the 0.5 B model     5 boots
#   large      two cells of vLLM with the 7 B model        2 boots, and the model is made
#   lmdeploy   two cells at two tiers                      4 boots
#   sglang     two cells at two tiers                      4 boots
#   hygiene    [refuse] [between] [kill], all if none is named: hygiene.py; needs vLLM, its kill needs the 7 B model
#   table      the tables of all that the groups have stored
#
# PARTS holds part.NN (vLLM), sglang.part.NN and lmdeploy.part.NN (each a tar.xz of a site-packages, in pieces) and wheels/
# (this package and duckdb); what a group needs of it is unpacked once. OUT gets pytest's output, the tables so far, the
# store, and an archive of logs and independent readings. The same work folder is used by every call.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
parts=$(cd "$1" && pwd); out=$(mkdir -p "$2" && cd "$2" && pwd); group=$3; shift 3
export COLDSTART_WORK=${COLDSTART_GPU_WORK:-/tmp/coldstart-memory}
export COLDSTART_SITES=$COLDSTART_WORK/sites COLDSTART_MODELS=$COLDSTART_WORK/models COLDSTART_READINGS=$COLDSTART_WORK/readings
tools=$COLDSTART_WORK/tools; store=$COLDSTART_WORK/store
# NVLink multicast stays off on shared hosts.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 TM_COMM_NVLS_ENABLE=0
export PYTHONPATH=$tools

# NAME PREFIX: unpacks PREFIX.NN, the pieces of one site-packages.
unpack() {
  [[ -e $COLDSTART_SITES/$1.ready ]] && return
  mkdir -p "$COLDSTART_SITES/$1" && cat "$parts/$2".* | xz -dc -T0 | tar -xf - -C "$COLDSTART_SITES/$1" && touch "$COLDSTART_SITES/$1.ready"
}

# What nvidia-smi says, each second until killed: readings that share nothing with ours. It is started anew each time, since a
# client that stays would keep the driver initialised for boots that should pay for it.
watch_gpus() {
  local now
  while sleep 1; do
    now=$(date +%s.%N)
    smi --query-gpu=uuid,memory.used | sed "s/^/$now, /" >> "$COLDSTART_READINGS/smi-gpus.csv"
    smi --query-compute-apps=gpu_uuid,pid,used_memory | sed "s/^/$now, /" >> "$COLDSTART_READINGS/smi-processes.csv"
  done
}

smi() { nvidia-smi "$@" --format=csv,noheader,nounits || true; }

boot() {
  python3 -m pytest --coldstart test_memory.py --rootdir "$COLDSTART_WORK" -p no:cacheprovider -p no:randomly --benchmark-disable \
    --coldstart-store "$store" --coldstart-keep-logs all -k "$@"
}

run() {
  case $group in
    small | large) unpack vllm part && boot "$group" --coldstart-require vllm "$@" ;;
    lmdeploy) unpack lmdeploy lmdeploy.part && boot "$group" --coldstart-require turbomind "$@" ;;
    sglang) unpack sglang sglang.part && boot "$group" --coldstart-require sglang "$@" ;;
    hygiene)
      (($# > 0)) || set -- refuse between kill
      unpack vllm part && python3 hygiene.py "$store" "$@" ;;
    table) ;;
    *) echo "unknown group $group: small, large, lmdeploy, sglang, hygiene or table"; return 2 ;;
  esac
}

begin=$(date +%s)
mkdir -p "$tools" "$COLDSTART_SITES" "$COLDSTART_READINGS"
if [[ ! -e $COLDSTART_WORK/ready ]]; then
  for wheel in "$parts"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$tools"; done
  python3 -m compileall -q "$tools" || true
  touch "$COLDSTART_WORK/ready"
fi
cp -r "$here"/{test_memory.py,test_hygiene.py,hygiene.py,holder.py,check} "$COLDSTART_WORK/"
cd "$COLDSTART_WORK"
watch_gpus & watcher=$!
trap 'kill "$watcher" 2> /dev/null || true' EXIT
status=0
# In this place `set -e` does not reach into the function: its steps are joined by &&.
run "$@" > >(tee "$out/$group.txt") 2>&1 || status=$?
sleep 2
echo "after: $(nvidia-smi --query-gpu=memory.used --format=csv,noheader) in use; group $group took $(($(date +%s) - begin)) s"
if [[ -e $store/coldstart.duckdb ]]; then
  python3 "$here/memory_table.py" "$store" "$COLDSTART_READINGS" > "$out/tables.md" || status=1
  cat "$out/tables.md"
  cp "$store"/*.duckdb "$out/"
  tar -czf "$out/logs.tar.gz" -C "$COLDSTART_WORK" readings store/runs store/logs || true
fi
exit "$status"
