from __future__ import annotations

from pathlib import Path

import pytest

from pytest_coldstart.alerts import file
from pytest_coldstart.alerts.file import RULES_FILE, RulesError
from pytest_coldstart.alerts.rules import Changed, Failed, Judged, Stale, matches, show_days
from pytest_coldstart.alerts.table import days
from pytest_coldstart.slo import Bound
from tests.alerts.conftest import Loads

ALL = """
[[alert]]
name = "bound"
metric = "cold_start"
bound = "<= 10s"
severity = "critical"
engine = ["vllm*", "sglang"]
branch = "main"
for = 3
message = "look at it"

[[alert]]
name = "stat"
metric = "warm_first_token"
bound = ">=500 ms"
stat = "p50"

[[alert]]
name = "verdict"
verdict = "fail"

[[alert]]
name = "change"
metric = "cold_start"
change = "worse 5%"

[[alert]]
name = "days"
metric = "cold_start"
change = "any"
days = 7

[[alert]]
name = "stale"
stale = "3d"

[[alert]]
name = "failed"
failed = 2
"""


def test_every_kind_of_rule_is_read_with_its_defaults(loads: Loads) -> None:
    bound, stat, verdict, change, recent, stale, failed = loads(ALL)
    assert bound.condition == Bound("cold_start", "max", None, "<=", 10.0, "cold_start<= 10s", "alert")
    assert (bound.severity, bound.runs, bound.message, bound.line) == ("critical", 3, "look at it", 3)
    assert bound.filters == (("engine", ("vllm*", "sglang")), ("branch", ("main",)))
    assert (bound.what, bound.which) == (
        "cold_start.max <= 10.00 s, 3 runs in a row",
        "engine vllm* or sglang, branch main",
    )
    assert isinstance(stat.condition, Bound)
    assert (stat.condition.stat, stat.condition.value, stat.severity, stat.runs) == ("p50", 0.5, "warning", 1)
    assert verdict.condition == Judged(("fail",))
    assert change.condition == Changed("worse", 0.05, runs=10)
    assert change.what == "cold_start worse by 5 % within the newest 10 runs"
    assert recent.condition == Changed("any", 0.03, seconds=7 * 86_400.0)
    assert stale.condition == Stale(3 * 86_400.0)
    assert stale.what == "no run for 3 d"
    assert failed.condition == Failed(2)
    assert len({*loads(ALL)}) == 7


def problems(loads: Loads, tables: str) -> tuple[str, ...]:
    with pytest.raises(RulesError) as caught:
        loads(tables)
    return caught.value.problems


@pytest.mark.parametrize(
    ("keys", "line", "said"),
    [
        (
            'metric = "cold_strat"\nbound = "<= 1s"',
            4,
            "unknown metric 'cold_strat'; did you mean 'cold_start'? valid: ",
        ),
        ('metric = "cold_start"\nbound = "<= 10"', 5, "'10' has no unit; valid units here: 'ns', 'us', 'ms'"),
        ('metric = "cold_start"\nbound = "10s"', 5, "'10s' does not begin with <= or >=; write it as in \"<= 10s\""),
        ('metric = "cold_start"\nbound = "<="', 5, "bound: '<=' cannot be read; write it as in"),
        ('metric = "cold_start"\nbound = "<= 5%"', 5, "unknown unit '%'"),
        ('metric = "cold_start"\nbound = 10', 5, "10 does not begin with <= or >="),
        ('metric = "cold_start"\nbound = "<= 1s"\nstat = "meen"', 6, "unknown statistic 'meen'; did you mean 'mean'?"),
        ('bound = "<= 1s"', 2, "metric is missing; bound needs one"),
        ('stale = "3d"\nmetric = "cold_start"', 5, "stale is of whole boots; leave the metric out"),
        ('stale = "3 fortnights"', 4, "unknown unit 'fortnights'; valid units here: 'ns'"),
        ('stale = "0d"', 4, "a duration must be greater than zero"),
        ("stale = true", 4, "True is no duration"),
        ('stale = "3d"\nfor = 2', 5, "stale has no runs in a row; leave it out"),
        ("failed = 0", 4, "0 is not a whole number from 1"),
        ("failed = true", 4, "True is not a whole number from 1"),
        ("failed = 1\nfor = 51", 5, "51 is not a whole number from 1 to 50"),
        ('failed = 1\nstale = "3d"', 4, "stale and failed are several conditions; give exactly one of"),
        ('severity = "bad"', 2, "there is no condition; give exactly one of bound, verdict, change, stale, failed"),
        ('failed = 1\nseverity = "critcal"', 5, "unknown severity 'critcal'; did you mean 'critical'?"),
        ('failed = 1\nengin = "vllm"', 5, "unknown key 'engin'; did you mean 'engine'?"),
        ("failed = 1\nengine = []", 5, 'engine: a pattern such as "vllm*" or a list of them is needed, not []'),
        ("failed = 1\ntier = 3", 5, "tier: a pattern"),
        ("failed = 1\nmessage = 3", 5, "message: a text is needed, not 3"),
        ("failed = 1\nruns = 3", 5, "runs says something of change alone, and this rule has failed"),
        ('verdict = "pass"', 4, "'pass' is none that can fire; valid: fail, unmeasured"),
        ('metric = "cold_start"\nchange = "5%"', 5, "'5%' names no way to change; write it as in \"worse 5%\""),
        ('metric = "cold_start"\nchange = "worse 5s"', 5, "unknown unit 's'"),
        ('metric = "cold_start"\nchange = "worse 1%"', 5, "nothing below 3% is looked for"),
        ('metric = "cold_start"\nchange = "worse"\nruns = 5\ndays = 5', 7, "runs and days: give one of them"),
    ],
)
def test_a_mistake_is_said_with_its_line(loads: Loads, tmp_path: Path, keys: str, line: int, said: str) -> None:
    first, *_ = problems(loads, f'[[alert]]\nname = "a"\n{keys}')
    assert first.startswith(f"{tmp_path / RULES_FILE}:{line}: alert 'a': ")
    assert said in first


def test_all_mistakes_are_said_at_once(loads: Loads) -> None:
    found = problems(loads, '[[alert]]\nfailed = 0\n[[alert]]\nname = "b"\nstale = "x"\nthis = 1')
    assert [problem.rpartition(f"{RULES_FILE}:")[2].split(":")[0] for problem in found] == ["3", "2", "7", "6"]
    assert "alert 1: name is missing" in found[1]


def test_names_are_unique(loads: Loads) -> None:
    rule = '[[alert]]\nname = "twice"\nfailed = 1\n'
    (said,) = problems(loads, rule + rule)
    assert said.endswith(":5: name: 'twice' is taken by line 2; each rule needs a name of its own")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: version is missing; write version = 1 at the top"),
        ("\nversion = 2\n[[alert]]", ":2: version 2 is newer than 1"),
        ("version = '1'", ":1: version: '1' is no version"),
        ("version = true", ":1: version: True is no version"),
        ("version = 1", ":1: there is no rule; write at least one, such as\nversion = 1"),
        ("version = 1\nalert = 3", ":2: alert: write each rule as a table of its own, [[alert]]"),
        ("version = 1\nrule = 3", ":2: unknown key 'rule'; valid: version, alert, acknowledgements"),
        ("version = 1\n[[alert]\n", ":2: no TOML: "),
        ("version = 1\nx = '''", ":2: no TOML: "),
        (
            "version = 1\nacknowledgements = 'gone'\n[[alert]]\nname = 'a'\nfailed = 1",
            ":2: acknowledgements: there is no file 'gone' beside this one",
        ),
        (f"version = {'1' * 5000}", ": no TOML: "),
        ("version = " + "[" * 5000, ": it is nested too deeply"),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / RULES_FILE
    path.write_text(text)
    with pytest.raises(RulesError) as caught:
        file.load(path)
    assert caught.value.problems[0].startswith(f"{path}{said}")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="No such file"):
        file.load(tmp_path / "gone.toml")
    (tmp_path / "latin").write_bytes(b"version = 1 # \xe9")
    with pytest.raises(RulesError, match="not UTF-8"):
        file.load(tmp_path / "latin")


def test_tables_that_cannot_be_told_apart_have_no_line(loads: Loads, tmp_path: Path) -> None:
    (said,) = problems(loads, 'alert = [{name = "a", failed = 0}]')
    assert said == f"{tmp_path / RULES_FILE}: alert 'a': failed: 0 is not a whole number from 1 to 1000000"


def test_the_file_is_found_beside_pyproject_then_beside_the_store(tmp_path: Path) -> None:
    inner, root = tmp_path / "project" / "src" / "deep", tmp_path / "elsewhere" / "store"
    inner.mkdir(parents=True)
    root.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()
    (tmp_path / RULES_FILE).touch()  # above the project: none of it
    assert file.find(inner, root) is None
    for folder in (root, root.parent, tmp_path / "project", inner):
        (folder / RULES_FILE).touch()
        assert file.find(inner, root) == folder / RULES_FILE


def test_without_pyproject_the_working_directory_alone_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    (tmp_path / RULES_FILE).touch()
    assert file.find(inner, tmp_path / "b" / "store") is None


def test_patterns() -> None:
    assert matches("test_a.py::test_boot[x]", ["test_a.py::test_boot[x]"])
    assert matches("test_a.py::test_boot[x]", ["*test_boot*"])
    assert not matches("vLLM", ["vllm"])


@pytest.mark.parametrize(
    ("given", "seconds", "shown"),
    [
        ("3d", 259_200, "3 d"),
        ("36h", 129_600, "36 h"),
        (1, 86_400, "1 d"),
        ("90s", 90, "1.5 min"),
        ("0.5 d", 43_200, "12 h"),
    ],
)
def test_durations(given: str | int, seconds: float, shown: str) -> None:
    assert days(given) == seconds
    assert show_days(seconds) == shown
