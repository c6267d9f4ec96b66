"""Whether the tiers differ in what they declare: pristine against restart, in pairs, with the evidence.

After a priming pristine boot, each pair runs one pristine and one restart boot of llama.cpp in
random order (every pristine boot fills the caches that the next restart keeps). Printed for each
pair: cold_start, the share of the weights resident before the start, and the bytes that the tree
read from storage. The exact sign test counts the pairs in which pristine was slower.

Goal: pristine slower in all, or nearly all, of at least 8 pairs (8 of 8: two-sided p = 0.008).
"""

from __future__ import annotations

import random
from typing import Any

from _common import Summary, arguments, bench, cold_start, finish, sign_test, table

from pytest_coldstart.record import BootRecord

GOAL = 0.05


def evidence(record: BootRecord) -> tuple[str, str]:
    share, read = record.evidence.resident_fraction, record.evidence.tree_read_bytes
    return "?" if share is None else f"{share:.1%}", "?" if read is None else f"{read / 1e6:.1f} MB"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("-n", type=int, default=12, help="pairs (default: 12)")
    options = parser.parse_args()
    order = random.Random(options.seed)
    pairs: list[dict[str, Any]] = []
    with bench() as where:
        where.boot("pristine")
        for _ in range(options.n):
            first = order.choice(["pristine", "restart"])
            second = "restart" if first == "pristine" else "pristine"
            records = {tier: where.boot(tier) for tier in (first, second)}
            if records["pristine"].outcome != "ok":
                where.boot("pristine")  # a failed boot filled no caches; the failure itself counts below
            pairs.append({"first": first, **records})
    rows = [("pair", "first", "pristine", "resident", "read", "restart", "resident", "read", "ratio")]
    ratios, slower, differ = [], 0, 0
    for number, pair in enumerate(pairs, 1):
        cold, warm = cold_start(pair["pristine"]), cold_start(pair["restart"])
        slower += cold > warm
        differ += cold != warm
        ratios.append(cold / warm)
        rows.append(
            (
                str(number),
                pair["first"],
                f"{cold:.3f} s",
                *evidence(pair["pristine"]),
                f"{warm:.3f} s",
                *evidence(pair["restart"]),
                f"{ratios[-1]:.2f}",
            )
        )
    table(rows)
    one, two = sign_test(slower, differ)
    ratio = Summary.of(ratios)
    print(f"pristine was slower in {slower} of {differ} pairs; sign test p = {one:.2g} one-sided, {two:.2g} two-sided")
    print(f"ratio pristine / restart: {ratio.show()}")
    met = differ >= 8 and two <= GOAL and slower > differ / 2
    print(f"goal, slower in nearly all of at least 8 pairs (two-sided p <= {GOAL:g}): {'met' if met else 'MISSED'}")
    finish(
        options,
        {
            "slower": slower,
            "n": differ,
            "p_one_sided": one,
            "p_two_sided": two,
            "ratio": ratio,
            "pairs": [
                {
                    "first": pair["first"],
                    **{
                        tier: {
                            "cold_start_s": cold_start(pair[tier]),
                            "resident_before": pair[tier].evidence.resident_fraction,
                            "tree_read_bytes": pair[tier].evidence.tree_read_bytes,
                            "device_read_bytes": pair[tier].evidence.device_read_bytes,
                        }
                        for tier in ("pristine", "restart")
                    },
                }
                for pair in pairs
            ],
            "disturbed": where.disturbed,
        },
    )


if __name__ == "__main__":
    main()
