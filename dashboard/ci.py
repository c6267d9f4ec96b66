"""The page of a CI system that belongs to a run, from the variables that the run has stored."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

_NAMES = {"GITHUB_ACTIONS": "GitHub", "GITLAB_CI": "GitLab", "BUILDKITE": "Buildkite"}


def url(ci: Mapping[str, object]) -> str | None:
    """Where the job can be looked at; None where that was not stored, or is nothing that a browser should open."""
    system = ci.get("system")
    found = ""
    if system == "GITHUB_ACTIONS":
        found = _github(ci)
    elif system == "GITLAB_CI":
        found = _word(ci, "CI_JOB_URL") or _word(ci, "CI_PIPELINE_URL")
    elif system == "BUILDKITE":
        build, job = _word(ci, "BUILDKITE_BUILD_URL"), _word(ci, "BUILDKITE_JOB_ID")
        found = f"{build}#{quote(job, safe='')}" if build and job else build
    return found if found and is_web(found) else None


def _github(ci: Mapping[str, object]) -> str:
    server, repository, run = (_word(ci, f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if not (server and repository and run):
        return ""
    attempt = _word(ci, "GITHUB_RUN_ATTEMPT")
    end = f"/attempts/{quote(attempt, safe='')}" if attempt else ""
    return f"{server.rstrip('/')}/{quote(repository)}/actions/runs/{quote(run, safe='')}{end}"


def _word(ci: Mapping[str, object], name: str) -> str:
    value = ci.get(name)
    return value if isinstance(value, str) else ""


def is_web(address: str) -> bool:
    """Whether *address* is one of http or https with a host, and with no user or password in it."""
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def system(ci: Mapping[str, object]) -> str:
    """``GitHub``; what the run says where nobody knows it, empty outside CI."""
    found = ci.get("system") or ci.get("provider") or ""
    return _NAMES.get(str(found), str(found))
