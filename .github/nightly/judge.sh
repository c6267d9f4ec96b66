#!/usr/bin/env bash
# Reads the whole history into a new store and fails on a regression that nobody has acknowledged: judge.sh RUNS STORE [FILE].
# FILE holds the acknowledgements, as `coldstart ack --file FILE` writes them; it may be missing.
set -euo pipefail

runs="${1:?the folder of all run files}"
store="${2:?where the store is made}"
acknowledged="${3:-}"
summary="${GITHUB_STEP_SUMMARY:-/dev/null}"

code=0
# A run file that cannot be read fails the job, and does not hide what the others say.
find "$runs" -name '*.jsonl' -print0 | xargs -0 -r coldstart ingest --store "$store" || code=1
words=(history --store "$store" --fail-on-new)
[[ ! -e "$acknowledged" ]] || words+=(--acknowledgements "$acknowledged")
coldstart "${words[@]}" 2>&1 | tee "$store/history.txt" || code="${PIPESTATUS[0]}"
# shellcheck disable=SC2016 # the backticks are markdown
printf '```\n%s\n```\n' "$(head -c 500000 "$store/history.txt")" >>"$summary"
exit "$code"
