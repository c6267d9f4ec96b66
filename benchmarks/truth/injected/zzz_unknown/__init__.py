"""A package that no rule knows."""

import time


def ponder(seconds: float) -> None:
    time.sleep(seconds)
