"""Findings in the formats of other tools: JUnit XML for CI servers, OpenMetrics text, and InfluxDB's line protocol.

Figures are those over a case's repeats, with their bounds and verdicts. What is not known is left out, never written
as 0. Formats: the JUnit XML that CI servers read (there is no standard); OpenMetrics 1.0; InfluxDB line protocol 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime
from xml.etree import ElementTree

from leadline.analysis.model import Metric, RunAnalysis, Summary, TargetResult, Verdict
from leadline.plan.tags import split_figure
from leadline.report.verdicts import run_ending

_FORBIDDEN_IN_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(analysis: RunAnalysis) -> str:
    """One test suite: a test case for each target in each case, and one for each result, which is skipped unless it is
    valid. A missed target is a failure; one that cannot be decided is an error, and so is a trial that failed or did
    not begin, and a run that was not done.
    """
    suite = ElementTree.Element("testsuite", name=analysis.run_id or analysis.name, timestamp=analysis.started_at)
    for target in analysis.targets:
        _target_case(suite, target)
    for summary in analysis.summaries:
        case = ElementTree.SubElement(suite, "testcase", classname=summary.case, name=_named(summary))
        if summary.validity.verdict is not Verdict.VALID:
            why = "; ".join(f"{reason.code}: {reason.text}" for reason in summary.validity.reasons)
            ElementTree.SubElement(case, "skipped", message=_clean(f"{summary.validity.verdict.value}: {why}"))
    for trial in analysis.trials:
        if trial.status not in ("done", "skipped"):
            _error_case(
                suite, trial.case, f"trial {trial.trial}", f"{trial.status}: {trial.error or 'no cause is known'}"
            )
    for name in analysis.missing_trials:
        _error_case(suite, name.partition("/")[0], f"trial {name}", "the trial did not begin")
    if analysis.status != "done":
        _error_case(suite, analysis.name, "run", run_ending(analysis))
    for kind, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(sum(1 for _ in suite.iter(tag))))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def openmetrics(analyses: list[RunAnalysis]) -> str:
    """Gauges `leadline_METRIC`, `..._low` and `..._high`, labelled with run, case, test, verdict, bound and parameters;
    each has the time at which its run began.
    """
    families: dict[str, list[str]] = {}
    for analysis in analyses:
        stamp = f" {at:.3f}" if (at := _began_s(analysis)) is not None else ""
        for summary in analysis.summaries:
            for whole, metric in summary.metrics.items():
                name, tags = split_figure(whole)
                of_tags = ((f"tag_{_word(key)}", tags[key]) for key in tags)
                pairs = (*_labels(analysis, summary), *verdict_labels(metric), *of_tags)
                labels = ",".join(f'{key}="{_label(value)}"' for key, value in pairs)
                for suffix, value in (("", metric.value), ("_low", metric.low), ("_high", metric.high)):
                    if value is not None and math.isfinite(value):
                        family = f"leadline_{name}{suffix}"
                        families.setdefault(family, []).append(f"{family}{{{labels}}} {value!r}{stamp}")
    lines = [line for family, rows in sorted(families.items()) for line in (f"# TYPE {family} gauge", *rows)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def influx(analyses: list[RunAnalysis]) -> str:
    """One line per figure: measurement `leadline`, tags run, case, test, metric and parameters, fields `value`, `low`,
    `high`, `verdict` and `bound`; the time is that at which the run began, ns.
    """
    lines = []
    for analysis in analyses:
        at_s = _began_s(analysis)
        stamp = f" {round(at_s * 1e9)}" if at_s is not None else ""
        for summary in analysis.summaries:
            for name, metric in summary.metrics.items():
                bounds = (("value", metric.value), ("low", metric.low), ("high", metric.high))
                fields = [f"{key}={value!r}" for key, value in bounds if value is not None and math.isfinite(value)]
                if fields:
                    labels = (*_labels(analysis, summary), ("metric", name))
                    tags = ",".join(f"{_tag(key)}={_tag(value)}" for key, value in labels if value)
                    words = [f'{key}="{value}"' for key, value in verdict_labels(metric)]
                    lines.append(f"leadline,{tags} {','.join([*fields, *words])}{stamp}")
    return "".join(f"{line}\n" for line in lines)


def _error_case(suite: ElementTree.Element, place: str, name: str, message: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_clean(place), name=_clean(name))
    ElementTree.SubElement(case, "error", message=_clean(message))


def _target_case(suite: ElementTree.Element, target: TargetResult) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=target.case, name=_clean(target.target))
    if target.outcome != "met":
        tag = "failure" if target.outcome == "missed" else "error"
        ElementTree.SubElement(case, tag, message=_clean(f"{target.outcome}: {target.reason}"))


def _named(summary: Summary) -> str:
    parameters = " ".join(f"{name}={value}" for name, value in summary.parameters.items())
    return _clean(f"{summary.test} {parameters}".strip())


def verdict_labels(metric: Metric) -> Iterator[tuple[str, str]]:
    """What a figure is worth: its verdict, and `bound` where `value` is not the figure but a bound of it."""
    yield "verdict", metric.verdict.value
    if metric.side is not None:
        yield "bound", metric.side.value


def _labels(analysis: RunAnalysis, summary: Summary) -> Iterator[tuple[str, str]]:
    yield "run", analysis.run_id
    yield "case", summary.case
    yield "test", summary.test
    yield "kind", summary.kind
    parameters = {_word(name): str(value) for name, value in reversed(summary.parameters.items())}
    # No name may occur twice: of parameters that differ in other characters only, the first one is kept.
    yield from ((f"parameter_{name}", value) for name, value in parameters.items())


def _word(name: str) -> str:
    """A name with the characters that labels may have."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _began_s(analysis: RunAnalysis) -> float | None:
    """When the run began, s since 1970; None where that is not known."""
    try:
        return datetime.fromisoformat(analysis.started_at).timestamp()
    except ValueError:
        return None


def _clean(text: str) -> str:
    """Text without characters that no XML may contain."""
    return _FORBIDDEN_IN_XML.sub("�", text)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _tag(text: str) -> str:
    """A tag's key or value: line ends cannot be written, and separators are escaped."""
    return re.sub(r"([,= ])", r"\\\1", re.sub(r"[\r\n]", " ", text).rstrip("\\"))
