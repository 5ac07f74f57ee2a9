"""The published JSON Schema, and the two examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from plan_texts import plan_validator
from pydantic import Field
from ruamel.yaml import YAML

from leadline.kinds.udp import UdpTest
from leadline.plan import describe, load_plan, plan_schema
from leadline.plan.field_types import PlanModel
from leadline.plan.kinds import plan_kinds
from leadline.sut.openvpn.parameters import OpenvpnSut

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = ("gateway", "openvpn-throughput")


def document(name: str) -> Any:
    return YAML(typ="safe").load(EXAMPLES / f"{name}.yaml")


def valid(data: Any) -> bool:
    return bool(plan_validator().is_valid(data))


def test_schema_is_valid_json_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(plan_schema())


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_valid(name: str) -> None:
    plan_validator().validate(document(name))


SMALL: dict[str, Any] = {
    "name": "x",
    "sut": {"kind": "route"},
    "tests": [{"name": "a", "kind": "udp", "packet": "{packet}", "rate": "20Mbit/s", "clients": "all"}],
    "axes": {"packet": [64]},
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"tetss": []}, False),
        ({"name": None}, False),
        ({"repeat": "x"}, False),
        ({"interval": "100ms"}, True),
        ({"interval": 100}, False),
        ({"interval": 0.1}, True),
        ({"tests": [{"name": "a", "kind": "tcp", "duration": 10}]}, True),
        ({"tests": [{"name": "a", "kind": "tcp", "duration": "10"}]}, True),
        ({"sut": {"kind": "opnvpn"}}, False),
        ({"sut": {"kind": "openvpn", "cipher": "{cipher}"}}, True),
        ({"sut": {"kind": "route", "cipher": "A"}}, False),
        ({"tests": []}, False),
        ({"tests": [{"name": "a", "kind": "tcp", "duration": "10 parsecs"}]}, False),
        ({"tests": [{"name": "a.b", "kind": "tcp"}]}, False),
        ({"lab": {"link": {"rate": "1gbit", "loss": "1%", "delay": "500us", "mtu": 1400}}}, True),
        ({"lab": {"link": {"rate": "fast"}}}, False),
        ({"hosts": {"gateway": "ssh://gw", "server": "local", "clients": ["local"]}}, True),
        ({"hosts": {"gateway": "local", "server": {"ssh": "a", "address": "10.0.0.2"}, "clients": ["local"]}}, True),
        ({"hosts": {"gateway": "local", "server": {"address": "10.0.0.2"}, "clients": ["local"]}}, False),
        ({"sut": {"kind": "given", "label": "a box"}}, True),
        ({"sut": {"kind": "given"}}, False),
        ({"hosts": {"gateway-a": "gw", "server": "local", "clients": ["local"]}}, False),
    ],
)
def test_schema_accepts_valid_plans_only(change: dict[str, Any], expected: bool) -> None:
    assert valid({**SMALL, **change}) is expected


def test_every_key_is_explained() -> None:
    schema = plan_schema()
    parts = {"plan": schema, **schema["$defs"]}
    silent = [
        f"{title}.{key}"
        for title, part in parts.items()
        for key, value in part.get("properties", {}).items()
        if not {"description", "$ref"} & set(value) and key not in ("kind", "name", "value")
    ]
    assert silent == []


def test_every_default_is_valid_yaml_input() -> None:
    schema = plan_schema()
    for part in (schema, *schema["$defs"].values()):
        for key, value in part.get("properties", {}).items():
            if "default" in value:
                validator = jsonschema.Draft202012Validator({**value, "$defs": schema["$defs"]})
                assert validator.is_valid(value["default"]), key
                assert "_ms" not in key


def test_every_kind_of_test_has_metrics() -> None:
    assert [kind.name for kind in plan_kinds() if not kind.metrics] == []


def test_gateway_compares_three_systems_five_times_within_six_minutes() -> None:
    plan = load_plan(EXAMPLES / "gateway.yaml")
    assert [case.sut.kind for case in plan.cases] == ["route", "wireguard", "openvpn"]
    assert [case.sut.optional for case in plan.cases] == [False, False, True]
    assert {test.kind for test in plan.cases[0].tests} == {"tcp", "udp", "rr", "http"}
    assert all(case.clients == 1 for case in plan.cases)
    assert plan.repeat == 5
    assert describe(plan).expected_seconds <= 360


def test_openvpn_throughput_is_the_whole_matrix_of_mp_1_to_mp_4() -> None:
    plan = load_plan(EXAMPLES / "openvpn-throughput.yaml")
    assert len(plan.cases) == 4 * 2 * 2 * 2 * 3
    assert plan.axes["clients"] == ("5", "20", "50", "100")
    assert {case.sut.ip for case in plan.cases if isinstance(case.sut, OpenvpnSut)} == {4, 6}
    assert [test.duration_ms for test in plan.cases[0].tests] == [10_000, 30_000, 60_000]
    assert {test.packet_bytes for case in plan.cases for test in case.tests if isinstance(test, UdpTest)} == {
        64,
        512,
        1400,
    }
    assert {case.link.rate_bps for case in plan.cases if case.link} == {10**9}


def test_openvpn_throughput_can_be_shortened_as_its_header_says() -> None:
    text = (EXAMPLES / "openvpn-throughput.yaml").read_text(encoding="utf-8")
    header = text.partition("\nname:")[0].replace("\\\n#", "")
    overrides = [
        part.split("--set")[0].strip().strip("'") for part in header.partition("A quick look")[2].split("--set ")
    ]
    plan = load_plan(EXAMPLES / "openvpn-throughput.yaml", overrides[1:])
    assert [case.clients for case in plan.cases] == [5, 20]
    assert [test.duration_ms for test in plan.cases[0].tests] == [1000, 2000, 3000]
    assert describe(plan).expected_seconds < 60


def test_docstrings_of_attributes_describe_them_in_the_schema() -> None:
    """Also of a model that is derived from another, and of one that is made by code and so has no source."""

    class Whole(PlanModel):
        length_ms: int = Field(1, validation_alias="length")
        """How long it takes."""
        other: int = 2

    class Derived(Whole):
        third: int = 3
        """What only this one has,
        in two lines."""

    made: dict[str, Any] = {"__module__": __name__, "__annotations__": {"fourth": int}, "fourth": 4}
    found = type("Made", (Derived,), made).model_json_schema()["properties"]  # type: ignore[attr-defined]
    assert {key: value.get("description") for key, value in found.items()} == {
        "length": "How long it takes.",
        "other": None,
        "third": "What only this one has,\nin two lines.",
        "fourth": None,
    }
    assert Whole.model_fields["length_ms"].description is None, (
        "reading the source takes time, and is for schemas alone"
    )
