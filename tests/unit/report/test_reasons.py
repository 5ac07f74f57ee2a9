"""Why results are not valid, in the terminal: each of them with its reasons, figures and advice, and nothing twice."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from sample_runs import GENERATOR_LIMITED, gateway_run, many_trials, one_result

import leadline.analysis
import leadline.kinds
from leadline.analysis.advice import ADVICE
from leadline.analysis.machine_rules import MACHINE_REASONS, RULES_OFF
from leadline.analysis.model import Reason, Summary, Validity, Verdict
from leadline.report import measurement, run_renderables
from leadline.report.reason_groups import reason_groups
from leadline.report.reasons import MOST_IN_FULL, reasons_of_results, why_not_valid

# Reasons that take no result's validity away: of a run as a whole, or notes.
WITHOUT_ADVICE = {
    "source-whole-seconds",
    "periodic-stalls",
    "roughly-known",
    "head-and-tail",
    "interval-within-test",
    "idle-poll-refused",
    "idle-wake-up",
    "batched-datagrams",
    "answering-side-unknown",
    "answers-refuse",
    "ceiling-doubtful",
    "ceiling-too-short",
    "ceiling-unknown",
    "clients-left-out",
    "clients-without-traffic",
    "clock-below-base",
    "clock-changed",
    "connections-busy",
    "counters-missing",
    "connection-per-request",
    "cpu-shared",
    "cpu-stolen",
    "clock-stepped",
    "errors",
    "gateway-shares-cpus",
    "gateway-time-unseen",
    "interface-errors",
    "journal-torn",
    "latency-lower-bound",
    "load-in-all",
    "no-rate-held",
    "no-results",
    "observer-cost",
    "repeats-incomplete",
    "requests-cut-off",
    "start-skew",
    "profiled",
    "sampling-thinned",
    "shared-cpus",
    "trials-failed",
    "trials-skipped",
    "unanswered",
    "unsynchronised-clock",
    "user-space-data-plane",
    "repeats-with-outage",
}

JUDGED_ANYWHERE = {
    *("clients-missing", "clients-never-tried", "clients-unfinished", "no-clients-reported", "connections-lost"),
    *("ended-early", "flows-broken-off", "flows-not-started", "hosts-lost", "hosts-without-figures"),
    "no-steady-window",
    *("gateway-counters-unknown", "gateway-not-crossed", "gateway-shares-cpus", "journal-damaged"),
    *("no-generator-figures", "no-receiver-figures", "sender-side-figure", "no-repeat-done", "nothing-answered"),
    *("nothing-came-through", "path-mtu-too-small", "repeats-disturbed", "repeats-failed", RULES_OFF),
    *("link-lost", "link-outage", "still-arriving"),
    # Of searches: they follow from how each trial was judged.
    *("few-samples", "generator-limited-trials", "highest-rate-held", "search-budget", "trials-disturbed"),
    "too-few-clients",
    # Of packets: what counted them, and what it could tell apart.
    *("interface-counters", "uncounted-packets", "inexact-packets"),
    # Of recordings.
    *("source-broken-off", "nothing-replayed", "requests-lost"),
}
"""Reasons that hold whatever the machine does."""


def shown(*renderables: RenderableType | None, width: int = 80) -> str:
    console = Console(width=width, record=True, file=None, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        for renderable in renderables:
            if renderable is not None:
                console.print(renderable)
    return capture.get()


def flat(text: str) -> str:
    return " ".join(text.split())


def test_each_result_that_is_not_valid_names_its_reasons_with_figures_and_advice() -> None:
    text = shown(why_not_valid(gateway_run()))
    assert max(len(line) for line in text.splitlines()) <= 80
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if "http  ≥ generator-limited" in line)
    assert lines[first + 1].startswith("   thread-saturated: the busiest generating thread on client1")
    assert "the repeats' throughput spreads over 12.4 % of the mean; the plan allows 5 %" in flat(text)
    assert flat(text).count(ADVICE["thread-saturated"]) == 1
    assert ADVICE["repeats-disagree"] in flat(text)
    assert "tcp-up" not in text


def test_a_run_of_valid_results_has_no_such_part() -> None:
    assert why_not_valid(many_trials(10)) is None


def disturbed(case: str, test: str, share: int, host: str = "client1") -> Summary:
    text = f"processes outside of this run used {share} % of one CPU, of the 4 CPUs that {host} is on"
    reason = Reason("machine-disturbed", text, Verdict.DISTURBED)
    return replace(gateway_run().summaries[0], case=case, test=test, validity=Validity(Verdict.DISTURBED, (reason,)))


def test_one_reason_of_ninety_results_takes_a_few_lines() -> None:
    results = [disturbed(f"c{case:02}", test, 20 + case) for case in range(1, 31) for test in ("tcp-up", "udp", "http")]
    text = shown(why_not_valid(replace(gateway_run(), summaries=tuple(results))))
    lines = text.splitlines()
    assert len(lines) <= 10 and max(len(line) for line in lines) <= 80
    assert lines[1] == " c01 to c30 tcp-up, udp, http  ! disturbed"
    assert "used 21 to 50 % of one CPU, of the 4 CPUs that client1 is on" in flat(text)


def test_hosts_stay_separate_and_names_keep_their_numbers() -> None:
    results = (
        disturbed("c01", "tcp-up", 30),
        disturbed("c02", "tcp-up", 80),
        replace(disturbed("c03", "tcp-up", 0), validity=Validity(Verdict.VALID)),
        disturbed("c04", "tcp-up", 50),
        disturbed("c04", "udp", 40, "server-2"),
    )
    text = flat(shown(why_not_valid(replace(gateway_run(), summaries=results))))
    assert "c01, c02, c04 tcp-up ! disturbed machine-disturbed: processes outside of this run used 30 to 80 %" in text
    assert "c04 udp ! disturbed machine-disturbed: processes outside of this run used 40 %" in text
    assert "CPUs that server-2 is on" in text


def test_what_only_some_repeats_had_is_joined_with_what_all_had() -> None:
    one = disturbed("c01", "tcp-up", 30)
    some = replace(one.validity.reasons[0], text=f"{one.validity.reasons[0].text} (in 2 of 3 repeats)")
    other = replace(one, case="c02", validity=replace(one.validity, reasons=(some,)))
    [group] = reason_groups([one, other])
    assert group.text == one.validity.reasons[0].text and len(group.results) == 2


def test_reasons_of_more_figures_than_a_line_names_are_one() -> None:
    one, other = disturbed("c01", "tcp-up", 30), disturbed("c01", "udp", 40)
    (reason,) = one.validity.reasons
    many = [replace(reason, metrics=tuple(f"{kind}_{number}" for number in range(4))) for kind in ("tcp", "udp")]
    results = [
        replace(result, validity=replace(result.validity, reasons=(said,)))
        for result, said in zip((one, other), many, strict=True)
    ]
    run = replace(gateway_run(), summaries=tuple(results))
    [(named, group)] = reasons_of_results(run)
    assert named == "c01 tcp-up, udp" and group.metrics == ()
    assert flat(shown(why_not_valid(run))).count("machine-disturbed: ") == 1


def test_many_reasons_are_bounded_and_each_still_names_its_results() -> None:
    run = gateway_run()
    doubted = tuple(disturbed(f"c{number:03}", "tcp-up", 30, f"host-{number}") for number in range(0, 600, 2))
    text = flat(shown(why_not_valid(replace(run, summaries=doubted))))
    assert text.count("processes outside") == MOST_IN_FULL
    assert f"{300 - MOST_IN_FULL} more, in full in report.html" in text
    assert all(f"{one.case} tcp-up" in text for one in doubted)
    assert text.count("machine-disturbed: c") == 300 - MOST_IN_FULL


def test_a_run_does_not_give_its_results_verdicts_as_their_reason() -> None:
    counted = Reason("results-unstable", "3 of 18 results are unstable")
    text = shown(*run_renderables(gateway_run(validity=Validity(Verdict.UNSTABLE, (counted,)))))
    assert "results-unstable" not in text
    assert "3 of 18 results" not in text
    assert "Why results are not valid" in text


def test_a_single_measurement_has_advice_too() -> None:
    result = replace(one_result("http"), validity=GENERATOR_LIMITED)
    assert ADVICE["thread-saturated"] in flat(shown(measurement(result, verbose=True)))


def codes_in(sources: list[Path]) -> set[str]:
    """The codes of reasons that modules make: the first arguments of Reason(), and of what makes one for it."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source.read_text()))]
    constants = {
        node.targets[0].id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Reason", "incomplete"):
            [code, *_] = node.args
            if isinstance(code, ast.Constant):
                found.add(str(code.value))
            name = code.id if isinstance(code, ast.Name) else code.attr if isinstance(code, ast.Attribute) else ""
            if name in constants:
                found.add(str(constants[name]))
    return found


def test_every_reason_against_a_result_has_advice() -> None:
    sources = [Path(package.__path__[0]).rglob("*.py") for package in (leadline.analysis, leadline.kinds)]
    # What a search says of itself is no reason against one result.
    made = codes_in([path for paths in sources for path in paths if path.stem != "search"])
    assert {"gateway-not-crossed", "hosts-without-figures", "journal-damaged", "sends-late"} <= made
    # What others name by a variable is in the modules that define it.
    assert made - set(ADVICE) - WITHOUT_ADVICE == set()


def test_every_reason_belongs_to_the_machine_or_not() -> None:
    """A new reason has to say whether it may depend on what else the machine does."""
    folders = [Path(package.__path__[0]) for package in (leadline.analysis, leadline.kinds)]
    made = codes_in([path for folder in folders for path in folder.rglob("*.py")]) | set(ADVICE)
    unsorted = made - MACHINE_REASONS - JUDGED_ANYWHERE - WITHOUT_ADVICE
    assert unsorted == set(), "name them in analysis.machine_rules.MACHINE_REASONS or here"
    assert made >= MACHINE_REASONS | JUDGED_ANYWHERE - {"too-few-clients", "gateway-shares-cpus"}
    assert MACHINE_REASONS.isdisjoint(JUDGED_ANYWHERE)


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_advice_is_one_plain_line(code: str) -> None:
    assert "\n" not in ADVICE[code]
    assert not ADVICE[code].endswith(".")
