"""What --coldstart sets up, and every check that must fail before a boot."""

from __future__ import annotations

import pytest

from pytest_coldstart import benchmark
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.hooks import Hooks
from pytest_coldstart.session import NAME, Session, register_extensions
from pytest_coldstart.settings import Settings
from pytest_coldstart.store.database import check
from pytest_coldstart.store.errors import StoreError


def enable(config: pytest.Config) -> None:
    """Register the hooks of a run.

    :raises pytest.UsageError: an option, an engine or the store is unusable.
    """
    try:
        engines = EngineRegistry()
        register_extensions(config, engines)
        engines.all()
        settings = Settings.of(config, engines)
        session = Session(config, settings, engines)
        if not session.is_worker:
            check(session.home.database)
            session.read_baseline()
    except (EngineError, StoreError, ValueError) as error:
        raise pytest.UsageError(f"coldstart: {error}") from None
    # Before the hooks: what is registered later is called earlier, and our table comes first.
    config.pluginmanager.register(benchmark.Rows(session), benchmark.NAME)
    config.pluginmanager.register(Hooks(session), NAME)
