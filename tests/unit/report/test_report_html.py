"""The page's markup, without a browser: order, completeness, escaping, and that nothing is fetched from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from packed_pages import cases_of, with_open_cases
from sample_runs import gateway_run, many_cases, many_trials

from leadline.analysis.answers import answers_of
from leadline.analysis.model import Interval, Limit, LimitedBy, Metric, Percentiles, Series, Window
from leadline.analysis.trial_records import FlowSpan, MarkKind, TimeMark
from leadline.report import charts, render_html, views
from leadline.report.answers import answer_rows

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\"'&"


class Page(HTMLParser):
    """Collects the text that a reader sees with every case open, elements with their attributes, and scripts."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self._within: str | None = None
        self.feed(with_open_cases(markup))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style", "title"):
            self._within = tag
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within:
            self._within = None

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            kind, content = self.scripts[-1]
            self.scripts[-1] = (kind, content + data)
        elif self._within is None and data.strip():
            self.texts.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def test_the_verdict_comes_first_and_in_words() -> None:
    page = Page(render_html(gateway_run(description="Three gateways")))
    start = page.texts.index("Three gateways")
    assert page.texts[start - 1] == "gateway"
    assert "Incomplete." in page.texts and "Not everything that should have been measured was." in page.texts


def test_first_page_has_a_sentence_for_each_case_with_its_evidence() -> None:
    run = gateway_run()
    page = Page(render_html(run))
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert len(run.answers) == 3
    for answer in run.answers:
        assert text.count(answer.sentence) == 2, "on the first page, and with its case"
        assert any(attributes.get("href") == f"#case-{answer.case}" for tag, attributes in page.elements if tag == "a")
    assert text.index(run.answers[2].sentence) < text.index("0.42 %, not below 0.1 %")


def test_bar_of_a_ratio_is_drawn_only_for_a_capacity() -> None:
    rows = {row.answer.case: row for row in answer_rows(gateway_run())}
    assert rows["c01"].length is None, "it is the baseline"
    assert rows["c02"].length == pytest.approx(10.489, abs=0.01)
    run = gateway_run()
    offered = tuple(replace(one, limit=Limit(LimitedBy.OFFERED_RATE, "all of it")) for one in run.summaries)
    paced = replace(run, answers=answers_of(replace(run, summaries=offered)))
    assert [row.length for row in answer_rows(paced)] == [None, None, None]


def test_failed_repeats_and_missing_trials_are_counted() -> None:
    run = gateway_run()
    (first, *_) = run.trials
    summary = replace(run.summaries[0], repeats=1, failed=1)
    cut = replace(run, trials=(replace(first, status="interrupted"),), summaries=(summary,), missing_trials=("c01/2",))
    text = Page(render_html(cut)).text
    assert "1 of 1 failed" in text and "0 of 2 trials done, 1 interrupted, 1 not begun" in text


def test_sections_are_in_the_order_of_interest() -> None:
    text = Page(render_html(gateway_run())).text
    order = [
        "Incomplete",
        "1 of 9 trials failed: c03/3",
        "of what the plain route carries",
        "0.42 %, not below 0.1 %",
        "--cipher AES-256-GCX is not supported",
        "all 4 hosts are namespaces of one machine",
        "≥ 88.4 k/s",
        "Case by case",
        "Bring-up of clients",
        "Client statistics",
        "Server statistics",
        "Example CPU 9000",
        "/proc/pressure/irq does not exist",
        "What observing cost",
        "leadline run examples/gateway.yaml --set repeat=3",
        "topology: remote-access",
    ]
    place = 0
    for words in order:
        place = text.find(words, place)
        assert place >= 0, words


def test_nothing_is_fetched_from_anywhere() -> None:
    for tag, attributes in Page(render_html(gateway_run())).elements:
        for name in ("src", "href", "data", "srcset", "action", "poster"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), (tag, target)


def test_the_policy_allows_these_scripts_and_no_other() -> None:
    page = Page(render_html(gateway_run()))
    policy = next(a["content"] for t, a in page.elements if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    code = [content for kind, content in page.scripts if kind is None]
    digests = {base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in code}
    assert digests == set(re.findall(r"'sha256-([^']+)'", policy))
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert "Permission is hereby granted" in code[0]


def test_hostile_strings_stay_text() -> None:
    run = gateway_run(name=HOSTILE, plan_text=HOSTILE, command=HOSTILE)
    series = Series(HOSTILE, HOSTILE, "percent", (0.0, 1.0), (1.0, 2.0))
    test = replace(run.trials[0].tests[0], test=HOSTILE, error=HOSTILE, status="failed", series=(series,))
    trial = replace(run.trials[0], error=HOSTILE, status="failed", tests=(test,))
    summary = replace(run.summaries[0], case=HOSTILE, parameters={HOSTILE: HOSTILE})
    hosts = {HOSTILE: {HOSTILE: HOSTILE}}
    page = Page(render_html(replace(run, trials=(trial,), summaries=(summary, *run.summaries), hosts=hosts)))
    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert len([kind for kind, _ in page.scripts if kind is None]) == 2
    assert page.text.count("alert(1)") >= 5


def test_an_http_test_has_its_phases_its_engine_and_examples_of_its_errors() -> None:
    text = Page(render_html(gateway_run())).text
    assert "TLS, resumed 19 1.01 ms 920 µs" in text
    assert "first byte 91,430" in text
    assert "engine epoll: io_uring_setup: Operation not permitted" in text
    assert "192.0.2.7:8080 did not accept within 5 s 2 × connect_timeout" in text
    run = gateway_run()
    hostile = replace(run.trials[-2].tests[-1], errors={"x": 1}, error_examples={"x": HOSTILE})
    page = Page(render_html(replace(run, trials=(replace(run.trials[-2], tests=(hostile,)),))))
    assert "alert(2)" in page.text and not any(name == "img" for name, _ in page.elements)


def test_a_run_that_left_nothing_still_makes_a_page() -> None:
    run = gateway_run(trials=(), summaries=(), targets=(), hosts={}, notes=(), observer_cpu_share={}, started_at="?")
    text = Page(render_html(replace(run, status="killed"))).text
    assert "The run was killed" in text
    assert "No test left a figure." in text
    assert "No host told what it is." in text


def test_page_holds_each_case_packed_and_shows_its_summary() -> None:
    page = render_html(many_trials(200))
    assert page.count('class="case"') == 40
    assert page.count('class="test"') == 0
    cases = cases_of(page)
    assert [len(case["trials"]) for case in cases] == [5] * 40
    assert all(case["markup"].count('class="trial"') == 5 for case in cases)
    assert all(test["plots"] for case in cases for trial in case["trials"] for test in trial)


def test_page_of_a_hundred_cases_is_under_three_megabytes() -> None:
    run = many_cases(100)
    assert sum(len(trial.tests) for trial in run.trials) == 1200
    assert len(render_html(run)) < 3_000_000


def test_samples_are_joined_where_a_page_has_many_of_them() -> None:
    base = gateway_run().trials[0].tests[0]
    assert charts.samples_per_point([]) == 1
    assert charts.samples_per_point([base] * 700) == 1
    assert charts.samples_per_point([base] * 1400) == 2
    drawn = charts.test_charts(base, 2)
    assert {plot["notes"][-1] for plot in drawn["plots"]} == {"each point is the mean of 2 samples"}
    assert {len(line["values"]) for plot in drawn["plots"] for line in plot["lines"]} == {52, 58}


@pytest.mark.parametrize("highest", [0.0, 1e-9, 0.0999, 0.1, 1.0, 180.3, 917e6, 40e9])
def test_lines_keep_an_eight_hundredth_of_their_highest_value(highest: float) -> None:
    base = gateway_run().trials[0].tests[0]
    values = (highest, highest / 3, 0.0)
    line = Series("cpu user", "machine", "percent", (0.0, 0.1, 0.2), values)
    (drawn,) = charts.test_charts(replace(base, series=(line,), intervals=()))["plots"][0]["lines"]
    assert [count * drawn["step"] for count in drawn["values"]] == pytest.approx(values, abs=highest / 800)
    assert max(drawn["values"]) <= 1000


def test_intervals_of_all_figures_are_text_of_the_page() -> None:
    """Pointers, fingers, keys and paper reach them."""
    run = gateway_run()
    (summary,) = [one for one in run.summaries if (one.case, one.test) == ("c01", "tcp-up")]
    lead = replace(summary.metrics["throughput_bps"], value=940e6, low=931e6, high=949e6)
    others = replace(summary.metrics["retransmits"], low=None, high=None, unbounded="one repeat")
    known = replace(summary, metrics={**summary.metrics, "throughput_bps": lead, "retransmits": others})
    text = Page(render_html(replace(run, summaries=(known,)))).text
    assert "95 %: 931 Mbit/s to 949 Mbit/s" in text
    assert "no interval: one repeat" in text


def test_what_to_do_next_is_a_sentence_with_its_commands_as_code() -> None:
    run = gateway_run()
    advised = tuple(replace(answer, next_step="see what `top <b>` says") for answer in run.answers)
    assert "<li>See what <code>top &lt;b&gt;</code> says.</li>" in render_html(replace(run, answers=advised))


def test_axes_are_a_first_instant_and_steps() -> None:
    base = gateway_run().trials[0].tests[0]
    line = Series("cpu user", "machine", "percent", (-0.5, 0.1, 0.2004, 0.3), (1.0, 2.0, None, 0.12345))
    drawn = charts.test_charts(replace(base, series=(line,), intervals=()))
    assert drawn["axes"] == [[-500, 600, 100, 100]]
    (line,) = drawn["plots"][0]["lines"]
    assert (line["step"], line["values"]) == (0.005, [200, 400, None, 25])


def test_what_is_packed_survives_the_way_through_the_page() -> None:
    data = {"markup": HOSTILE, "trials": [1.5, None, float("nan"), float("inf")]}
    page = f'<script type="application/octet-stream">{charts.packed(data)}</script>'
    assert cases_of(page) == [{"markup": HOSTILE, "trials": [1.5, None, None, None]}]


def test_embedded_data_survives_the_way_through_the_page() -> None:
    data = {"name": HOSTILE, "values": [1.5, None, float("nan"), float("inf")]}
    text = str(charts.embedded(data))
    assert "<" not in text
    assert json.loads(text) == {"name": HOSTILE, "values": [1.5, None, None, None]}


def test_head_and_tail_lie_where_the_window_cuts() -> None:
    test = gateway_run().trials[0].tests[0]
    assert charts.test_charts(test)["cuts"] == [
        {"from": 0.0, "to": 0.42, "name": "head"},
        {"from": 10.01, "to": 10.31, "name": "tail"},
    ]
    never = charts.test_charts(replace(test, window=Window(0, 9 * 10**9, 4 * 10**9, 10 * 10**9)))
    assert never["cuts"] == [{"from": 0.0, "to": 10.0, "name": "no steady window"}]
    assert charts.test_charts(replace(test, window=None))["cuts"] == []


def test_disturbed_parts_and_stalls_are_shaded_with_a_legend() -> None:
    marks = (
        TimeMark(MarkKind.OTHER_WORK, 2.0, 4.0, 0.6),
        TimeMark(MarkKind.STALL, 5.0, 5.3, 0.0),
        TimeMark(MarkKind.OTHER_WORK, 8.0, 9.0, 0.4),
    )
    drawn = charts.test_charts(replace(gateway_run().trials[0].tests[0], time_marks=marks))
    assert drawn["marks"] == [
        {"from": 2.0, "to": 4.0, "kind": "disturbed"},
        {"from": 5.0, "to": 5.3, "kind": "stall"},
        {"from": 8.0, "to": 9.0, "kind": "disturbed"},
    ]
    assert drawn["shaded"] == [
        {"kind": "cut", "words": "head and tail: not measured, 720 ms"},
        {"kind": "disturbed", "words": "disturbed: other work used over 5.00 % of the CPUs, 3.00 s"},
        {"kind": "stall", "words": "stall: less than 10.0 % of the usual rate, 300 ms"},
    ]


def test_plots_share_one_time_axis_and_come_in_a_fixed_order() -> None:
    drawn = charts.test_charts(gateway_run().trials[0].tests[0])
    assert [plot["unit"] for plot in drawn["plots"]] == ["bit/s", "%", "B", "B"]
    assert len(drawn["axes"]) == 2
    assert drawn["span"] == [-0.5, 10.9]


def test_the_leading_figure_is_drawn_first() -> None:
    requests = gateway_run().trials[0].tests[3]
    moved = tuple(replace(one, values={**one.values, "throughput_bps": 1e6}) for one in requests.intervals)
    drawn = charts.test_charts(replace(requests, intervals=moved))
    assert [plot["unit"] for plot in drawn["plots"]] == ["/s", "bit/s", "%", "B", "B"]


def test_a_process_is_not_drawn_on_its_machines_scale() -> None:
    drawn = charts.test_charts(gateway_run().trials[0].tests[0])
    names = [[line["name"] for line in plot["lines"]] for plot in drawn["plots"] if plot["unit"] == "B"]
    assert names == [["gateway: system under test"], ["machine: memory in use"]]


def test_hosts_of_one_machine_are_shown_once_with_the_worst_of_their_clocks() -> None:
    hosts = {name: dict(facts) for name, facts in gateway_run().hosts.items()}
    hosts["server"]["clock"] = {**hosts["server"]["clock"], "resolution_ns": 41}
    groups = views.host_groups(gateway_run(hosts=hosts))
    assert [group.hosts for group in groups] == [("client1", "client2", "gateway", "server")]
    assert groups[0].facts["clock resolution"] == "41.0 ns"
    hosts["server"]["kernel"] = "6.1"
    assert [group.hosts for group in views.host_groups(gateway_run(hosts=hosts))][1] == ("server",)


def test_numbers_of_cpus_do_not_read_as_counts_and_measured_clocks_are_no_difference() -> None:
    hosts = {name: dict(facts) for name, facts in gateway_run().hosts.items()}
    for host, own, step in (("client1", [0], 20), ("client2", [0], 20), ("server", [0], 20), ("gateway", [1, 2], 29)):
        hosts[host] |= {"own_cpus": own, "idle_poll": {"held": True, "reason": None}, "wake_up": {"cpus": [1, 1]}}
        hosts[host]["clock"] = {**hosts[host]["clock"], "resolution_ns": step}
    run = gateway_run(hosts=hosts)
    first, second = views.host_groups(run)
    assert (first.facts["pinned to"], second.facts["pinned to"]) == ("CPU 0", "CPUs 1, 2")
    assert (first.facts["idle CPUs"], first.facts["wake up measured"]) == ("polled", "CPU 1")
    assert "idle poll reason" not in first.facts
    unlike = views.unlike_hosts(run)
    assert unlike is not None and unlike[1] == [("pinned to", ("CPU 0", "CPUs 1, 2"))]


def test_the_base_clock_of_a_host_has_its_unit() -> None:
    run = gateway_run()
    hosts = {host: {**known, "base_clock_hz": 2_600_000_000} for host, known in run.hosts.items()}
    assert {group.facts["base clock"] for group in views.host_groups(gateway_run(hosts=hosts))} == {"2.6 GHz"}


def test_too_many_lines_and_samples_are_thinned_and_said_to_be() -> None:
    base = gateway_run().trials[0].tests[0]
    times = tuple(float(step) for step in range(3000))
    lines = tuple(Series("agent", f"client{n}", "percent", times, tuple(float(n) for _ in times)) for n in range(1, 31))
    plot = charts.test_charts(replace(base, series=lines, intervals=()))["plots"][0]
    assert [line["name"] for line in plot["lines"]][:2] == ["client30: agent", "client29: agent"]
    assert len(plot["lines"]) == charts.MOST_LINES
    assert len(plot["lines"][0]["values"]) == 1000
    assert plot["notes"] == ["22 lines with lower peaks are not drawn", "each point is the mean of 3 samples"]


def test_unknown_samples_are_gaps_and_unknown_lines_are_left_out() -> None:
    base = gateway_run().trials[0].tests[0]
    intervals = (Interval(0.0, 0.1, {"throughput_bps": None}, False), Interval(0.1, 0.2, {"throughput_bps": 8e6}, True))
    silent = Series("agent", "server", "percent", (0.0, 0.1), (None, None))
    plots = charts.test_charts(replace(base, intervals=intervals, series=(silent,)))["plots"]
    assert [(plot["unit"], plot["lines"][0]["step"], plot["lines"][0]["values"]) for plot in plots] == [
        ("bit/s", 20_000, [None, 400])
    ]


def test_latency_curves_lie_on_an_axis_of_nines() -> None:
    curve = charts.curve(
        "latency", Percentiles("latency", 10_000, ((0, 10), (90, 20), (99, 30), (99.9, 40), (100, 50)))
    )
    assert curve["x"] == [0, 1, 2, 3, 4]
    assert curve["y"] == [10, 20, 30, 40, 50]
    few = charts.curve("latency", Percentiles("latency", 1, ((0, 10), (99, 10), (100, 10))))
    assert few["x"] == [0, 2, 2]
    bound = charts.curve("latency", Percentiles("latency", 2, ((0, 10), (99, 10)), open_from=96.875))
    assert bound["name"] == "latency, ≥ from p96.88"


def test_times_of_zero_have_no_place_on_a_logarithmic_axis() -> None:
    test = gateway_run().trials[0].tests[-1]
    some = Percentiles("transfer", 100, ((0.0, 0.0), (50.0, 0.0), (90.0, 12.0)))
    none = Percentiles("connect", 100, ((0.0, 0.0), (90.0, 0.0)))
    (drawn,) = charts.test_charts(replace(test, percentiles=(some, none)))["curves"]
    assert (drawn["name"], drawn["x"], drawn["y"]) == ("transfer", [1.0], [12.0])


def test_a_figure_without_a_value_has_no_bar() -> None:
    run = gateway_run()
    summary = replace(run.summaries[0], metrics={"throughput_bps": Metric(None, "bit/s")})
    assert 'class="bar"' not in render_html(replace(run, summaries=(summary,), answers=()))


def test_the_title_counts_results_as_the_first_line_does() -> None:
    run = gateway_run()
    whole = replace(run, trials=tuple(replace(trial, status="done") for trial in run.trials), status="done")
    page = render_html(whole)
    assert "<title>10 of 12 results can be believed: gateway – Leadline</title>" in page
    assert "10 of 12 results can be believed.</strong>" in page
    assert "<title>Incomplete: gateway – Leadline</title>" in render_html(run)


def test_flows_have_a_bar_each_with_the_times_of_head_and_tail() -> None:
    spans = (FlowSpan("client1 0 up", 1, 0.0, 0.1, 0.1, 9.0, 9.0), FlowSpan("client2 0 up", 1, 0.2, 0.4, 0.4, 9.5, 9.5))
    test = replace(gateway_run().trials[0].tests[0], flow_spans=spans)
    found = charts.flow_bars(test)
    assert found is not None
    assert found["bars"] == [["client1 0 up", 0.0, 0.1, 0.1, 9.0, 9.0], ["client2 0 up", 0.2, 0.4, 0.4, 9.5, 9.5]]
    assert (
        found["spoken"]
        == "the first began at 100 ms, the last at 400 ms; the first ended at 9.00 s, the last at 9.50 s"
    )
    assert charts.flow_bars(replace(test, flow_spans=spans[:1])) is None
