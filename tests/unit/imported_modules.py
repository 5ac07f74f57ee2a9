"""Prints on stderr, as JSON, what one use of the package imports: a result, and the names of all imported modules.

`imported_modules.py USE ARGUMENT...`, where USE is a function of this file.
"""

# Imports are what is measured: each function has its own.
# ruff: noqa: PLC0415

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args


def commands(lines: str, heavy: str) -> object:
    """Of command lines one after another: each one's status, and the heavy modules that exist after it."""
    from leadline.cli import app

    found = {}
    for line in json.loads(lines):
        sys.argv = ["leadline", *line.split()]
        status = app._status()
        found[line] = [status, sorted(set(sys.modules) & set(json.loads(heavy)))]
    return found


def version() -> object:
    """Of `leadline --version`: its status."""
    from leadline.cli import main

    sys.argv = ["leadline", "--version"]
    try:
        main()
    except SystemExit as end:
        return end.code
    return None


def measurement() -> object:
    """Of what runs one measurement."""
    importlib.import_module("leadline.cli.run_single")
    return 0


def workload(name: str) -> object:
    """Of a command to an agent with this workload, and an event of an agent: the workloads whose models were built."""
    from leadline.agents import messages
    from leadline.contract import models

    kind = getattr(models, name)
    kind.model_rebuild()
    messages.encode(models.Prepare.model_construct(trial="c01/1", task="load", workload=kind.model_construct()))
    messages.parse_event('{"type": "heartbeat", "t_ns": 1}')
    return sorted(one.__name__ for one in get_args(messages.Workload) if one.__pydantic_complete__)


def cases(plan: str) -> object:
    """Of reading a plan: the number of its cases."""
    from leadline.plan import describe, load_plan

    return len(describe(load_plan(Path(plan))).cases)


def missing_names(*packages: str) -> object:
    """Of every name that packages list: those that are not there."""
    modules = [importlib.import_module(name) for name in packages]
    listed = [(module, name) for module in modules for name in module.__all__]
    return [f"{module.__name__}.{name}" for module, name in listed if not hasattr(module, name)]


USES: dict[str, Callable[..., object]] = {
    use.__name__: use for use in (commands, version, measurement, workload, cases, missing_names)
}

if __name__ == "__main__":
    result = USES[sys.argv[1]](*sys.argv[2:])
    print(json.dumps([result, sorted(sys.modules)]), file=sys.stderr)
