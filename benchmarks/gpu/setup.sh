# Sourced as `source setup.sh` with the caller's arguments PARTS OUT ...: unpacks PARTS once, sets the environment, leaves the
# rest of the arguments in "$@". Sets: here, parts, out, work, store.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
parts=$(cd "$1" && pwd); out=$(mkdir -p "$2" && cd "$2" && pwd); shift 2
work=${COLDSTART_GPU_WORK:-/tmp/coldstart-gpu}; site=$work/site; tools=$work/tools; store=$work/store
export PYTHONPATH=$tools:$site VLLM_USE_FLASHINFER_SAMPLER=0
export COLDSTART_MODELS=$work/models COLDSTART_VLLM_MODEL=${COLDSTART_VLLM_MODEL:-random:qwen2-0.5b}
# NVLink multicast stays off on shared hosts.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

if [[ ! -e $work/ready ]]; then
  begin=$(date +%s)
  mkdir -p "$site" "$tools"
  cat "$parts"/part.* | xz -dc -T0 | tar -xf - -C "$site"
  for wheel in "$parts"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$tools"; done
  touch "$work/ready"
  echo "set up in $(($(date +%s) - begin)) s"
fi

gpu() { nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader; nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader; }
