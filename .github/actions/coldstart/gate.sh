#!/usr/bin/env bash
# Runs `coldstart gate` in the checkout, and hands its reports to the job: summary, outputs, exit code.
set -euo pipefail

: "${RUNNER_TEMP:?must name a folder for what this job makes}"
home="$RUNNER_TEMP/coldstart"
report="$home/report"
coldstart="$home/venv/bin/coldstart"
outputs="${GITHUB_OUTPUT:-/dev/null}"
summary="${GITHUB_STEP_SUMMARY:-/dev/null}"

mistake() {
  printf '::error title=coldstart::%s\n' "$1"
  printf 'outcome=error\nexit-code=4\n' >>"$outputs"
  exit 4
}

# Sets $found to a side as `coldstart gate` takes it: git:REF for a commit of this clone, anything else as it is.
side() {
  local ref
  case "$2" in
    run:* | git:* | python:*)
      found="$2"
      return
      ;;
  esac
  for ref in "$2" "origin/$2"; do # a branch that was not checked out is there as origin's alone
    if git rev-parse --quiet --verify --end-of-options "$ref^{commit}" >/dev/null; then
      found="git:$ref"
      return
    fi
  done
  found="$2"
  [[ -e "$found" ]] || mistake "$1: '$2' is no commit of this clone, no file, and no run:, git: or python: side. actions/checkout \
fetches one commit unless it has fetch-depth: 0"
}

cd "${GITHUB_WORKSPACE:-.}"
case "${INPUT_ON_INCONCLUSIVE:=pass}" in
  pass | fail) ;;
  *) mistake "on-inconclusive: '$INPUT_ON_INCONCLUSIVE' is neither pass nor fail" ;;
esac
[[ -x "$coldstart" ]] || mistake "pytest-coldstart is not installed at $coldstart: run install.sh first"
rm -rf "$report" "$home/tmp"
mkdir -p "$report" "$home/tmp"
head="${INPUT_HEAD:-HEAD}"
base="${INPUT_BASE:-}"
if [[ -z "$base" ]]; then
  # On a pull request HEAD is a merge of base and head, and its first parent is what the base branch holds now.
  base="$(git rev-parse --quiet --verify --end-of-options "$head^1^{commit}")" || mistake "base: $head has no parent in this clone. \
Name a base, and give actions/checkout fetch-depth: 0"
fi
side base "$base"
base="$found"
side head "$head"
head="$found"
read -ra suites <<<"${INPUT_SUITES:-}"

words=(gate --base "$base" --head "$head" --store "${INPUT_STORE:-$home/store}")
words+=(--json "$report/gate.json" --markdown "$report/gate.md" --comment "$report/comment.md")
words+=(--junit "$report/junit.xml" --badge "$report/badge.json" --github)
[[ -z "${INPUT_BOOTS:-}" ]] || words+=(--boots "$INPUT_BOOTS")
[[ -z "${INPUT_TIME:-}" ]] || words+=(--time "$INPUT_TIME")
[[ -z "${INPUT_POLICY:-}" ]] || words+=(--policy "$INPUT_POLICY")
[[ -z "${INPUT_PREPARE:-}" ]] || words+=(--prepare "$INPUT_PREPARE")
words+=("${suites[@]}")
pytest=()
while read -r line; do
  [[ -z "$line" ]] || pytest+=(--coldstart-python "$line")
done <<<"${INPUT_ENGINE_PYTHON:-}"
while read -r line; do
  [[ -z "$line" ]] || pytest+=("$line")
done <<<"${INPUT_ARGS:-}"
if ((${#pytest[@]})); then
  words+=(-- "${pytest[@]}")
fi

[[ -z "${INPUT_GPU:-}" ]] || export CUDA_VISIBLE_DEVICES="$INPUT_GPU"
# Worktrees and other temporary files go where cleanup.sh looks, and every process that is started carries the mark it looks for.
export TMPDIR="$home/tmp"
mark="$$-$(date +%s)"
printf '%s' "$mark" >"$home/mark"
touch "$home/began"
code=0
COLDSTART_ACTION="$mark" "$coldstart" "${words[@]}" 2>&1 | tee "$report/gate.log" || code="${PIPESTATUS[0]}"

outcome=error # a gate that broke down returns 1 like one that found a regression, but writes no JSON
if [[ -s "$report/gate.json" ]]; then
  outcome="$("$home/venv/bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["outcome"])' "$report/gate.json")"
fi
if [[ -s "$report/gate.md" ]]; then
  cat "$report/gate.md" >>"$summary"
else
  # shellcheck disable=SC2016 # the backticks are markdown
  printf 'coldstart gate ended with %s and compared nothing. Its last lines:\n\n```\n%s\n```\n' \
    "$code" "$(tail -n 20 "$report/gate.log")" >>"$summary"
fi
{
  printf 'outcome=%s\nexit-code=%s\nreport=%s\n' "$outcome" "$code" "$report"
  for name in json=gate.json markdown=gate.md comment=comment.md junit=junit.xml badge=badge.json; do
    [[ ! -s "$report/${name#*=}" ]] || printf '%s=%s\n' "${name%%=*}" "$report/${name#*=}"
  done
} >>"$outputs"
if [[ "$code" == 10 && "$INPUT_ON_INCONCLUSIVE" == pass ]]; then
  code=0
fi
exit "$code"
