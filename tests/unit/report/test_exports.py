"""Findings in other tools' formats: missed targets fail, unknown figures are left out, no text breaks the format."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from sample_runs import gateway_run, many_trials

from leadline.analysis.model import Bound, Metric, Verdict
from leadline.report.exports import influx, junit, openmetrics
from leadline.report.verdicts import run_ending


def test_junit_has_a_case_for_each_target_and_each_result() -> None:
    suite = ElementTree.fromstring(junit(gateway_run()))[0]
    cases = {(case.get("classname"), case.get("name")): [part.tag for part in case] for case in suite}
    assert cases[("c01", "udp.lost_ratio < 0.001")] == []
    assert cases[("c03", "udp.lost_ratio < 0.001")] == ["failure"]
    assert cases[("c03", "rr.latency_p99_us < 1000")] == ["error"]
    assert cases[("c01", "http sut.kind=route clients=2")] == ["skipped"]
    assert cases[("c02", "http sut.kind=wireguard clients=2")] == []
    assert cases[("c03", "trial c03/3")] == ["error"]
    assert cases[("gateway", "run")] == ["error"]
    counted = {name: int(suite.get(name, "-1")) for name in ("tests", "failures", "errors", "skipped")}
    assert counted == {"tests": len(cases), "failures": 1, "errors": 3, "skipped": 2}


@pytest.mark.parametrize("status", ["killed", "interrupted", "failed"])
def test_junit_of_a_run_that_ended_early_has_errors(status: str) -> None:
    """Each trial that began is done: without errors of their own the missing ones would be green."""
    done = many_trials(5)
    killed = replace(done, status=status, missing_trials=("c01/6", "c02/1"))
    errors = {
        (case.get("classname"), case.get("name"), error.get("message"))
        for case in ElementTree.fromstring(junit(killed))[0]
        for error in case.iter("error")
    }
    assert errors == {
        ("c01", "trial c01/6", "the trial did not begin"),
        ("c02", "trial c02/1", "the trial did not begin"),
        ("many", "run", run_ending(killed)),
    }
    assert ElementTree.fromstring(junit(done))[0].get("errors") == "0"


def test_junit_stays_readable_whatever_a_trial_said() -> None:
    run = gateway_run()
    trials = [replace(trial, status="failed", error="\x00 <broken> & \x1b[31mred") for trial in run.trials]
    text = junit(replace(run, trials=tuple(trials)))
    assert "&lt;broken&gt; &amp;" in text and "\x00" not in text and "\x1b" not in text
    ElementTree.fromstring(text)


def test_openmetrics_ends_as_it_must_and_writes_each_family_together() -> None:
    lines = openmetrics([gateway_run()]).splitlines()
    assert lines[-1] == "# EOF"
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) and "leadline_throughput_bps_low" in families
    sample = re.compile(r'^(leadline_\w+)\{(?:\w+="(?:[^"\\\n]|\\.)*",?)+\} -?[0-9.e+-]+( \d+\.\d{3})?$')
    family = ""
    for line in lines[:-1]:
        if line.startswith("# TYPE"):
            family = line.split()[2]
        else:
            found = sample.match(line)
            assert found is not None and found[1] == family, line
    assert 'verdict="generator-limited"' in "\n".join(lines)


def test_influx_escapes_what_separates() -> None:
    run = gateway_run()
    odd = replace(run.summaries[0], parameters={"packet size": "a b,c=d"})
    (line, *_) = influx([replace(run, summaries=(odd,))]).splitlines()
    assert r"parameter_packet_size=a\ b\,c\=d" in line
    assert re.search(r' value=[0-9.e+]+,low=[0-9.e+]+,high=[0-9.e+]+,verdict="valid"( \d+)?$', line), line


BOUNDS = {
    "exact": Metric(1.0, "us"),
    "censored": Metric(1.0, "us", censored=True),
    "most": Metric(1.0, "us", verdict=Verdict.UNDETERMINED, bound=Bound.MOST),
    "either": Metric(1.0, "us", verdict=Verdict.UNSTABLE, bound=Bound.NONE),
}
"""Figures, and bounds of figures."""
WORDS = {"exact": None, "censored": "at least", "most": "at most", "either": "not known"}


def test_bounds_have_a_label() -> None:
    run = gateway_run()
    bounded = replace(run, summaries=(replace(run.summaries[0], metrics=BOUNDS),))
    for name, word in WORDS.items():
        (sample,) = (line for line in openmetrics([bounded]).splitlines() if line.startswith(f"leadline_{name}{{"))
        (line,) = (line for line in influx([bounded]).splitlines() if f"metric={name} " in line)
        for text in (sample, line):
            assert (f'bound="{word}"' in text) if word else ("bound" not in text)


def test_unknown_figures_are_left_out() -> None:
    run = gateway_run()
    empty = [replace(one, metrics={name: Metric(None, "") for name in one.metrics}) for one in run.summaries]
    nothing = replace(run, summaries=tuple(empty))
    assert openmetrics([nothing]) == "# EOF\n"
    assert influx([nothing]) == ""
