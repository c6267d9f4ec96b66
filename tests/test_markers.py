"""Markers of a test, its class and its module become one mark, and one level of bounds for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_coldstart.cell import Container
from pytest_coldstart.markers import MarkerError, coldstart_mark, slo_levels

Item = Callable[[str], pytest.Item]


@pytest.fixture
def item(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Item:
    """The collected item of the test called test_it in a module; nothing is run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def collect(source: str) -> pytest.Item:
        pytester.makepyfile("import pytest\n" + source)
        items, _ = pytester.inline_genitems("-p", "coldstart", "-p", "no:cacheprovider")
        return next(found for found in items if found.name == "test_it")

    return collect


def test_a_test_without_the_marker_has_none(item: Item) -> None:
    found = item("def test_it(): ...")
    assert coldstart_mark(found) is None
    assert slo_levels(found) == []


def test_the_closest_marker_wins_argument_by_argument(item: Item) -> None:
    found = item("""
pytestmark = pytest.mark.coldstart(engine="openai", rounds=9, requests=8, env={"A": "1"})

@pytest.mark.coldstart(rounds=5, tier="restart")
class TestIt:
    @pytest.mark.coldstart(rounds=2, env={"B": "2"})
    def test_it(self): ...
""")
    mark = coldstart_mark(found)
    assert mark is not None
    assert (mark.engine, mark.rounds, mark.requests, mark.tier) == ("openai", 2, 8, "restart")
    assert mark.env == {"B": "2"}, "a dict is replaced as a whole"


def test_the_defaults_of_a_marker(item: Item) -> None:
    mark = coldstart_mark(item("@pytest.mark.coldstart(engine='openai')\ndef test_it(): ..."))
    assert mark is not None
    assert (mark.tier, mark.rounds, mark.warmup, mark.requests, mark.model) == ("pristine", None, "none", 11, None)


def test_the_closest_bounds_come_first_one_level_a_node(item: Item) -> None:
    found = item("""
pytestmark = [pytest.mark.slo("ready<=9s"), pytest.mark.slo("listen<=9s")]

@pytest.mark.slo("ready<=5s")
class TestIt:
    @pytest.mark.slo("ready<=2s", "cold_start<=2s")
    @pytest.mark.slo("first_token<=2s")
    def test_it(self): ...
""")
    levels = [sorted(bound.text for bound in level) for level in slo_levels(found)]
    assert levels == [["cold_start<=2s", "first_token<=2s", "ready<=2s"], ["ready<=5s"], ["listen<=9s", "ready<=9s"]]
    assert {bound.source for level in slo_levels(found) for bound in level} == {"marker"}


def test_a_container_is_read_from_its_three_keys(item: Item) -> None:
    mark = coldstart_mark(
        item("""
@pytest.mark.coldstart(
    engine="openai",
    command=["docker", "run", "image"],
    container={"stop": ["docker", "stop", "{name}"], "port": 8000, "paths": {"/here": "/there"}},
)
def test_it(): ...
""")
    )
    assert mark is not None
    assert mark.container == Container(("docker", "stop", "{name}"), 8000, {"/here": "/there"})
    assert mark.command == ("docker", "run", "image")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("engine='openai', matrix=[1]", "matrix=[1] is not a dict of axis -> list of values"),
        ("engine='openai', options='x'", "options='x' is not a dict of engine options"),
        ("engine='openai', env=['A']", "env=['A'] is not a dict of environment variables"),
        ("engine='openai', rounds=True", "rounds=True is not a whole number from 1"),
        ("engine='openai', rounds='3'", "rounds='3' is not a whole number from 1"),
        ("engine='openai', requests=1.5", "requests=1.5 is not a whole number from 1"),
        ("engine='openai', port='80'", "port='80' is not a port number"),
        ("engine='openai', include={'a': 1}", "include={'a': 1} is not a list of dicts"),
        ("engine='openai', exclude=['a']", "exclude=['a'] is not a list of dicts"),
        ("engine='openai', command=['a', 1]", "command=['a', 1] is not a list of words"),
        ("engine='openai', command=['/usr/bin/podman', 'run']", "starts a container"),
        ("engine='openai', prompt_words=[]", "prompt_words=[]"),
        ("engine=''", "coldstart needs engine="),
        ("engine='openai', a=1, b=2", "coldstart has no argument 'a', 'b'"),
        ("engine='openai', matrix=5", "matrix=5 is not a dict"),
        ("engine='openai', prompt_words=5", "prompt_words=5"),
        ("engine='openai', command=5", "command=5 is not a list of words"),
        ("engine='openai', include=5", "include=5 is not a list of dicts"),
        ("engine='openai', container=5", "container=5 is not a dict with the keys 'stop', 'port' and 'paths'"),
        ("engine=5", "coldstart needs engine="),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_in_words(item: Item, arguments: str, words: str) -> None:
    found = item(f"@pytest.mark.coldstart({arguments})\ndef test_it(): ...")
    with pytest.raises(MarkerError) as caught:
        coldstart_mark(found)
    assert words in str(caught.value)
