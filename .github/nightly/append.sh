#!/usr/bin/env bash
# Adds run files to the branch that keeps the history: append.sh FOLDER [BRANCH]. The branch has no ancestor in common with the code and
# holds run files alone. A run file never changes, so one that is there already, with other content, is an error.
set -euo pipefail

new="$(cd "${1:?the folder of the new run files}" && pwd)"
branch="${2:-coldstart-history}"
remote="${HISTORY_REMOTE:-${GITHUB_SERVER_URL:?}/${GITHUB_REPOSITORY:?}.git}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

if [[ -n "${GITHUB_TOKEN:-}" ]]; then # through the environment, so that no command line and no file has the token
  GIT_CONFIG_VALUE_0="AUTHORIZATION: basic $(printf 'x-access-token:%s' "$GITHUB_TOKEN" | base64 -w 0)"
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="http.${GITHUB_SERVER_URL:?}/.extraheader" GIT_CONFIG_VALUE_0
fi

fetch() { # the newest state of the branch, or none yet
  local found=0
  git ls-remote --quiet --exit-code "$remote" "refs/heads/$branch" >/dev/null || found=$?
  if ((found == 0)); then
    git fetch --quiet --depth=1 "$remote" "$branch"
    git checkout --quiet --force -B "$branch" FETCH_HEAD
  elif ((found == 2)); then
    git checkout --quiet --orphan "$branch" 2>/dev/null || true
  else
    return 1
  fi
}

add() {
  local file name
  mkdir -p runs
  for file in "$new"/*.jsonl; do
    name="$(basename "$file")"
    if [[ -L "$file" || ! -f "$file" || ! "$name" =~ ^[A-Za-z0-9._-]+$ ]]; then
      echo "::error title=history::$name is no run file"
      return 1
    fi
    if [[ -e "runs/$name" ]] && ! cmp --silent "$file" "runs/$name"; then
      echo "::error title=history::runs/$name is there with other content"
      return 1
    fi
    cp "$file" "runs/$name"
  done
  git add runs
}

shopt -s nullglob
files=("$new"/*.jsonl)
if ((${#files[@]} == 0)); then
  echo "::warning title=history::no run file in $new"
  exit 0
fi
git init --quiet "$work"
cd "$work"
git config user.name "github-actions[bot]"
git config user.email "41898282+github-actions[bot]@users.noreply.github.com"
for attempt in 1 2 3 4 5; do # another job may push in between
  fetch
  add
  if git diff --cached --quiet; then
    echo "the history holds these ${#files[@]} run files already"
    exit 0
  fi
  git commit --quiet --message "Add ${#files[@]} run files"
  if git push --quiet "$remote" "HEAD:refs/heads/$branch"; then
    echo "added ${#files[@]} run files to $branch"
    exit 0
  fi
  sleep "$attempt"
done
echo "::error title=history::$branch could not be pushed"
exit 1
