"""The pytest plugin: hooks only. Without --coldstart it adds options, markers, fixtures and skips."""

from __future__ import annotations

import pytest

from pytest_coldstart import options
from pytest_coldstart.fixtures import (
    cold_boot,
    coldstart_cell,
    coldstart_client,
    coldstart_engine,
    coldstart_plan,
    shared_cold_boot,
)

__all__ = [
    "cold_boot",
    "coldstart_cell",
    "coldstart_client",
    "coldstart_engine",
    "coldstart_plan",
    "shared_cold_boot",
]

_MARKERS = (
    "coldstart(engine, model, matrix, include, exclude, tier, rounds, warmup, options, env, python, command, container, "
    "port, requests, prompt_words, burst, gpus): boot this engine once a round and cell; the test runs on the last boot",
    "slo(*bounds): bounds on the cell's boots, such as 'cold_start<=10s' or 'warm_first_token.p50@restart<=200ms'",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_coldstart import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    if options.enabled(config):
        from pytest_coldstart.setup import enable

        enable(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    return None if options.enabled(config) else options.idle_words(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if options.enabled(config):
        return
    skip = pytest.mark.skip(reason="boots an engine; give --coldstart to run it")
    for item in items:
        if item.get_closest_marker("coldstart"):
            item.add_marker(skip)
