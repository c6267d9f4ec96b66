"""Serve a TensorRT engine of TensorRT-LLM, built before if its folder holds none.

Runs in the engine's interpreter: standard library alone. Arguments: ``ENGINE_DIR -- BUILD... -- SERVE...``, two command
lines; the build's ``--output_dir`` is added here. The build is whole or not there: it is made beside and then renamed.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

#: What begins and ends the build in the log; the log patterns look for it.
BEGIN, END = "coldstart: trtllm-build begins", "coldstart: trtllm-build ended"


def build_engine(folder: str, words: list[str]) -> int:
    """Build into *folder*; the builder's exit code."""
    partial = folder + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    print(BEGIN, flush=True)
    # The whole life of the builder is one phase, so nothing looks into it.
    child = subprocess.Popen([*words, "--output_dir", partial], env={**os.environ, "COLDSTART_PROBE": "off"})
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print(f"{END} with exit code {code}", flush=True)
    if code == 0:
        Path(partial).rename(folder)
    return code


def main(words: list[str]) -> NoReturn:
    folder, build, serve = words[0], *_split(words[1:])
    if not Path(folder, "config.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        code = build_engine(folder, build)
        if code:
            sys.exit(code if code > 0 else 128 - code)
    os.execvp(serve[0], serve)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    second = words.index("--", 1)
    return words[1:second], words[second + 1 :]


if __name__ == "__main__":
    main(sys.argv[1:])
