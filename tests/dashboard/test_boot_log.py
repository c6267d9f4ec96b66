"""The engine's log of a boot: what of the disk is read, and how a hostile line is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dashboard import boot_log
from dashboard.boot_log import Line
from pytest_coldstart.record import Failure
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot
from tests.store.samples import record

TEXT = "[+    0.100] loading\n[+    0.250] \x1b[31m<b>red</b>\x00 **bold**\n  more of it\n[+    1.500] ready\n"


def at(home: Home, name: str, text: str = TEXT) -> Path:
    path = home.logs / name
    path.write_text(text)
    return path


def test_lines_have_their_offsets_and_what_a_terminal_would_act_on_is_escaped(home: Home) -> None:
    path = at(home, "b.log")
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=str(path)))
    assert log.lines == (
        Line("loading", 0.1),
        Line("\\x1b[31m<b>red</b>\\x00 **bold**", 0.25),
        Line("  more of it", 0.25),
        Line("ready", 1.5),
    )
    assert (log.about, log.timed) == ((f"{path}, whole",), True)
    assert boot_log.shown(log.lines[:1]) == "    0.100  loading"


def test_an_interval_has_the_lines_that_came_in_it_and_at_its_ends(home: Home) -> None:
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=str(at(home, "b.log"))))
    assert [line.text for line in boot_log.between(log, 0.0, 0.1)] == ["loading"]
    assert [line.at for line in boot_log.between(log, 0.2, 1.5)] == [0.25, 0.25, 1.5]
    assert boot_log.between(log, 2.0, 3.0) == ()


@pytest.mark.parametrize("where", ["outside", "link", "up"])
def test_nothing_outside_the_folder_of_logs_is_read(home: Home, tmp_path: Path, where: str) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text("[+ 0.1] secret\n")
    path = {"outside": secret, "link": home.logs / "link.log", "up": home.logs / ".." / ".." / "secret.log"}[where]
    if where == "link":
        path.symlink_to(secret)
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=str(path)))
    assert log.lines == ()
    assert log.about == (f"the log {path} lies outside the store's folder {home.logs}, and is not read",)


@pytest.mark.parametrize("what", ["gone", "folder", "pipe", "nul", "circle"])
def test_what_is_no_file_is_said_and_never_waited_for(home: Home, what: str) -> None:
    path = home.logs / what
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "circle":
        path.symlink_to(path)
    text = f"{path}\x00" if what == "nul" else str(path)
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=text))
    assert log.lines == ()
    assert len(log.about) == 1
    assert "no longer there" in log.about[0] or "is no file" in log.about[0]


def test_of_a_large_file_both_ends_are_read_and_whole_lines_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_log, "HEAD", 100)
    monkeypatch.setattr(boot_log, "TAIL", 100)
    path = at(home, "b.log", "".join(f"[+{n:9.3f}] line {n:04d}\n" for n in range(1000)))
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=str(path)))
    assert log.about == (f"{path}: the first and the last 100 B of 23 KB",)
    texts = [line.text for line in log.lines]
    assert texts == [
        "line 0000",
        "line 0001",
        "line 0002",
        "line 0003",
        "[22.8 KB in the middle of the file are left out here]",
    ] + [f"line {n:04d}" for n in (996, 997, 998, 999)]


def test_a_long_line_and_many_lines_are_cut_and_say_so(home: Home) -> None:
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=str(at(home, "b.log", "x" * 5000 + "\n" + "y\n" * 1000))))
    assert log.lines[0].text == "x" * 500 + "... (5000 characters)"
    lines, words = boot_log.cut(log.lines)
    assert len(lines) == boot_log.LINES + 1
    assert words.startswith("601 of 1001 lines are left out")
    assert lines[200].text == "[601 lines are left out here]"


def test_without_a_file_the_end_that_the_record_holds_is_shown(home: Home) -> None:
    failure = Failure("exit", "exited with 1", "listen", "[+    0.500] out of <memory>")
    log = boot_log.read(home, record("b", failure=failure, log_path=None))
    assert log.lines == (Line("out of <memory>", 0.5),)
    assert "was not kept" in log.about[0]


def test_a_log_that_was_not_kept_is_unmeasured_and_says_how_to_keep_it(home: Home) -> None:
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=None))
    assert log.about == ("unmeasured: the log was not kept; run with --coldstart-keep-logs=all",)


def test_bytes_that_are_no_text_are_shown(home: Home) -> None:
    path = home.logs / "b.log"
    path.write_bytes(b"[+    0.100] \xff\xfe bytes\n")
    log = boot_log.read(home, boot("b", 1, 1.0, log_path=str(path)))
    assert log.lines == (Line("\ufffd\ufffd bytes", 0.1),)
