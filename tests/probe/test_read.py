"""Files of the probe that are cut short, damaged or of another time."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from pytest_coldstart.phases.trace import Frame
from pytest_coldstart.probe.read import read_file, read_folder
from tests.probe.running import BUSY, run_program

HEAD = "P\t1\tfull\t42\t7\t1000000\t1250000\tsite\t3.11.7\n"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("real")
    (path,) = run_program(BUSY + "busy(0.5)\n", home).folder.glob("*.probe")
    return path


def read(text: str | bytes, tmp_path: Path):
    path = tmp_path / "x.probe"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_file(path)


def test_each_line_by_hand(tmp_path: Path) -> None:
    trace = read(
        HEAD + "A\tpython\t-c\tprint(\\n)\n"
        "T\tpython\t1250000\n"
        "F\t0\t__main__\t<module>\t/a\\tb.py\n"
        "F\t1\tpkg.mod\tC.f\t/c.py\n"
        "S\t1300000\t0\t12\t0\t0,1\tpkg\n"
        "S\t1350000\t0\t13\t1\t\t\n"
        "S\t1350000\t99\t3\t0\t1\t\n"
        "E\t1400000\t99\n"
        "N\t1400000\tEngineCore\n"
        "V\tTRITON_CACHE_DIR\t/caches\n"
        "C\t1500000\t2500\t321\n"
        "X\t1500000\tdone\n"
        "Z\tof a later time\n",
        tmp_path,
    )
    outer, inner = Frame("__main__", "<module>", "/a\tb.py"), Frame("pkg.mod", "C.f", "/c.py")
    assert (trace.pid, trace.parent, trace.started, trace.python, trace.mode) == (42, 7, 1.0, 1.25, "full")
    assert trace.argv == ("python", "-c", "print(\n)")
    assert trace.stamps == {"python": 1.25}
    assert [(s.when, s.thread, s.line, s.stack, s.importing) for s in trace.samples] == [
        (1.3, 0, 12, (outer, inner), "pkg"),
        (1.35, 0, 13, (outer,), ""),
        (1.35, 99, 3, (inner,), ""),
        (1.4, 99, 0, (), ""),
    ]
    assert trace.names == [(1.4, "EngineCore")]
    assert trace.cache_paths == {"TRITON_CACHE_DIR": "/caches"}
    assert (trace.last, trace.probe_cpu, trace.modules, trace.lost) == (1.5, 0.0025, 321, "")


def test_cut_anywhere_it_is_a_beginning(real: Path, tmp_path: Path) -> None:
    data = real.read_bytes()
    whole = read_file(real)
    assert whole is not None
    assert len(whole.samples) >= 3
    first = data.index(b"\n") + 1
    for size in range(len(data)):
        trace = read(data[:size], tmp_path)
        if size < first:
            assert trace is None
        else:
            assert trace is not None
            assert trace.samples == whole.samples[: len(trace.samples)]
            assert trace.stamps.items() <= whole.stamps.items()
            assert bool(trace.lost) == (data[size - 1 : size] != b"\n")


def test_garbage_never_raises(real: Path, tmp_path: Path) -> None:
    data, chance = real.read_bytes(), random.Random(4)
    for _ in range(100):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 30)):
            at = chance.randrange(len(broken))
            broken[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        read(bytes(broken), tmp_path)
        read(chance.randbytes(300), tmp_path)
    for line in (
        "S\t1\t0\t1\t-1\t0\t\n",
        "C\t" + "9" * 400 + "\t1\t1\n",
        "S\t1\t0\t1\t5\t\t\n",
        "S\t1\t0\t1\t0\t7\t\n",
        "L\n",
        "X\n",
    ):
        trace = read(HEAD + line, tmp_path)
        assert trace.lost == "1 line of its file could not be read"
        assert trace.samples == []


def test_a_line_cut_by_a_full_disk_is_not_believed(tmp_path: Path) -> None:
    trace = read(HEAD + "T\tmain\t13\0\nL\t1300000\t1900000\t2\tNo space left on device\nT\tmain\t1300000\n", tmp_path)
    assert trace.stamps == {"main": 1.3}
    assert trace.lost == "2 of its records could not be written: No space left on device"


def test_after_a_loss_nothing_is_known_of_other_threads(tmp_path: Path) -> None:
    text = "F\t0\tm\tf\t/f.py\nS\t1300000\t99\t1\t0\t0\t\nL\t1400000\t1500000\t2\tx\nS\t1600000\t99\t1\t1\t\t\n"
    trace = read(HEAD + text, tmp_path)
    assert [(sample.when, len(sample.stack)) for sample in trace.samples] == [(1.3, 1), (1.4, 0)]


def test_a_later_format_and_another_file_are_no_traces(tmp_path: Path) -> None:
    assert read(HEAD.replace("P\t1", "P\t2"), tmp_path) is None
    assert read("", tmp_path) is None
    assert read("hello\n", tmp_path) is None
    assert read_file(tmp_path / "missing.probe") is None
    assert read_folder(tmp_path / "missing") == []


def test_processes_come_in_the_order_of_their_start(tmp_path: Path) -> None:
    for pid, started in ((1, 3), (2, 1), (3, 2)):
        (tmp_path / f"{pid}.probe").write_text(HEAD.replace("\t42\t7\t1000000", f"\t{pid}\t7\t{started}000000"))
    (tmp_path / "other.probe").write_text("no\n")
    (tmp_path / "done").write_text("")
    assert [trace.pid for trace in read_folder(tmp_path)] == [2, 3, 1]


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1-1.probe")
    (tmp_path / "2-2.probe").symlink_to("/dev/zero")
    assert read_folder(tmp_path) == []
