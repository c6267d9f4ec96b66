"""What the tool adds around a boot: the metric ``harness_time``, at each of the four plain tiers.

Beside it stand the boot's own times (cold_start, and start to stopped) and a check from outside:
wall time of the whole call, minus start to stopped. The first boot of a session is listed apart,
since it also reads and digests the weights and asks the engine's interpreter for versions; later
boots remember both. Tiers come in random order within a round.

Goal: under 0.3 s a boot (median of each tier, and of the first boot).
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from _common import Bench, Summary, arguments, bench, cold_start, finish, table

GOAL = 0.3
TIERS = ("pristine", "scale_out", "redeploy", "restart")


def measure(where: Bench, tier: str) -> dict[str, float]:
    again = len(where.disturbed)
    begin = time.perf_counter()
    record = where.boot(tier)  # the plan is made in here too: about 20 ms that are no part of a boot
    wall = time.perf_counter() - begin
    if record.outcome != "ok":
        sys.exit(f"a boot at tier {tier} failed: {record.failure}")
    assert record.harness_time is not None
    return {
        "harness_time": record.harness_time,
        "cold_start": cold_start(record),
        "stopped": record.instants["stopped"],
        "outside": wall - record.instants["stopped"] if len(where.disturbed) == again else float("nan"),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("-n", type=int, default=8, help="boots of each tier (default: 8)")
    options = parser.parse_args()
    order = random.Random(options.seed)
    found: dict[str, list[dict[str, float]]] = {tier: [] for tier in TIERS}
    with bench() as where:
        first = measure(where, "pristine")
        for _ in range(options.n):
            for tier in order.sample(TIERS, len(TIERS)):
                found[tier].append(measure(where, tier))
    result: dict[str, Any] = {"goal_s": GOAL, "first": first, "tiers": {}, "disturbed": where.disturbed}
    rows = [("boot", "harness_time: median [quartiles], least..most", "from outside", "cold_start", "start to stopped")]
    rows.append(
        ("first (pristine)", *(f"{first[k]:.3f} s" for k in ("harness_time", "outside", "cold_start", "stopped")))
    )
    worst = first["harness_time"]
    for tier, boots in found.items():
        parts = {
            name: Summary.of([boot[name] for boot in boots if boot[name] == boot[name]])
            for name in ("harness_time", "outside", "cold_start", "stopped")
        }
        result["tiers"][tier] = parts
        worst = max(worst, parts["harness_time"].median)
        medians = (f"{parts[name].median:.3f} s" for name in ("outside", "cold_start", "stopped"))
        rows.append((tier, parts["harness_time"].show(1, 3, " s"), *medians))
    table(rows)
    print(f"goal under {GOAL:g} s: {'met' if worst < GOAL else 'MISSED'}")
    finish(options, result)


if __name__ == "__main__":
    main()
