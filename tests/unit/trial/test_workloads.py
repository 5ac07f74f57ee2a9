"""A plan's test as an agent's workload: units, the share of each flow, addresses in URLs."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.analysis.test_spec import TestSpec
from leadline.contract.models import HttpWorkload, RrWorkload, TcpWorkload, UdpWorkload
from leadline.kinds.http.model import HttpTest
from leadline.kinds.rr import RrTest
from leadline.kinds.tcp import TcpTest
from leadline.kinds.udp import UdpTest
from leadline.plan.field_types import validate_input
from leadline.trial.workloads import Server, serve_everything, workload


def test_a_rate_is_shared_by_the_flows() -> None:
    given: dict[str, Any] = {"name": "t", "flows": 4, "duration": "2s"}
    tcp = workload(validate_input(TcpTest, given | {"rate": "10mbit"}), Server("10.82.0.2"))
    assert isinstance(tcp, TcpWorkload)
    assert (tcp.rate_bps, tcp.flows, tcp.duration_ms) == (2_500_000, 4, 2000)
    udp = workload(validate_input(UdpTest, given | {"rate": "8mbit", "packet": 1000}), Server("10.82.0.2"))
    assert isinstance(udp, UdpWorkload)
    assert (udp.rate_pps, udp.datagram_bytes) == (250.0, 1000)


def test_without_a_rate_as_fast_as_it_goes() -> None:
    tcp = workload(validate_input(TcpTest, {"name": "t", "duration": "1s"}), Server("10.82.0.2"))
    assert isinstance(tcp, TcpWorkload)
    assert tcp.rate_bps is None


@pytest.mark.parametrize(("protocol", "least"), [("tcp", 1), ("udp", 40)])
def test_a_request_has_room_for_the_measuring_header(protocol: str, least: int) -> None:
    rr = workload(validate_input(RrTest, {"name": "r", "protocol": protocol, "duration": "1s"}), Server("10.82.0.2"))
    assert isinstance(rr, RrWorkload)
    assert (rr.request_bytes, rr.response_bytes) == (least, least)


def test_flows_of_a_request_response_test_share_its_rate() -> None:
    given = {"name": "r", "duration": "1s", "flows": 4, "rate": "2k", "outstanding": 8, "connect": True}
    test = validate_input(RrTest, {**given, "busy_poll": True})
    rr = workload(test, Server("10.82.0.2"))
    assert isinstance(rr, RrWorkload)
    assert (rr.rate_per_s, rr.outstanding, rr.connect, rr.busy_poll) == (500.0, 8, True, True)
    # The same gap, read from the plan's test and from the agent's workload.
    gaps = [TestSpec.read(one.model_dump(by_alias=False)).send_gap_s for one in (test, rr)]
    assert gaps == [0.002, 0.002]


@pytest.mark.parametrize(
    ("host", "ip", "url", "version"),
    [
        ("10.82.0.2", 4, "http://10.82.0.2:8080/", "v4"),
        ("fd82::2", 6, "http://[fd82::2]:8080/", "v6"),
    ],
)
def test_addresses_in_urls(host: str, ip: int, url: str, version: str) -> None:
    http = workload(validate_input(HttpTest, {"name": "h", "duration": "1s", "ip": ip}), Server(host))
    assert isinstance(http, HttpWorkload)
    assert (http.requests[0].url, http.ip_version) == (url, version)


def test_the_server_answers_for_the_given_duration() -> None:
    serve = serve_everything(["10.82.0.2"], 12_000)
    assert (serve.bind, serve.port, serve.http_port) == (["10.82.0.2"], 5201, 8080)
    assert serve.longest_ms == 12_000
    assert serve.key is None


def test_a_key_is_the_servers_and_every_sessions() -> None:
    assert serve_everything(["10.82.0.2"], 12_000, key="a2V5").key == "a2V5"
    load = workload(validate_input(TcpTest, {"name": "t"}), Server("10.82.0.2", key="a2V5"))
    assert isinstance(load, TcpWorkload)
    assert load.target.key == "a2V5"


def test_https_has_its_own_port_and_listener() -> None:
    given = {"name": "h", "scheme": "https", "tls": {"verify": False}}
    http = workload(validate_input(HttpTest, given), Server("fd82::2"))
    assert isinstance(http, HttpWorkload)
    assert http.requests[0].url == "https://[fd82::2]:8443/"
    assert http.tls is not None
    assert not http.tls.verify
    assert serve_everything(["::1"], 1).https_port is None
    assert serve_everything(["::1"], 1, https=True).https_port == 8443


def test_requests_of_a_plan_share_method_and_headers() -> None:
    given = {"name": "h", "urls": ["/a", "weight=2 PUT /b"], "method": "HEAD", "headers": [{"name": "A", "value": "b"}]}
    http = workload(validate_input(HttpTest, given), Server("10.82.0.2"))
    assert isinstance(http, HttpWorkload)
    assert [(request.method, request.url, request.weight) for request in http.requests] == [
        ("HEAD", "http://10.82.0.2:8080/a", 1),
        ("PUT", "http://10.82.0.2:8080/b", 2),
    ]
    assert all(request.headers[0].value == "b" for request in http.requests)
