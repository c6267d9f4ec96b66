"""Hooks that this plugin calls. Implement them in a conftest.py or in another plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_coldstart.engines.base import Engine
    from pytest_coldstart.metrics import Metric
    from pytest_coldstart.record import BootRecord
    from pytest_coldstart.warmup import Warmup


def pytest_coldstart_engines(config: pytest.Config) -> Sequence[type[Engine]]:  # type: ignore[empty-body]
    """Return engine adapters to add to this run; called once, before collection.

    .. code-block:: python

        def pytest_coldstart_engines(config):
            return [MyEngine]

    A distribution that ships an engine uses the entry point group ``pytest_coldstart.engines``.
    """


def pytest_coldstart_metrics(config: pytest.Config) -> Sequence[Metric]:  # type: ignore[empty-body]
    """Return metrics to derive for every boot; they can be bounded, are stored and exported.

    .. code-block:: python

        def pytest_coldstart_metrics(config):
            return [Metric("log_bytes", "B", "Bytes printed.", lambda r: Value(r.log_bytes, "log"), after_stop=True)]
    """


def pytest_coldstart_warmups(config: pytest.Config) -> Sequence[type[Warmup]]:  # type: ignore[empty-body]
    """Return warm-up strategies that suites may name in ``warmup=``.

    .. code-block:: python

        def pytest_coldstart_warmups(config):
            return [LongestPromptFirst]
    """


def pytest_coldstart_boot_finished(record: BootRecord) -> None:
    """A boot has ended, its tree is gone and its record is stored; called where it was made,
    under pytest-xdist in the worker.

    .. code-block:: python

        def pytest_coldstart_boot_finished(record):
            print(record.cell_id, record.metrics["cold_start"].value)
    """
