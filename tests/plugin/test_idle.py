"""Without --coldstart the plugin is harmless: nothing heavy is imported, marked tests skip, others run."""

from __future__ import annotations

from tests.plugin.conftest import WIDE, Inner, text_of

SKIP = "boots an engine; give --coldstart to run it"

OPTIONS = (
    *("--coldstart-store=DIR", "--coldstart-engine=NAME", "--coldstart-tier=NAME", "--coldstart-rounds=N"),
    *(
        "--coldstart-budget=DURATION",
        "--coldstart-boot-timeout=DURATION",
        "--coldstart-phase-deadline=INSTANT=DURATION",
    ),
    *("--coldstart-hang-timeout=DURATION", "--coldstart-require=ENGINE", "--coldstart-slo=BOUND"),
    *("--coldstart-python=ENGINE=PATH", "--coldstart-cpu", "--coldstart-probe=MODE", "--coldstart-spans"),
    *("--coldstart-burst=WHEN", "--coldstart-gpu-wait=DURATION", "--coldstart-foreign-gpu=WHAT"),
    *("--coldstart-baseline=SIDE", "--coldstart-keep-logs=WHICH", "--coldstart-parallel", "--coldstart-allow-empty"),
)


def test_marked_tests_skip_and_the_others_run_as_ever(inner: Inner) -> None:
    inner.suite("""
@fake
def test_marked(cold_boot):
    raise AssertionError("the body ran")

@pytest.mark.coldstart(engine="nonsense", no_such="argument")
def test_marked_wrongly(cold_boot):
    raise AssertionError("the body ran")

def test_fixture_without_the_marker(cold_boot):
    raise AssertionError("the body ran")

def test_unmarked(tmp_path):
    assert tmp_path.is_dir()
""")
    result = inner.idle("-rs", "-v")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(
        ["*::test_marked SKIPPED*", "*::test_unmarked PASSED*", f"SKIPPED [[]?] *{SKIP}", f"SKIPPED [[]?] *{SKIP}"]
    )
    assert not inner.store.exists()
    assert not (inner.path / ".coldstart").exists()


def test_an_idle_run_imports_nothing_that_boots_judges_or_stores(inner: Inner, monkeypatch) -> None:
    """The plugin comes by its entry point here, as it does for everyone who has installed it."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    inner.pytester.makepyfile("""
import sys, pytest

@pytest.mark.coldstart(engine="openai")
def test_marked(cold_boot): ...

def test_modules(request):
    assert "duckdb" not in sys.modules
    ours = {name for name in sys.modules if name.split(".")[0] == "pytest_coldstart"}
    assert ours <= {f"pytest_coldstart{rest}" for rest in ("", ".plugin", ".options", ".fixtures", ".hookspecs")}
    assert "pytest_coldstart.plugin" in ours
""")
    result = inner.pytester.runpytest_subprocess("-p", "no:randomly")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)


def test_the_plugin_can_be_turned_off(inner: Inner, monkeypatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    inner.ini("")
    inner.pytester.makepyfile("""
def test_unrelated(request):
    assert not request.config.pluginmanager.has_plugin("coldstart")
""")
    assert inner.pytester.runpytest_subprocess("-p", "no:coldstart").ret == 0


def test_the_fixture_without_the_marker_fails_with_what_is_missing(inner: Inner) -> None:
    inner.suite("""
def test_forgotten(cold_boot):
    raise AssertionError("the body ran")
""")
    result = inner.run()
    assert result.ret == 1
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*cold_boot needs @pytest.mark.coldstart(engine=...) on the test, its class or its module*"]
    )
    assert "the body ran" not in text_of(result)
    assert inner.nothing_booted()


def test_help_shows_every_option_and_its_ini_twin(inner: Inner) -> None:
    text = text_of(inner.idle("--help"))
    missing = [option for option in OPTIONS if option not in text]
    assert missing == []
    names = ["coldstart", *(option.split("=")[0].removeprefix("--").replace("-", "_") for option in OPTIONS)]
    assert [name for name in names if f"  {name} (" not in text] == []


def test_every_option_of_the_table_is_known_to_these_tests() -> None:
    from pytest_coldstart.options import TABLE

    assert {f"--coldstart-{name}" for name, *_ in TABLE} == {option.split("=")[0] for option in OPTIONS}


def test_markers_are_listed_with_their_arguments(inner: Inner) -> None:
    result = inner.idle("--markers")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["@pytest.mark.coldstart(engine, model, matrix, *", "@pytest.mark.slo([*]bounds): *"])


def test_strict_markers_and_strict_config_accept_ours(inner: Inner) -> None:
    inner.ini("coldstart_rounds = 1\n" + WIDE)
    inner.suite("""
@fake
@pytest.mark.slo("cold_start<=1h")
def test_marked(cold_boot): ...
""")
    result = inner.idle("--strict-markers", "--strict-config")
    assert result.ret == 0
    result.assert_outcomes(skipped=1)
