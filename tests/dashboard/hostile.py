"""A store in which every text is an attack: on Markdown, HTML, the terminal, a spreadsheet, or the eye.

Whoever ingests the run files of others shows what they wrote. It must be shown as what it is, text.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from pytest_coldstart.history import acknowledge
from pytest_coldstart.record import BootRecord, Failure, Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.runfile import RunFile
from tests.store.samples import FULL, HEADER

#: No request may go there.
FOREIGN = "foreign.invalid"
#: The class, the id or the text of each element that an attack would make.
OWNED = "owned"

ATTACKS = {
    "html": f'<img src="https://{FOREIGN}/a.png" onerror="alert(1)"><b class="{OWNED}">{OWNED}</b><script>alert(2)</script>',
    "svg": f'<svg onload=alert(3) id="{OWNED}"><a href="javascript:alert(4)">{OWNED}</a></svg>',
    "markdown": f"[{OWNED}](javascript:alert(5)) ![p](https://{FOREIGN}/b.png) **{OWNED}** `code` <https://{FOREIGN}/c>",
    "streamlit": r":tada: :red[owned] :material/home: $\sqrt{owned}$ ~~gone~~ --- 1. one",
    "script": "javascript:alert(6)",
    "terminal": "\x1b[31mred\x1b[0m \x07\x08\x7f\u0085",
    "formula": '=1+1 =HYPERLINK("https://foreign.invalid/d")',
    "direction": "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u200b\ufeff",
    "template": "{{7*7}} ${7*7} %s {0} datum['x'] \\u003cb\\u003e",
    "long": "w" * 300,
}
EVERYTHING = " ".join(ATTACKS.values())
#: Parts of it that a browser shows as they are, without the white space and the control characters.
SEEN = (
    f'<b class="{OWNED}">',
    "<script>alert(2)</script>",
    f"[{OWNED}](javascript:alert(5))",
    f"**{OWNED}**",
    ":tada: :red[owned]",
    r"$\sqrt{owned}$",
)

#: A file outside of the store that a boot names as its log, and what stands in it.
OUTSIDE = "only the owner of this machine may read this line"

#: Words that mean something to the code; another boot has an attack in each of them.
_MEANT = {"outcome", "role", "started_at", "boot_id", "run_id", "engine", "tier", "kind", "point", "state", "status"}
_KEYS = {"instants", "metrics", "references"}


def spoiled(value: Any, attack: str, meant: frozenset[str] = frozenset(_MEANT), name: str = "") -> Any:
    """*value* with *attack* in every text, at any depth: fields, keys and items, except the fields of *meant*."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            one.name: spoiled(getattr(value, one.name), attack, meant, one.name) for one in dataclasses.fields(value)
        }
        return dataclasses.replace(value, **fields)
    if isinstance(value, dict):
        kept = value if name in _KEYS else {}
        return {
            **{key: spoiled(item, attack, meant) for key, item in kept.items()},
            **_spoiled_keys(value, attack, meant),
        }
    if isinstance(value, (tuple, list)):
        return type(value)(spoiled(item, attack, meant, name) for item in value)
    if isinstance(value, str) and name not in meant:
        return f"{name} {attack}".strip()
    return value


def _spoiled_keys(value: dict[str, Any], attack: str, meant: frozenset[str]) -> dict[str, Any]:
    return {f"{key} {attack}": spoiled(item, attack, meant) for key, item in value.items()}


def header(attack: str, commit: str | None = None) -> dict[str, Any]:
    """The header of a run, as a job writes it that may write anything."""
    made = spoiled(HEADER, attack, frozenset({"started_at"}))
    made = {key.partition(" ")[0]: _text(value, key, attack) for key, value in made.items()}
    made["started_at"] = HEADER["started_at"]
    urls = {"url": "javascript:alert(7)", "GITHUB_SERVER_URL": "javascript:alert(8)//", "GITHUB_RUN_ID": attack}
    urls |= {"GITHUB_REPOSITORY": f"../{attack}", "CI_JOB_URL": f'https://{FOREIGN}/"onmouseover=alert(9)'}
    return {**made, "ci": urls, "git_commit": commit or f"c0ffee{attack}", "extra": {attack: attack}}


def _text(value: Any, key: str, attack: str) -> Any:
    """A list of words stays one, and so does a number."""
    return f"{key.partition(' ')[0]} {attack}" if isinstance(value, str) else value


def boots(attack: str, number: int, log: Path) -> list[BootRecord]:
    """Two boots of one cell, one that failed, and one whose every word is an attack."""
    record = spoiled(FULL, attack)
    cell = {"cell_digest": f"feed{number:08d}", "base_digest": f"feed{number:08d}", "log_path": str(log)}
    known = {"cold_start": 2.0, "warm_first_token": 0.25, "peak_rss": 1e6, "phase.imports": 0.25}
    values = {name: Value(value, attack) for name, value in known.items()}
    values |= {
        f"of_my_own_{number} {attack}": Value(3.0, attack),
        "fragmentation": Value(None, None, f"no source {attack}"),
    }
    phases = (dataclasses.replace(FULL.phases[0], process=attack, detail=attack), *record.phases)
    good = dataclasses.replace(record, **cell, metrics=values, phases=phases, failure=None, outcome="ok")
    wrong = Failure(*(f"{word} {attack}" for word in ("kind", "message", "instant", "tail")), (f"diagnosis {attack}",))
    words = dict.fromkeys(("outcome", "role", "engine", "tier"), attack)
    at = f"2026-11-02T08:{number:02d}"
    return [
        dataclasses.replace(good, boot_id=f"b-{number}-good", started_at=f"{at}:00+00:00", round=1),
        dataclasses.replace(
            good, boot_id=f"b-{number}-bad", started_at=f"{at}:10+00:00", outcome="failed", failure=wrong, metrics={}
        ),
        dataclasses.replace(good, boot_id=f"b-{number} {attack}", started_at=f"{at}:20+00:00", **words),
    ]


def verdicts(attack: str) -> list[Verdict]:
    known = [
        Verdict(
            "cold_start", "max", "<=", 1.0, "s", 2.0, 3, "fail", f"bound_source {attack}", attack, f"reason {attack}"
        ),
        Verdict("fragmentation", "max", "<=", 0.05, "1", None, 3, "unmeasured", "default", None, f"reason {attack}"),
    ]
    return [*known, Verdict(attack, attack, attack, 1.0, attack, 2.0, 3, attack, attack, attack, attack)]


def write(home: Home, run_id: str, attack: str, number: int, log: Path) -> None:
    """A run of :func:`boots` and :func:`verdicts`; its file has an innocent name and another id in it."""
    mine = boots(attack, number, log)
    file = RunFile(home, f"hostile-{number}", "main", header(attack))
    for item in mine:
        file.boot(dataclasses.replace(item, run_id=run_id))
    for verdict in verdicts(attack):
        file.verdict(mine[0].cell_digest, mine[0].cell_id, mine[0].tier, mine[0].nodeid, verdict)
    file.close(1)
    lines = file.path.read_text("utf-8").split("\n")
    first = {**json.loads(lines[0]), "run_id": run_id}
    file.path.chmod(0o644)
    file.path.write_text("\n".join((json.dumps(first), *lines[1:])), "utf-8")


def changed(home: Home) -> None:
    """A series whose level doubles, with an acknowledgement that is an attack."""
    cell = {"cell_digest": "feed99999999", "cell_id": EVERYTHING, "nodeid": EVERYTHING, "failure": None, "round": 1}
    for number in range(20):
        record = dataclasses.replace(
            FULL,
            **cell,
            boot_id=f"c-{number:02d}",
            run_id=f"changed-{number:02d}",
            started_at=f"2026-11-03T{number:02d}:00:00+00:00",
            metrics={"cold_start": Value((1.0 if number < 10 else 2.0) + number % 3 / 100, "client")},
            versions={f"engine {EVERYTHING}": f"{number // 10} {EVERYTHING}"},
        )
        words = {**header(EVERYTHING, commit=f"{number:07d}{EVERYTHING}"), "started_at": record.started_at}
        file = RunFile(home, record.run_id, "main", words)
        file.boot(record)
        file.close(0)


def acknowledged(home: Home, series: str) -> None:
    """The change of :func:`changed` is acknowledged, by somebody who may write anything."""
    place = acknowledge.Place(("changed-09", "changed-10"), (EVERYTHING, EVERYTHING), (EVERYTHING, EVERYTHING))
    one = acknowledge.make(
        series, EVERYTHING, "cold_start", "changed-10", place, 1.0, f"reason {EVERYTHING}", f"author {EVERYTHING}"
    )
    acknowledge.append(home.root / acknowledge.FILE_NAME, one)


def store(folder: Path) -> Home:
    """A store of all that. One run holds every attack at once, each other run one of them."""
    home = Home.at(folder / "store")
    home.prepare()
    log = home.logs / "hostile.log"
    log.write_text("\n".join(f"log {attack}" for attack in (*ATTACKS.values(), EVERYTHING)) + "\n", "utf-8")
    outside = folder / "outside.log"
    outside.write_text(f"{OUTSIDE}\n", "utf-8")
    for number, attack in enumerate(ATTACKS.values()):
        write(home, f"run {attack}", attack, number, outside)
    write(home, f"run {EVERYTHING}", EVERYTHING, 50, log)
    changed(home)
    problems = ingest(home).problems
    assert problems == [], problems
    import duckdb

    with duckdb.connect(str(home.database), read_only=True) as con:
        ((series,),) = con.execute("SELECT DISTINCT series FROM boot WHERE boot_id LIKE 'c-%'").fetchall()
    acknowledged(home, series)
    return home
