#!/usr/bin/env bash
# Posts a file as a comment on a pull request, with the GitHub CLI. A pull request has one such comment: an earlier one is replaced.
set -euo pipefail

: "${GITHUB_REPOSITORY:?must name the repository}" "${INPUT_FILE:?must name the file to post}"
mark='<!-- pytest-coldstart: gate -->' # how `coldstart gate --comment` begins
if [[ ! "${INPUT_PULL:-}" =~ ^[0-9]+$ ]]; then
  echo "::error title=coldstart::pull: '${INPUT_PULL:-}' is no number of a pull request"
  exit 4
fi
if [[ ! -s "$INPUT_FILE" ]]; then
  echo "::notice title=coldstart::there is nothing to comment: $INPUT_FILE is missing or empty"
  exit 0
fi
if [[ "$(head -n 1 "$INPUT_FILE")" != "$mark" || "$(wc -c <"$INPUT_FILE")" -gt 65536 ]]; then
  echo "::error title=coldstart::$INPUT_FILE is not what coldstart gate --comment writes"
  exit 4
fi

comments="repos/$GITHUB_REPOSITORY/issues"
earlier="$(gh api --paginate "$comments/$INPUT_PULL/comments" \
  --jq ".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$mark\"))) | .id" | sed -n 1p)" # reads to the end, so that gh is not cut short
if [[ -n "$earlier" ]]; then
  gh api --silent --method PATCH "$comments/comments/$earlier" -F "body=@$INPUT_FILE"
else
  gh api --silent --method POST "$comments/$INPUT_PULL/comments" -F "body=@$INPUT_FILE"
fi
