#!/usr/bin/env bash
# Leaves the runner as it was, however the gate ended: ends its processes, removes its worktrees and environments, and says what is still
# on the GPUs. Run files and logs are put beside the reports first. Ends with 1 if a process could not be ended.
set -euo pipefail

: "${RUNNER_TEMP:?must name a folder for what this job makes}"
home="$RUNNER_TEMP/coldstart"
patience="${COLDSTART_PATIENCE:-30}" # seconds in which pytest and its supervisors end their engines themselves

# Pids of the processes that the gate started, at any remove: each inherited its mark.
left() {
  grep -lzxF "COLDSTART_ACTION=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}

names() {
  local pid
  for pid in "$@"; do
    printf '%s %s, ' "$pid" "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c1-80)"
  done
}

end() {
  local pids until=$((SECONDS + patience))
  mapfile -t pids < <(left)
  ((${#pids[@]})) || return 0
  echo "::warning title=coldstart::the gate left processes, which are ended now: $(names "${pids[@]}")"
  kill -TERM "${pids[@]}" 2>/dev/null || true
  while ((SECONDS < until)) && [[ -n "$(left)" ]]; do
    sleep 0.2
  done
  mapfile -t pids < <(left)
  ((${#pids[@]})) || return 0
  kill -KILL "${pids[@]}" 2>/dev/null || true
  sleep 1
  mapfile -t pids < <(left)
  ((${#pids[@]})) || return 0
  echo "::error title=coldstart::these processes could not be ended: $(names "${pids[@]}")"
  return 1
}

collect() {
  local store="${INPUT_STORE:-$home/store}" folder
  [[ -e "$home/began" && -d "$home/report" ]] || return 0
  [[ "$store" != *.duckdb ]] || store="$(dirname "$store")"
  for folder in runs logs; do
    if [[ -d "$store/$folder" ]]; then
      mkdir -p "$home/report/$folder"
      find "$store/$folder" -maxdepth 1 -type f -newer "$home/began" -exec cp -t "$home/report/$folder" {} +
    fi
  done
}

# Not `git worktree prune`: it would forget worktrees of another gate as well, whose folders have other names just now.
worktrees() {
  local common file
  common="$(git rev-parse --git-common-dir 2>/dev/null)" || return 0
  for file in "$common"/worktrees/*/gitdir; do
    if [[ -e "$file" && "$(<"$file")" == "$home/"* ]]; then
      echo "removed a worktree: $(<"$file")"
      rm -rf "$(dirname "$file")"
    fi
  done
}

cd "${GITHUB_WORKSPACE:-.}"
ended=0
if [[ -s "$home/mark" ]]; then
  mark="$(cat "$home/mark")"
  end || ended=1
fi
collect || echo "::warning title=coldstart::run files or logs could not be copied to the reports"
worktrees || echo "::warning title=coldstart::git worktrees could not be removed"
rm -rf "$home/venv" "$home/tmp" "$home/store" "$home/mark" "$home/began" "$home/packages.txt"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=index,name,memory.used,memory.total --format=csv || true
  nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv || true
fi
exit "$ended"
