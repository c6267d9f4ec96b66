"""The ladder: coldstart_cell -> coldstart_engine -> coldstart_plan -> cold_boot -> coldstart_client.

Each rung can be overridden in a suite. Light: everything heavy is imported when a boot begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_coldstart.client import Client
    from pytest_coldstart.engines.base import Engine
    from pytest_coldstart.handle import ColdBoot
    from pytest_coldstart.plan import Plan
    from pytest_coldstart.session import CellParam, Session


@pytest.fixture(scope="module")
def coldstart_cell(request: pytest.FixtureRequest) -> CellParam:
    """The cell of this test, from its marker's matrix."""
    param: CellParam | None = getattr(request, "param", None)
    if param is None:
        from pytest_coldstart.options import enabled

        if not enabled(request.config):
            pytest.skip("boots an engine; give --coldstart to run it")
        pytest.fail(
            "cold_boot needs @pytest.mark.coldstart(engine=...) on the test, its class or its module", pytrace=False
        )
    return param


@pytest.fixture(scope="module")
def coldstart_engine(request: pytest.FixtureRequest, coldstart_cell: CellParam) -> Engine:
    """The engine's adapter; skips with the reason where the engine cannot be launched here."""
    return _session(request).engine(coldstart_cell)


@pytest.fixture(scope="module")
def coldstart_plan(request: pytest.FixtureRequest, coldstart_cell: CellParam, coldstart_engine: Engine) -> Plan:
    """How the boots are made. Override it with ``dataclasses.replace(coldstart_plan, ...)``."""
    from dataclasses import replace

    return replace(_session(request).plan(coldstart_cell), engine=coldstart_engine)


@pytest.fixture
def cold_boot(request: pytest.FixtureRequest, coldstart_plan: Plan) -> Iterator[ColdBoot]:
    """The cell's boots: all rounds are made, the last one is up while the test's body runs."""
    from pytest_coldstart.judge import booted

    with booted(_session(request), request.node, coldstart_plan) as boot:
        yield boot


@pytest.fixture(scope="module")
def shared_cold_boot(request: pytest.FixtureRequest, coldstart_plan: Plan) -> Iterator[ColdBoot]:
    """As cold_boot, for several tests of a module on one boot; each test's own SLOs are judged on it."""
    from pytest_coldstart.judge import booted

    with booted(_session(request), request.node, coldstart_plan) as boot:
        yield boot


@pytest.fixture
def coldstart_client(cold_boot: ColdBoot) -> Client:
    """Sends timed, streamed requests to the engine that is up."""
    return cold_boot.client


def _session(request: pytest.FixtureRequest) -> Session:
    from pytest_coldstart.session import session_of

    session = session_of(request.config)
    if session is None:
        pytest.skip("boots an engine; give --coldstart to run it")
    return session
