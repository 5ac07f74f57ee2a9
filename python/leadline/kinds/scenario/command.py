"""Runs `leadline scenario`: reads the file, lists what a conversion changed, and measures once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.cli import single_args
from leadline.cli.convert import parameters, print_unset
from leadline.cli.kind_command import measure
from leadline.cli.output import print_json, print_note
from leadline.cli.scenario_check import check_scenario
from leadline.errors import InputError
from leadline.kinds.scenario.model import LoadedScenario, ScenarioTest
from leadline.kinds.scenario.options import COMMAND
from leadline.kinds.scenario.targets import targets_of
from leadline.plan.options import test_values
from leadline.scenario.files import find_scenario, read_scenario_file, reader_below
from leadline.scenario.formats import FormatOptions, read_scenario

if TYPE_CHECKING:
    from leadline.cli.sample_file import SampleFormat
    from leadline.contract.models import ScenarioWorkload
    from leadline.scenario.conversion import Conversion
    from leadline.scenario.thresholds import Threshold

EXAMPLE = """\
# Users that fetch a page, and one of its parts with a number. Start `leadline serve` beside it.
name: example
base: http://${param('host', '127.0.0.1:8080')}
load: {users: 5, duration: 5s}
thresholds: {http_req_failed: rate<0.01}
flow:
  - transaction: page
    steps:
      - get: /?size=1000
        name: page
        check: [200]
      - get: /?part=${random(1, 100)}
        name: part
  - wait: {uniform: [10ms, 50ms]}
"""
_MOST_LINES = 12


def run(values: Mapping[str, Any]) -> int:
    """Run the scenario that the options describe, print the result, and return the exit code."""
    if values["example"]:
        print(EXAMPLE, end="")
        return 0
    if values["schema"]:
        from leadline.scenario.model import scenario_schema

        print_json(scenario_schema())
        return 0
    if values["file"] is None:
        raise InputError("the scenario is missing", hint="name its file, or give --example")
    if values["single_requests"] != "none" and values["out"] is None:
        raise InputError("--single-requests needs a folder", hint="add --out runs")
    if values["jtl"] is not None:
        values = {**values, "single_requests": "urls"}
    given = parameters(values["param"])
    loaded = _loaded(values, given)
    lowered = loaded.lowered(given)
    check_scenario(lowered, loaded.name)
    test = single_args.parse(
        ScenarioTest,
        {"name": "scenario", "file": loaded, "params": given, **test_values(COMMAND.options, values)},
        COMMAND.flags,
    )
    if loaded.conversion is not None:
        _print(loaded.conversion)
    print_unset(lowered)
    from leadline.kinds.scenario.workload import scenario_workload

    family = single_args.family(values["ipv4"], values["ipv6"])
    thresholds = lowered.thresholds
    limits, aborting = targets_of(thresholds)
    load = scenario_workload(test, {}, family, reports_so_far=bool(aborting))
    output = single_args.OutputOptions(
        str(values["file"]),
        values["json"],
        values["out"],
        [*limits, *(values["target"] or [])],
        interval_ms=single_args.interval(values),
        aborting=aborting,
        verbose=values["verbose"],
        calibrate=False,  # its ceiling follows from the run itself
        summary=_summary(values["summary_export"], [one for one, _, _ in thresholds]),
        samples=None if values["jtl"] is None else _jtl(values["jtl"], load),
    )
    return measure(test, load, output)


def _summary(path: Path | None, thresholds: Sequence[Threshold]) -> single_args.SummaryFile | None:
    """A file in k6's format."""
    if path is None:
        return None
    from leadline.kinds.scenario.k6_summary import k6_summary

    return single_args.SummaryFile(path, partial(k6_summary, thresholds=thresholds))


def _jtl(path: Path, load: ScenarioWorkload) -> SampleFormat:
    """A file in JMeter's format."""
    from leadline.cli.sample_file import SampleFormat
    from leadline.kinds.scenario.jtl import HEADER, jtl_text

    groups = [population.name for population in load.plan.populations]
    return SampleFormat("--jtl", path, HEADER, partial(jtl_text, groups=groups))


def _loaded(values: Mapping[str, Any], given: Mapping[str, str]) -> LoadedScenario:
    """The scenario's file. Raises PlanError."""
    path = find_scenario(values["file"])
    options = FormatOptions(
        parameters=given,
        skips_scripts=values["scripts"] == "skip",
        only_hosts=tuple(values["only_host"] or ()),
        correlates=not values["no_correlate"],
    )
    read_file = reader_below(path.parent, anywhere=values["any_file"])
    read, conversion = read_scenario(read_scenario_file(path), str(path), options, read_file)
    return LoadedScenario(str(path), read, read_file, conversion)


def _print(conversion: Conversion) -> None:
    """What a conversion changed, on stderr."""
    differing = [item for item in conversion.items if item.outcome != "kept"]
    for item in differing[:_MOST_LINES]:
        print_note(f"{conversion.place(item)}: {item.outcome}: {item.what}: {item.why}")
    if len(differing) > _MOST_LINES:
        print_note(f"and {len(differing) - _MOST_LINES} more (`leadline convert` lists all)")
