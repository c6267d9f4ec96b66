"""Tiers: what is made cold before a boot, and the proof that it was.

A tier is a preset over a state vector (weights, libraries, caches). ``prepare`` brings the
host into that state, ``prove`` reads it back just before the start, ``confirm`` compares what
the boot then did. Evidence against the declared tier is a contradiction; evidence that cannot
be had is *unprovable* and said so.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_coldstart import cache_kinds, inventory, residency, units
from pytest_coldstart.engines.base import CacheRoot
from pytest_coldstart.record import Cache, Evidence, FileResidency


@dataclass(frozen=True)
class Tier:
    """``weights`` and ``libraries``: evicted, resident or any; ``caches``: empty or kept."""

    name: str
    weights: str
    libraries: str
    caches: str
    help: str

    @property
    def state(self) -> dict[str, str]:
        return {"weights": self.weights, "libraries": self.libraries, "caches": self.caches}


TIERS: Mapping[str, Tier] = {
    tier.name: tier
    for tier in (
        Tier(
            "pristine", "evicted", "evicted", "empty", "a node that never ran this: weights evicted, all caches empty"
        ),
        Tier(
            "scale_out", "resident", "any", "empty", "a new node that has just pulled: weights resident, caches empty"
        ),
        Tier("redeploy", "evicted", "evicted", "kept", "a new pod on a cache volume: weights evicted, caches kept"),
        Tier("restart", "resident", "any", "kept", "the process alone starts again: weights resident, caches kept"),
        Tier("wake", "any", "any", "any", "the process is resident, was put to sleep and is woken"),
        Tier("restore", "any", "any", "any", "the process comes back from a snapshot"),
    )
}

#: A file counts as evicted up to this share (a page or two may be read back by anyone) and as
#: resident from that share on.
EVICTED_AT_MOST = 0.01
RESIDENT_AT_LEAST = 0.99

#: Smaller weights cannot be told from the libraries that an engine reads.
TOLD_APART = 64 << 20

_MARKER = ".coldstart-filled.json"


class TierRefused(RuntimeError):
    """The host cannot be brought into the declared tier's state; the message says why."""


class TierContradicted(RuntimeError):
    """The evidence contradicts the declared tier; the message has the numbers."""


class Coldness:
    """The cold state of one boot: its tier, weight files, library files and cache roots."""

    def __init__(
        self,
        tier: Tier,
        home: Path,
        roots: Sequence[CacheRoot],
        weights: Sequence[Path],
        libraries: Sequence[Path],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """*env*: the cell's own variables. A root that they move elsewhere is none of ours."""
        self.tier = tier
        self.home = home
        moved = {root.name: _moved(root, env or {}) for root in roots}
        self.roots = [root for root in roots if not moved[root.name]]
        #: Cache -> the variable of the cell that moves it.
        self.moved = {name: variable for name, variable in moved.items() if variable}
        self.weights = [path.resolve() for path in weights]
        self.libraries = [path.resolve() for path in libraries if path.exists()]
        self._before: dict[str, inventory.Listing] = {}
        self._after: dict[str, inventory.Listing] = {}
        self._mapped: dict[Path, list[int]] = {}

    # -- caches

    def filled_by(self) -> dict[str, str] | None:
        """What :meth:`mark_filled` wrote, or None when no whole boot has filled the roots."""
        try:
            return dict(json.loads((self.home / _MARKER).read_text()))
        except (OSError, ValueError):
            return None

    def mark_filled(self, boot_id: str, versions: Mapping[str, str]) -> None:
        """Remember that a boot filled the roots, with the versions it ran.

        Not one at ``wake``: its flags are others, and what ``restart`` needs may not be there.
        """
        if self.tier.caches != "any" and self.home.is_dir():
            after = self._after or {root.name: inventory.listing(root.path) for root in self.roots}
            filled = {name: len(files) for name, files in after.items()}
            found = {"boot": boot_id, "versions": json.dumps(dict(versions)), "files": json.dumps(filled)}
            (self.home / _MARKER).write_text(json.dumps(found))

    def needs_priming(self, versions: Mapping[str, str]) -> bool:
        """Whether this tier keeps caches and nothing of these versions has filled them yet."""
        if self.tier.caches != "kept":
            return False
        filled = self.filled_by()
        return filled is None or filled.get("versions") != json.dumps(dict(versions))

    # -- before the start

    def prepare(self) -> None:
        """Empty or keep the cache roots, evict or read the files.

        :raises TierRefused: weights that the tier wants evicted cannot be.
        """
        if self.tier.caches == "empty":
            shutil.rmtree(self.home, ignore_errors=True)
        for root in self.roots:
            root.path.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        if self.tier.weights == "evicted":
            self._evict()
        elif self.tier.weights == "resident":
            residency.make_resident(self.weights)

    def _evict(self) -> None:
        self._mapped = residency.mapped_by([*self.weights, *self.libraries])
        stuck = [(path, residency.cannot_evict(path, self._mapped)) for path in self.weights]
        stuck = [(path, why) for path, why in stuck if why]
        if stuck:
            lines = "; ".join(f"{path}: {why}" for path, why in stuck)
            raise TierRefused(
                f"tier {self.tier.name!r} needs the weights evicted from the page cache, which is impossible here: {lines}. "
                f"Move the weights to a local disk, stop those processes, or declare tier 'restart' or 'scale_out'"
            )
        try:
            residency.evict([*self.weights, *(path for path in self.libraries if path not in self._mapped)])
        except OSError as error:
            raise TierRefused(f"tier {self.tier.name!r} needs files evicted that cannot be opened: {error}") from error

    def prove(self) -> Evidence:
        """The state just before the start, with what contradicts the tier and what cannot be told."""
        evict = self.tier.weights == "evicted"
        self._before = {root.name: inventory.listing(root.path) for root in self.roots}
        libraries = residency.read(self.libraries, evict, self._mapped)
        weights = residency.read(self.weights, evict, self._mapped)  # last: what is read here is what the boot finds
        evidence = Evidence(weights, libraries, state=self.tier.state)
        return replace(
            evidence, unprovable=self._unprovable(weights, libraries), contradictions=self._contradictions(evidence)
        )

    def _unprovable(self, weights: Sequence[FileResidency], libraries: Sequence[FileResidency]) -> tuple[str, ...]:
        found = [
            f"weights {self.tier.weights}: {item.path}: {item.reason}"
            for item in weights
            if item.status == "cannot_tell" and self.tier.weights != "any"
        ]
        if self.tier.libraries == "evicted":
            if not libraries:
                found.append("libraries evicted: the engine's adapter names none")
            found += [f"libraries evicted: {item.path}: {item.reason}" for item in libraries if item.status != "proved"]
        if not weights and self.tier.weights != "any":
            found.append(f"weights {self.tier.weights}: no weight files are known")
        if self.tier.caches != "any":
            if not self.roots and not self.moved:
                found.append(f"caches {self.tier.caches}: the engine's adapter names no cache root")
            found += [
                f"caches {self.tier.caches}: cache {name!r} is where the cell's {variable} says, not isolated and not looked at"
                for name, variable in self.moved.items()
            ]
        return tuple(found)

    def _contradictions(self, evidence: Evidence) -> tuple[str, ...]:
        found: list[str] = []
        share = evidence.resident_fraction
        if share is not None:
            what = f"{share:.1%} of {units.show(evidence.weight_bytes, 'B')} of weights resident"
            if self.tier.weights == "evicted" and share > EVICTED_AT_MOST:
                found.append(f"{self.tier.name} declared, {what} before the start")
            if self.tier.weights == "resident" and share < RESIDENT_AT_LEAST:
                found.append(f"{self.tier.name} declared, only {what} before the start")
        filled = self.filled_by() or {}
        files_before = json.loads(filled.get("files", "{}"))
        for name, files in self._before.items():
            if self.tier.caches == "kept" and not files and files_before.get(name):
                found.append(
                    f"{self.tier.name} declared, cache {name!r} is empty before the start; boot {filled['boot']} left "
                    f"{files_before[name]} files there"
                )
            if self.tier.caches == "empty" and files:
                found.append(f"{self.tier.name} declared, cache {name!r} holds {len(files)} files before the start")
        return tuple(found)

    # -- after the first request and after the stop

    def confirm(self, evidence: Evidence, tree_read: int | None, device_read: int | None) -> Evidence:
        """Add what was read from storage, and compare it with the weights that had to come from there."""
        evidence = replace(evidence, tree_read_bytes=tree_read, device_read_bytes=device_read)
        total = evidence.weight_bytes
        proved = all(item.status == "proved" for item in evidence.weights)
        if self.tier.weights == "evicted" and total and proved and tree_read is not None and tree_read < 0.01 * total:
            text = (
                f"{self.tier.name} declared and the weights were evicted, yet the engine read {units.show(tree_read, 'B')} "
                f"from storage against {units.show(total, 'B')} of weights: it loads other files than the adapter names"
            )
            return replace(evidence, contradictions=(*evidence.contradictions, text))
        if (
            self.tier.weights == "resident"
            and total >= TOLD_APART
            and tree_read is not None
            and tree_read >= 0.5 * total
        ):
            text = (
                f"weights resident: the engine read {units.show(tree_read, 'B')} from storage all the same (direct I/O, "
                "or pages reclaimed during the boot)"
            )
            return replace(evidence, unprovable=(*evidence.unprovable, text))
        return evidence

    def caches(self) -> tuple[Cache, ...]:
        """Each cache root before and after; call after the stop."""
        result = []
        for root in self.roots:
            before = self._before.get(root.name, {})
            after = self._after[root.name] = inventory.listing(root.path)
            new = inventory.changed(before, after)
            result.append(
                Cache(
                    root.name,
                    str(root.path),
                    inventory.summarise(before),
                    inventory.summarise(after),
                    len(new),
                    tuple(os.fsencode(name).decode("utf-8", "replace") for name in new[:5]),
                    cache_kinds.count(root.name, new),
                    sum(after[name][0] for name in new),
                )
            )
        return tuple(result)


def _moved(root: CacheRoot, env: Mapping[str, str]) -> str:
    """The variable of *env* that places the root elsewhere, or an empty string."""
    return next(
        (name for name, value in root.env.items() if value == str(root.path) and env.get(name, value) != value), ""
    )
