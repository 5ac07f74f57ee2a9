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

_FORBIDDEN_IN_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(analysis: RunAnalysis) -> str:
    """One test suite: a test case for each target in each case, and one for each result, which is skipped unless it is
    valid. A missed target is a failure; one that cannot be decided, and a trial that failed, is an error.
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
            case = ElementTree.SubElement(suite, "testcase", classname=trial.case, name=f"trial {trial.trial}")
            ElementTree.SubElement(
                case, "error", message=_clean(f"{trial.status}: {trial.error or 'no cause is known'}")
            )
    for kind, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(sum(1 for _ in suite.iter(tag))))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def openmetrics(analyses: list[RunAnalysis]) -> str:
    """Gauges `leadline_METRIC`, `..._low` and `..._high`, labelled with run, case, test, verdict and parameters; each
    has the time at which its run began.
    """
    families: dict[str, list[str]] = {}
    for analysis in analyses:
        stamp = f" {at:.3f}" if (at := _began_s(analysis)) is not None else ""
        for summary in analysis.summaries:
            for whole, metric in summary.metrics.items():
                name, tags = split_figure(whole)
                pairs = (*_labels(analysis, summary, metric), *((f"tag_{_word(key)}", tags[key]) for key in tags))
                labels = ",".join(f'{key}="{_label(value)}"' for key, value in pairs)
                for suffix, value in (("", metric.value), ("_low", metric.low), ("_high", metric.high)):
                    if value is not None and math.isfinite(value):
                        family = f"leadline_{name}{suffix}"
                        families.setdefault(family, []).append(f"{family}{{{labels}}} {value!r}{stamp}")
    lines = [line for family, rows in sorted(families.items()) for line in (f"# TYPE {family} gauge", *rows)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def influx(analyses: list[RunAnalysis]) -> str:
    """One line per figure: measurement `leadline`, tags run, case, test, metric and parameters, fields `value`, `low`,
    `high` and `verdict`; the time is that at which the run began, ns.
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
                    labels = [pair for pair in _labels(analysis, summary, metric) if pair[0] != "verdict"]
                    tags = ",".join(f"{_tag(key)}={_tag(value)}" for key, value in [*labels, ("metric", name)] if value)
                    verdict = f'verdict="{metric.verdict.value}"'
                    lines.append(f"leadline,{tags} {','.join([*fields, verdict])}{stamp}")
    return "".join(f"{line}\n" for line in lines)


def _target_case(suite: ElementTree.Element, target: TargetResult) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=target.case, name=_clean(target.target))
    if target.outcome != "met":
        tag = "failure" if target.outcome == "missed" else "error"
        ElementTree.SubElement(case, tag, message=_clean(f"{target.outcome}: {target.reason}"))


def _named(summary: Summary) -> str:
    parameters = " ".join(f"{name}={value}" for name, value in summary.parameters.items())
    return _clean(f"{summary.test} {parameters}".strip())


def _labels(analysis: RunAnalysis, summary: Summary, metric: Metric) -> Iterator[tuple[str, str]]:
    yield "run", analysis.run_id
    yield "case", summary.case
    yield "test", summary.test
    yield "kind", summary.kind
    yield "verdict", metric.verdict.value
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
