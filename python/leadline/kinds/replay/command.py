"""Runs `leadline replay`: reads the options and measures once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leadline.cli import single_args
from leadline.cli.kind_command import measure
from leadline.errors import InputError
from leadline.kinds.replay.model import STDIN, ReplayTest
from leadline.kinds.replay.options import COMMAND
from leadline.plan.options import test_values


def run(values: Mapping[str, Any]) -> int:
    """Replay what the options describe, print the result, and return the exit code."""
    if values["capture"] is not None:
        # The only argument is then the target.
        if values["url"] is not None:
            raise InputError(f"{values['source']}: --capture takes the place of SOURCE", hint="leave one of them out")
        values = {**values, "source": None, "url": values["source"]}
        if not values["yes_i_mean"]:
            raise InputError(
                f"--capture {values['capture']} copies the live traffic of others to {values['url']}",
                hint="add --yes-i-mean if you may do that",
            )
    elif values["source"] is None:
        raise InputError("the recording is missing", hint="as in leadline replay access.log http://127.0.0.1:8080/")
    if values["url"] is None:
        raise InputError("the target is missing", hint="as in leadline replay access.log http://127.0.0.1:8080/")
    if values["source"] not in (None, STDIN) and not Path(values["source"]).exists():
        raise InputError(f"{values['source']}: there is no such file", hint="name a recording, or - for stdin")
    if values["single_requests"] != "none" and values["out"] is None:
        raise InputError("--single-requests needs a folder", hint="add --out runs")
    test = single_args.parse(ReplayTest, {"name": "replay", **test_values(COMMAND.options, values)}, COMMAND.flags)
    from leadline.kinds.replay.workload import replay_workload

    load = replay_workload(test, "", single_args.family(values["ipv4"], values["ipv6"]))
    output = single_args.OutputOptions(
        f"{test.capture or test.source} to {test.url}",
        values["json"],
        values["out"],
        list(values["target"] or []),
        interval_ms=single_args.interval(values),
        verbose=values["verbose"],
        calibrate=False,  # its ceiling follows from the run itself
    )
    return measure(test, load, output)
