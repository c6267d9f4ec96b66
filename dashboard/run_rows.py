"""Runs -> the rows of their page's tables. No page and no SQL in here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dashboard import place, text, tiles
from dashboard.data.health import Files, RunFileState, Tables
from dashboard.data.runs import Detail, Reference, Run, RunBoot
from dashboard.data.verdicts import WORST, RunVerdict
from pytest_coldstart import units
from pytest_coldstart.metrics import METRICS

Row = dict[str, str | None]

#: What pytest's exit statuses mean.
_ENDS = {
    0: "passed",
    1: "tests failed",
    2: "interrupted",
    3: "internal error",
    4: "usage error",
    5: "no tests",
}


def ended(run: Run) -> str:
    """The exit status in words."""
    if run.exit_status is None:
        return "no end was stored"
    return _ENDS.get(run.exit_status, f"exit status {run.exit_status}")


def boots(run: Run) -> str:
    """``6``, or ``6 (1 failed)``."""
    wrong = [f"{count} {word}" for count, word in ((run.failed, "failed"), (run.errors, "error")) if count]
    return f"{run.boots} ({', '.join(wrong)})" if wrong else str(run.boots)


def verdicts(counts: Mapping[str, int]) -> str:
    """``1 fail, 5 pass``, the worst first."""
    words = [*(word for word in WORST if word in counts), *sorted(set(counts) - set(WORST))]
    return ", ".join(f"{counts[word]} {word}" for word in words) or "not judged"


def label(run: Run) -> str:
    """A run in one line of a list."""
    return f"{text.moment(run.started_at)}, {ended(run)}, {text.commit(run.commit, run.branch, run.dirty)}, {run.id}"


def listed(runs: Sequence[Run]) -> list[Row]:
    """A row a run; without a column of CI links where no run has one."""
    linked = any(run.ci_url for run in runs)
    return [
        {
            "start": text.moment(run.started_at),
            "end": ended(run),
            "boots": boots(run),
            "verdicts": verdicts(run.verdicts),
            "commit": text.commit(run.commit, run.branch, run.dirty),
            "open": place.link(place.RUNS, run=run.id),
            **({"CI": run.ci_url} if linked else {}),
            "host": run.hostname or "unknown",
            "hardware": run.hardware,
            "driver": run.driver or "-",
            "versions": text.versions(run.versions),
            "gate": run.gate or "-",
            "run": run.id,
        }
        for run in runs
    ]


def of_boots(found: Iterable[RunBoot]) -> list[Row]:
    """A row a boot."""
    return [
        {
            "start": text.moment(item.started_at),
            "outcome": f"{item.outcome} ({item.failure})" if item.failure else item.outcome,
            "cold_start": _cold_start(item),
            "engine": item.engine,
            "cell": item.cell_id,
            "tier": item.tier,
            "round": f"{item.round} ({item.role})",
            "open": place.boot(item.id),
            "test": item.nodeid,
            "boot": item.id,
        }
        for item in found
    ]


def _cold_start(item: RunBoot) -> str:
    if item.outcome == "failed":
        return "failed"
    if item.cold_start is None:
        return f"unmeasured: {item.reason or 'no reason is stored'}"
    return units.show(item.cold_start, METRICS["cold_start"].unit)


def of_verdicts(found: Iterable[RunVerdict]) -> list[Row]:
    """A row a verdict, the worst first."""
    return [
        {
            "verdict": item.verdict,
            "SLO": f"{item.metric}.{tiles.bound(item)}",
            "value": tiles.value(item),
            "reason": item.reason or "-",
            "rounds": str(item.rounds),
            "bound from": item.bound_source,
            "cell": item.cell_id,
            "tier": item.tier,
            "test": item.nodeid,
        }
        for item in sorted(found, key=tiles.rank)
    ]


def of_environment(found: Detail) -> list[Row]:
    """A row a thing that is known of the host, the software and the CI job."""
    known = {**found.environment, **{f"CI {name}": value for name, value in found.ci.items()}}
    return [{"name": name, "value": value} for name, value in known.items()]


def of_references(found: Iterable[Reference]) -> list[Row]:
    """A row a reference workload."""
    return [
        {
            "reference": item.metric,
            **{
                name: _shown(value, item)
                for name, value in (("median", item.median), ("least", item.least), ("most", item.most))
            },
            "measured": f"{item.measured} of {item.boots} boots",
            "reason": (item.reason or "-") if item.measured < item.boots else "-",
        }
        for item in found
    ]


def _shown(value: float | None, item: Reference) -> str:
    return "unmeasured" if value is None else units.show(value, METRICS[item.metric].unit)


def of_store(found: Tables, files: Files) -> list[Row]:
    """What is known of the store as a whole."""
    logs = f"{files.logs} files, {units.show(files.log_bytes, 'B')}"
    known = {
        "database": units.show(files.database_bytes, "B"),
        "schema version": f"{found.schema} (the newest is {found.newest_schema})",
        "oldest boot": text.moment(found.oldest),
        "newest boot": text.moment(found.newest),
        "run files": f"{files.run_files}, {units.show(files.run_bytes, 'B')}",
        "logs": logs if files.whole else f"at least {logs}; no more are counted",
    }
    return [{"name": name, "value": value} for name, value in known.items()]


def of_counts(found: Tables) -> list[Row]:
    """A row a table of the database."""
    return [{"table": name, "rows (about)": f"{count:,}"} for name, count in found.counts.items()]


def of_files(found: Iterable[RunFileState]) -> list[Row]:
    """A row a run file that is not in the store as it is."""
    return [
        {"file": item.path.name, "state": item.state, "size": units.show(item.bytes, "B"), "reason": item.reason or "-"}
        for item in found
    ]
