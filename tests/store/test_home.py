from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home


def test_a_folder_is_the_home(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "x")
    assert (home.root, home.database) == (tmp_path / "x", tmp_path / "x" / "coldstart.duckdb")
    assert home.runs == tmp_path / "x" / "runs"
    assert home.logs == tmp_path / "x" / "logs"
    assert home.caches == tmp_path / "x" / "caches"


def test_a_duckdb_file_is_the_database_in_its_folder(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "shared" / "team.duckdb")
    assert (home.root, home.database) == (tmp_path / "shared", tmp_path / "shared" / "team.duckdb")


def test_the_home_of_nobody_is_a_clear_error() -> None:
    with pytest.raises(StoreError, match=r"the store ~nobody-of-this-name/x: .*--coldstart-store"):
        Home.at(Path("~nobody-of-this-name/x"))


def test_a_relative_path_does_not_move_with_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Home.at(Path(".coldstart")).root == tmp_path / ".coldstart"


def test_prepare_makes_folders_and_hides_them_from_git(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "deep" / "home")
    home.prepare()
    home.prepare()
    assert sorted(os.listdir(home.root)) == [".gitignore", "caches", "logs", "runs"]
    assert (home.root / ".gitignore").read_text() == "*\n"


def test_a_folder_that_was_there_gets_no_gitignore(tmp_path: Path) -> None:
    Home.at(tmp_path).prepare()
    assert sorted(os.listdir(tmp_path)) == ["caches", "logs", "runs"]


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match=r"home: File exists; choose another with --coldstart-store"):
        Home.at(tmp_path / "home").prepare()


def test_read_only_home(mounted: Callable[[str], Path]) -> None:
    point = mounted("ro,size=1m")
    with pytest.raises(StoreError, match=r"Read-only file system; choose another with --coldstart-store") as caught:
        Home.at(point).prepare()
    assert str(point) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="mode bits do not bind root")
def test_home_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(StoreError, match="Permission denied"):
        Home.at(tmp_path / "home").prepare()
