"""A store of made-up boots, to look at the dashboard without an engine: ``coldstart dashboard --demo``.

The boots are made up and everything behind them is real: their metrics are measured, their bounds judged, their hints
found and their lines stored by the same code as those of real boots. Models, hosts and paths say ``demo``, and each run
says it in its header, by which the dashboard labels its pages.
"""

from pytest_coldstart.demo.store import write

__all__ = ["write"]
