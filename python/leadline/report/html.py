"""Writes the report of a run: one self-contained HTML file that opens offline and loads nothing.

Templates lay out the data from `views`; scripts and styles are inlined. Only the two scripts of this package may run:
the page's content security policy has their hashes, so a string from a plan or a daemon cannot become code even if
the escaping failed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import resources
from typing import Protocol

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from leadline import quantities
from leadline.analysis.model import RunAnalysis, TestResult, Validity
from leadline.analysis.size_model import GatewayCost
from leadline.registry import KINDS
from leadline.report import answers, charts, figures, host_clocks, host_statistics, sizes, verdicts, views
from leadline.report.cross_checks import cross_check_rows
from leadline.report.ladder_page import ladder_sections
from leadline.report.page_tables import PageTable
from leadline.report.reasons import concerned, limited_by, own_reasons, reasons_of_results
from leadline.report.searches import search_section
from leadline.report.tiers import page_tables_of_tiers

FlameGraphs = Mapping[str, Sequence[tuple[str, str]]]
"""By test, as in "c01/1/tcp-up": the sampled host, and the picture's path relative to the page."""

_MOST_OPEN_CASES = 4


def render_html(analysis: RunAnalysis, flame_graphs: FlameGraphs | None = None) -> str:
    """The whole report as one HTML document; it links to flame graphs, which are separate files."""
    sections = views.case_sections(analysis)
    packed = _packed_cases(analysis, sections, flame_graphs or {})
    scripts = _scripts()
    return (
        _environment()
        .get_template("report.html")
        .render(
            run=analysis,
            headline_of_run=verdicts.headline(analysis),
            started=views.started(analysis),
            answers=answers.answer_rows(analysis),
            most_answers=answers.MOST_AT_ONCE,
            steps=answers.next_steps(analysis.answers),
            troubled=verdicts.troubles(analysis),
            varying=figures.varying(figures.case_parameters(analysis)),
            tables=views.figure_tables(analysis),
            gateway_rows=host_statistics.gateway_rows(analysis),
            gateway_titles=host_statistics.GATEWAY_TITLES,
            gateway_notes=host_statistics.gateway_notes(analysis),
            sizes=[_size_view(cost) for cost in analysis.sizing],
            scalings=views.scaling_tables(analysis),
            ladders=ladder_sections(analysis.ladders),
            cross_checks=cross_check_rows(analysis.cross_checks),
            sections=sections,
            packed=packed,
            open_cases=len(sections) if len(sections) <= _MOST_OPEN_CASES else 1,
            result_reasons=reasons_of_results(analysis),
            host_groups=views.host_groups(analysis),
            clock_rows=host_clocks.clock_rows(analysis),
            clock_titles=host_clocks.TITLES,
            unlike_hosts=views.unlike_hosts(analysis),
            observer_costs=views.observer_costs(analysis),
            plan_link=_plan_link(analysis),
            policy=_policy(scripts),
            scripts=[Markup(script) for script in scripts],
            styles=Markup(_static("vendor/uplot/uPlot.min.css") + _static("report.css") + _static("ladder.css")),
        )
    )


def _packed_cases(
    analysis: RunAnalysis, sections: Sequence[views.CaseSection], flame_graphs: FlameGraphs
) -> dict[str, Markup]:
    """The content of each case, shown when it is opened: its markup, and the charts' data by trial and test."""
    template = _environment().get_template("case.html")
    samples = charts.samples_per_point(test for trial in analysis.trials for test in trial.tests)
    packed: dict[str, Future[Markup]] = {}
    # Compression releases the interpreter lock, so the next case is drawn in parallel.
    with ThreadPoolExecutor(1, "packing") as pool:
        for section in sections:
            is_first = section is sections[0]
            markup = template.render(section=section, is_first_case=is_first, flame_graphs=flame_graphs)
            drawn = [[charts.test_charts(test, samples) for test in trial.tests] for trial in section.trials]
            packed[section.case] = pool.submit(charts.packed, {"markup": markup, "trials": drawn})
        return {case: future.result() for case, future in packed.items()}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        seconds=quantities.seconds,
        share=quantities.share,
        memory=quantities.memory,
        fixed=quantities.fixed,
        unbroken=views.unbroken,
        coded=views.coded,
        embedded=charts.embedded,
    )
    environment.globals.update(
        words=verdicts,
        concerned=concerned,
        limited_by=limited_by,
        own_reasons=own_reasons,
        tone_of=answers.tone_of,
        open_questions=answers.open_questions,
        wording_of=lambda validity: views.wording(validity) if isinstance(validity, Validity) else None,
        headline=views.headline,
        spoken_fact=views.spoken_fact,
        circumstances=views.circumstances,
        examples_of=views.error_examples,
        phases_of=_phases,
        tables_of=_tables,
        search_of=search_section,
        fleet_of=_fleet,
    )
    return environment


def _template(name: str) -> str | None:
    """A template without its indentation, which would be a tenth of a page with many rows."""
    file = resources.files("leadline.report").joinpath("templates", name)
    if not file.is_file():
        return None
    return "".join(line.lstrip(" ") for line in file.read_text(encoding="utf-8").splitlines(keepends=True))


def _size_view(cost: GatewayCost) -> dict[str, object]:
    """One system's cost on the page: its name, lines, and a table of links."""
    cpu = "CPUs like the measured one"
    titles, rows = sizes.link_titles(cost.links, cpu), sizes.link_rows(cost.links, cpu)
    return {"name": sizes.name_of(cost), "lines": sizes.cost_lines(cost), "titles": titles, "rows": rows}


class PagedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def phase_rows(self, result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
        """Steps or phases of its operations, each with count, mean, p50, p99 and maximum."""

    def page_tables(self, result: TestResult) -> list[PageTable]:
        """Further tables of the page."""

    def client_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The outcome of a fleet's clients; an empty name continues the previous row."""


def _phases(test: TestResult) -> list[tuple[str, tuple[str, ...]]]:
    kind: PagedKind = KINDS.find(test.kind)
    return kind.phase_rows(test)


def _tables(test: TestResult) -> list[PageTable]:
    kind: PagedKind = KINDS.find(test.kind)
    return [*page_tables_of_tiers(test), *kind.page_tables(test)]


def _fleet(test: TestResult) -> list[tuple[str, list[str]]]:
    """The outcome of a fleet's clients with causes, as on the terminal: names, each with its lines."""
    kind: PagedKind = KINDS.find(test.kind)
    found: list[tuple[str, list[str]]] = []
    for name, line in kind.client_rows(test):
        if name or not found:
            found.append((name, []))
        found[-1][1].append(line)
    return found


@cache
def _scripts() -> tuple[str, ...]:
    """uPlot with its licence, and the page's own script."""
    licence = _static("vendor/uplot/LICENSE")
    return f"/*! uPlot\n{licence}\n*/\n{_static('vendor/uplot/uPlot.iife.min.js')}", _static("report.js")


@cache
def _static(name: str) -> str:
    return resources.files("leadline.report").joinpath("static", *name.split("/")).read_text(encoding="utf-8")


def _policy(scripts: tuple[str, ...]) -> str:
    """The content security policy: no loading, only these scripts. Styles are inline, since uPlot's markup needs
    them."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _plan_link(analysis: RunAnalysis) -> str:
    """The plan as a link that saves it, without a server."""
    return f"data:text/yaml;base64,{base64.b64encode(analysis.plan_text.encode()).decode()}"
