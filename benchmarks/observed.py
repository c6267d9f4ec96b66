"""Whether watching a boot slows it down: cold_start with ``Plan.observe`` true against false.

Pairs of boots of llama.cpp at tier restart, in random order within a pair, after one boot that
fills the caches. Unobserved boots still have their readiness polled and their hang watched, with one
sample of /proc a second; observed ones take ten (five after 30 s). So it is not a boot that nothing looks
at which they are compared with.

Where wall times scatter by more than a percent, no number of pairs that anyone waits for resolves
1.01; the interval of the median says so. Hence the second figure: CPU time of one sample of a
living tree, times ten a second, as a share of one core. The engine cannot lose more than that.

Goal: median of the pairwise ratios observed / unobserved at most 1.01.
"""

from __future__ import annotations

import random
import time

from _common import Bench, Summary, arguments, bench, cold_start, finish, median_interval, sign_test, table

from pytest_coldstart.boot import Boot
from pytest_coldstart.observe import proc

GOAL = 1.01
SAMPLES_A_SECOND = 10


def sample_cost(where: Bench, n: int = 200) -> list[float]:
    """CPU seconds of each of *n* samples of a tree that is up."""
    boot = Boot(where.plan("restart"))
    boot.run()
    costs = []
    try:
        assert boot.tree is not None
        for _ in range(n):
            begin = time.thread_time()
            proc.sample(boot.tree.supervisor_pid)
            costs.append(time.thread_time() - begin)
            time.sleep(0.002)
    finally:
        boot.stop()
    return costs


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("-n", type=int, default=30, help="pairs (default: 30)")
    options = parser.parse_args()
    order = random.Random(options.seed)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with bench() as where:
        where.boot("pristine")
        where.boot("restart")
        for _ in range(options.n):
            for observe in order.sample([True, False], 2):
                seconds[observe].append(cold_start(where.boot("restart", observe)))
        cost = Summary.of(sample_cost(where))
    ratios = [a / b for a, b in zip(seconds[True], seconds[False], strict=True)]
    ratio, interval = Summary.of(ratios), median_interval(ratios)
    slower = sum(a > b for a, b in zip(seconds[True], seconds[False], strict=True))
    _, p = sign_test(slower, options.n)
    table(
        [
            ("what", "median [quartiles], least..most"),
            ("cold_start, observed", Summary.of(seconds[True]).show(1, 3, " s")),
            ("cold_start, unobserved", Summary.of(seconds[False]).show(1, 3, " s")),
            ("ratio, paired", ratio.show(1, 3)),
            ("95 % interval of its median", f"{interval[0]:.3f}..{interval[1]:.3f}"),
            ("observed was slower in", f"{slower} of {options.n} pairs, two-sided sign test p = {p:.3f}"),
            ("one sample, CPU", cost.show(1e3, 3, " ms")),
            (f"{SAMPLES_A_SECOND} samples a second", f"{cost.median * SAMPLES_A_SECOND:.2%} of one core"),
        ]
    )
    resolved = interval[1] <= GOAL or interval[0] > GOAL
    print(
        f"goal {GOAL:g}: {'met' if ratio.median <= GOAL else 'MISSED'} by the median"
        f"{'' if resolved else '; its interval holds the goal, so these pairs do not decide'}"
    )
    finish(
        options,
        {
            "goal": GOAL,
            "ratio": ratio,
            "median_interval": interval,
            "sample_cpu_s": cost,
            "observed_s": seconds[True],
            "unobserved_s": seconds[False],
            "slower": slower,
            "p_two_sided": p,
            "disturbed": where.disturbed,
        },
    )


if __name__ == "__main__":
    main()
