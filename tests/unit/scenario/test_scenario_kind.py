"""The kind `scenario` in plans and on the command line: its file, length, thresholds, and what the agent gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from har_texts import entry, har
from jmx_texts import element, get, group, plan
from pydantic import ValidationError

from jmx_elements import property_of
from leadline.analysis.targets import parse_targets
from leadline.errors import InputError, PlanError
from leadline.kinds.http.parts import Resolve, TlsTrust
from leadline.kinds.scenario.command import EXAMPLE
from leadline.kinds.scenario.model import LoadedScenario, ScenarioTest
from leadline.kinds.scenario.targets import targets_of
from leadline.kinds.scenario.workload import scenario_workload
from leadline.plan.external_inputs import ExternalReader, FileInput, PlanText
from leadline.plan.field_types import validate_input
from leadline.plan.load import load_plan
from leadline.plan.targets import has_metric
from leadline.scenario.native import read_native
from leadline.scenario.thresholds import read_threshold
from leadline.trial.workloads import kind_of


def loaded(text: str) -> LoadedScenario:
    return LoadedScenario("a.yaml", read_native(text, "a.yaml"), lambda name: b"")


def test_the_example_is_a_whole_scenario() -> None:
    test = ScenarioTest(name="s", file=loaded(EXAMPLE), params={"password": "x1"})
    assert test.duration_ms == 5_000
    assert test.secrets == ("x1",)
    load = scenario_workload(test, {"host": "h.test:81"}, None)
    assert load.plan.populations[0].flow
    assert (load.tls is not None, load.duration_ms, load.threads) == (True, 5_000, 1)


def test_addresses_of_the_test_go_before_those_of_the_scenario() -> None:
    text = "hosts: {h.test: 192.0.2.1}\nget: http://h.test:81/\n"
    given = ScenarioTest(name="s", file=loaded(text), resolve=(Resolve(host="H.test", port=81, address="192.0.2.2"),))
    found = {(one.host, one.port): one.address for one in scenario_workload(given, {}, None).route.resolve}
    assert found == {("h.test", 80): "192.0.2.1", ("h.test", 81): "192.0.2.2", ("h.test", 443): "192.0.2.1"}


def test_iterations_may_go_on_for_their_grace() -> None:
    text = "get: http://h.test/\nload: {users: 1, duration: 3s, grace: 40s}\n"
    load = scenario_workload(ScenarioTest(name="s", file=loaded(text)), {}, None)
    assert load.duration_ms == 3_000
    assert kind_of(load).longest_ms(load) == 43_000


@pytest.mark.parametrize(
    ("flow", "waits"),
    [
        ("{get: http://h.test/}", False),
        ("{get: http://h.test/}, {wait: 1s}", True),
        ("{repeat: 2, steps: [{get: http://h.test/, waits: [10ms]}]}", True),
        ("{pace: 1s}, {get: http://h.test/}", True),
        ("{meet: all, users: 2}, {get: http://h.test/}", True),
    ],
)
def test_journal_says_whether_users_wait_by_themselves(flow: str, waits: bool) -> None:
    text = f"load: {{users: 1, duration: 3s}}\nflow: [{flow}]\n"
    load = scenario_workload(ScenarioTest(name="s", file=loaded(text)), {}, None)
    assert kind_of(load).describe_load(load) == {"has_waits": waits}


def test_scenario_that_is_too_long_for_a_message_is_refused() -> None:
    rows = "a\n" + ("x" * 1_000 + "\n") * 1_048
    names = "".join(f"{{name: r{number}, file: r.csv}}, " for number in range(16))
    read = read_native(f"get: http://h.test/\ndata: [{names}]\n", "a.yaml")
    test = ScenarioTest(name="s", file=LoadedScenario("a.yaml", read, lambda name: rows.encode()))
    with pytest.raises(InputError, match=r"16\.\d MiB with its data and files, .*; at most 15 MiB"):
        scenario_workload(test, {}, None)


def test_a_plans_file_is_read_beside_it() -> None:
    texts = {Path("/p/s.yaml"): b"get: http://${param('server')}/\nload: {users: 1, duration: 3s}\n"}
    external = ExternalReader(lambda path: texts[path], lambda name: "")
    test = validate_input(
        ScenarioTest, {"name": "s", "kind": "scenario", "file": PlanText.at("s.yaml", Path("/p"))}, external
    )
    assert test.duration_ms == 3_000
    assert test.model_dump()["file"] == "s.yaml"
    load = scenario_workload(test, {"server": "10.0.0.1"}, "v4")
    assert load.model_dump()["plan"]["populations"][0]["flow"][0]["action"]["host"] == ["10.0.0.1"]


def in_plan(files: dict[str, bytes], file: str, **keys: object) -> ScenarioTest:
    """The test of a plan in /p/q, where `files` lie by their paths."""
    external = ExternalReader(lambda path: files[str(path.resolve())], lambda name: "")
    given = {"name": "s", "kind": "scenario", "file": PlanText.at(file, Path("/p/q")), **keys}
    return validate_input(ScenarioTest, given, external)


def test_a_plans_recording_may_be_as_long_as_the_commands(tmp_path: Path) -> None:
    text = "x" * 9 * 2**20
    content = har(entry("http://a.test/", response={"content": {"text": text}}))
    (tmp_path / "long.har").write_bytes(content)
    (tmp_path / "plan.yaml").write_text(
        "name: p\nsut: {kind: route}\ntests: [{name: s, kind: scenario, file: long.har}]\n"
    )
    plan_ = load_plan(tmp_path / "plan.yaml")
    assert plan_.cases[0].tests[0].name == "s"


def test_a_plans_parameters_are_those_of_the_conversion() -> None:
    stepping = element(
        "kg.apc.jmeter.threads.SteppingThreadGroup", "g", get("/a"),
        inner=property_of("ThreadGroup.num_threads", "${__P(n,1)}") + property_of("flighttime", "${__P(t,9)}"),
    )  # fmt: skip
    test = in_plan({"/p/q/s.jmx": plan(stepping)}, "s.jmx", params={"n": 3, "t": 4})
    stages = test.checked().plan["populations"][0]["arrivals"]["stages"]
    assert (test.duration_ms, max(stage["users"] for stage in stages)) == (4_000, 3)


def test_a_plans_scripts_that_cannot_run_stop_it_or_are_left_out() -> None:
    files = {"/p/q/s.jmx": plan(group(element("JSR223Sampler", "s", script="new Socket()"), get("/a")))}
    with pytest.raises(ValidationError, match="the statement 'new Socket"):
        in_plan(files, "s.jmx")
    assert in_plan(files, "s.jmx", scripts="skip").checked().plan["populations"]


def test_a_plans_recording_is_of_some_hosts_and_not_correlated() -> None:
    urls = ("http://a.test/t", "http://b.test/x", "http://a.test/y?t=abcdef123456")
    content = har(
        *(entry(url, f"0{index}.000", response={"content": {"text": '{"t": "abcdef123456"}' if not index else ""}})
          for index, url in enumerate(urls))
    )  # fmt: skip
    test = in_plan({"/p/q/s.har": content}, "s.har", only_host=["a.test"], correlate=False)
    assert "b.test" not in str(test.checked().plan) and "abcdef123456" in str(test.checked().plan)
    assert "abcdef123456" not in str(in_plan({"/p/q/s.har": content}, "s.har").checked().plan)


def test_a_plans_scenario_reads_files_elsewhere_if_allowed() -> None:
    files = {"/p/q/s.yaml": b"get: http://h.test/\ndata: [{file: ../rows.csv}]\n", "/p/rows.csv": b"a\n1\n"}
    with pytest.raises(ValidationError, match=r"is outside of the scenario's folder"):
        in_plan(files, "s.yaml")
    assert in_plan(files, "s.yaml", any_file=True).checked().plan["feeders"][0]["rows"] == [["1"]]


@pytest.mark.parametrize(
    ("metric", "rule", "target"),
    [
        ("http_req_duration", "p(95)<500", "service_p95_us < 500000"),
        ("http_req_duration", "p(99.9) <= 1.5", "service_p999_us <= 1500"),
        ("http_req_duration", "avg<200", "service_mean_us < 200000"),
        ("http_req_waiting", "med<20", "first_byte_p50_us < 20000"),
        ("http_req_connecting", "max<20", "connect_max_us < 20000"),
        ("http_req_tls_handshaking", "max<20", "tls_full_max_us < 20000"),
        ("http_req_failed", "rate<0.01", "error_ratio < 0.01"),
        ("iterations", "count>=10", "iterations >= 10"),
        ("checks", "rate>0.9", "checks_ratio > 0.9"),
        ("checks{check:is ok}", "rate>0.9", "checks_ratio{check:is ok} > 0.9"),
        ("http_req_duration{name:log in,team:shop}", "p(90)<1", "service_p90_us{name:log in,team:shop} < 1000"),
        ("http_reqs{ group:::shop::log in }", "count>3", "requests{group:::shop::log in} > 3"),
        ("group_duration{group:::shop}", "max<20", "transaction_max_us{group:::shop} < 20000"),
        ("iteration_duration{scenario:main}", "avg<20", "iteration_mean_us{scenario:main} < 20000"),
    ],
)
def test_thresholds_are_targets(metric: str, rule: str, target: str) -> None:
    assert targets_of([(read_threshold(metric, rule), True, 70)]) == ([target], {target: 70})
    (read,) = parse_targets([target], {"s": "scenario"})
    assert (read.metric, has_metric("scenario", read.metric)) == (target.rpartition(" ")[0].rpartition(" ")[0], True)


@pytest.mark.parametrize(("metric", "rule"), [("vus", "value<1"), ("iterations", "count!=1")])
def test_thresholds_without_a_figure_are_named(metric: str, rule: str) -> None:
    with pytest.raises(InputError, match="the threshold"):
        targets_of([(read_threshold(metric, rule), False, 0)])


@pytest.mark.parametrize(
    ("metric", "rule", "words"),
    [
        ("http_req_duration{status:200}", "avg<1", "http_req_duration is not kept by status; use a check"),
        ("http_req_duration{login}", "avg<1", "'login' is not a tag; write it as in http_req_duration{name:login}"),
        ("iterations{name:a}", "count>1", "iterations is of iterations, which have no name; use scenario:NAME"),
        ("http_reqs{check:a}", "count>1", "http_reqs has no checks; use checks{check:a}"),
        ("http_req_connecting", "p(95)<1", "http_req_connecting has no p(95); use max"),
        ("vus_max{scenario:a}", "value>1", "vus_max has no tags"),
    ],
)
def test_tags_that_no_figure_has_are_refused(metric: str, rule: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read_threshold(metric, rule)


TAGGED = """base: http://h.test
tags: {suite: demo, team: all}
thresholds:
  THRESHOLD
groups:
  - name: main
    tags: {suite: main}
    flow:
      - transaction: shop
        steps:
          - {get: /a, name: a, tags: {team: a}}
          - parallel: [{get: /b, name: b}]
"""


def test_tags_are_those_around_and_by_place_where_a_threshold_names_them() -> None:
    text = TAGGED.replace("THRESHOLD", "http_reqs{group:::shop,method:GET}: count>1")
    (main,) = loaded(text).lowered({}).plan["populations"]
    assert main["tags"] == {"suite": "main", "team": "all"}
    (shop,) = main["flow"]
    first, (second,) = shop["action"]["nodes"][0], shop["action"]["nodes"][1]["action"]["nodes"]
    assert (shop["tags"], first["tags"], second["tags"]) == (
        {"group": "::shop"}, {"method": "GET", "team": "a"}, {"method": "GET"}
    )  # fmt: skip
    (main,) = loaded(TAGGED.replace("THRESHOLD", "http_reqs: count>1")).lowered({}).plan["populations"]
    assert "tags" not in main["flow"][0]


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        ("http_reqs{name:c}: count>1", "nothing has the tag name:c"),
        ("http_reqs{team:shop}: count>1", "nothing has the tag team:shop"),
        ("http_reqs{taem:a}: count>1", "nothing has the tag 'taem'"),
        ("http_reqs{scenario:other}: count>1", "nothing has the tag scenario:other"),
    ],
)
def test_a_threshold_on_nothing_is_named_with_its_line(threshold: str, words: str) -> None:
    with pytest.raises(PlanError, match="a.yaml:4: .*" + re.escape(words)) as caught:
        loaded(TAGGED.replace("THRESHOLD", threshold)).lowered({})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ("{'a b': x}", "is not the name of a tag"),
        ("{name: x}", "'name' is a tag that each request has"),
        ("{team: '${t}'}", "a tag has no variables"),
        ("{team: 'a,b'}", "without braces and commas"),
    ],
)
def test_tags_that_cannot_be_are_named(tags: str, words: str) -> None:
    with pytest.raises(PlanError, match=r"a.yaml:2: tags") as caught:
        loaded(f"get: http://h.test/\ntags: {tags}\n")
    assert words in str(caught.value)


def test_a_plan_has_the_thresholds_of_its_scenario() -> None:
    test = ScenarioTest(name="s", file=loaded(EXAMPLE))
    assert test.own_targets == ("error_ratio < 0.01",)


def test_certificates_to_trust_and_the_clients_own() -> None:
    given = {name: FileInput(name, name.encode()) for name in ("ca", "cert", "key")}
    unchecked = loaded("get: https://h.test/\nhttp: {verify: false}\n")

    def tls(file: LoadedScenario, **options: object) -> dict[str, object]:
        load = scenario_workload(ScenarioTest(name="s", file=file, tls=TlsTrust.model_validate(options)), {}, None)
        assert load.tls is not None
        return load.tls.model_dump(include={"verify", "ca_pem", "identity"})

    assert tls(loaded(EXAMPLE)) == {"verify": True, "ca_pem": None, "identity": None}
    assert tls(loaded(EXAMPLE), verify=False)["verify"] is False
    assert tls(unchecked)["verify"] is False
    # A CA is to be checked against, whatever the scenario says.
    assert tls(unchecked, ca=given["ca"]) == {"verify": True, "ca_pem": "ca", "identity": None}
    own = tls(unchecked, cert=given["cert"], key=given["key"])
    assert own["identity"] == {"certificate_pem": "cert", "key_pem": "key"}
    with pytest.raises(ValidationError, match="key is missing"):
        TlsTrust.model_validate({"cert": given["cert"]})


def test_single_requests_are_reported_only_if_they_are_asked_for() -> None:
    asked = {
        kept: scenario_workload(ScenarioTest(name="s", file=loaded(EXAMPLE), single_requests=kept), {}, None).samples
        for kept in ("none", "all", "urls")
    }
    assert asked["none"] is None
    assert [one.model_dump() for one in (asked["all"], asked["urls"]) if one is not None] == [
        {"kind": "all", "with_urls": False},
        {"kind": "all", "with_urls": True},
    ]
