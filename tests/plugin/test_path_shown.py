"""Where a boot's time went: judged by bounds on phases, drawn in the terminal, printed whole from the store."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Inner, text_of


def test_a_bound_on_a_phase_is_judged_and_the_boot_is_shown_from_its_store(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 1})
@pytest.mark.slo("phase.first_request.p50@restart<=1us", "phase.unattributed<=10min")
def test_a(cold_boot): ...
""")
    result = inner.run("--coldstart-slo=attributed>=0%")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*phase.first_request.p50 = * breaks <= 1 us (bound from marker; source client; *)"])
    assert text_of(result).count("where the time went: openai test_a restart, boot ") <= 1
    verdicts = dict(inner.query("SELECT metric || '.' || stat, verdict FROM verdict"))
    assert verdicts["phase.first_request.p50"] == "fail"
    assert (verdicts["phase.unattributed.max"], verdicts["attributed.min"]) == ("pass", "pass")

    shown = inner.cli("show", "last", "--json", "--store", str(inner.store))
    assert (shown.ret, shown.stderr.str()) == (0, "")
    found = json.loads(shown.stdout.str())
    path = found["critical_path"]
    assert [piece["start"] for piece in path] == [0.0, *(piece["end"] for piece in path[:-1])]
    assert path[-1]["end"] == found["total"] == found["instants"]["first_done"]
    assert sum(found["phases"].values()) == pytest.approx(found["total"])
    assert found["metrics"]["phase.unattributed"]["value"] == pytest.approx(found["unattributed"])

    text = inner.cli("show", found["boot_id"][:-1], "--store", str(inner.store)).stdout.str()
    assert text.splitlines()[0] == f"boot {found['boot_id']}"
    assert "\ncritical path\n" in text
