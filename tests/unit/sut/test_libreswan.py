"""Libreswan's files and its daemon's script, as text; the refusal of a kernel without ESP."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError
from sites import ADDRESSING

from leadline.plan.field_types import validate_input
from leadline.sut.addressing import TunnelClient
from leadline.sut.libreswan import SYSTEM, LibreswanSut, cause, connections, daemon_argv, ipsec_config

OUTER = {4: "10.81.1.1", 6: "fd81::1:1"}
CLIENT = TunnelClient("client1", "client1", 1, OUTER)
SITE = TunnelClient("client1", "gateway-a", 1, OUTER)


def test_client_has_a_connection_for_each_version_with_its_own_address() -> None:
    four, six = connections(ADDRESSING, CLIENT, 6)
    assert (four.name, four.left, four.left_network, four.right_network) == (
        "client1-ipv4",
        "fd81::1:1",
        "10.81.1.1/32",
        "10.82.0.0/24",
    )
    assert (six.name, six.right, six.left_network, six.right_network) == (
        "client1-ipv6",
        "fd81::1",
        "fd81::1:1/128",
        "fd82::/64",
    )


def test_site_has_its_networks() -> None:
    assert [one.left_network for one in connections(ADDRESSING, SITE, 4)] == ["10.84.0.0/24", "fd84::/64"]


def test_gateway_has_the_same_connections_from_its_side() -> None:
    [one] = connections(replace(ADDRESSING, server_lan={4: ADDRESSING.server_lan[4]}), CLIENT, 4)
    lines = [line.strip() for line in ipsec_config(LibreswanSut(compression=True), [one.reversed()]).splitlines()]
    assert lines[0] == "conn client1-ipv4"
    assert {"left=10.81.0.1", "leftid=@gateway", "leftsubnet=10.82.0.0/24", "rightsubnet=10.81.1.1/32"} <= set(lines)
    assert {"esp=aes_gcm256", "compress=yes", "authby=secret", "leftupdown=%disabled", "auto=ignore"} <= set(lines)


def test_each_connection_is_trapped_before_any_is_initiated_and_only_clients_initiate() -> None:
    script = daemon_argv(LibreswanSut(), "/keys/client1", ["a", "b"], connects=True)[-1]
    positions = [
        script.index(text) for text in ("--listen", "--name a --route", "--name b --route", "--name a --initiate")
    ]
    assert positions == sorted(positions)
    assert script.count("--trafficstatus") == 2, "what is up is what the status lists"
    assert script.splitlines()[-1].startswith("exec /usr/libexec/ipsec/pluto --nofork")
    assert "--initiate" not in daemon_argv(LibreswanSut(), "/keys/gateway", ["a"], connects=False)[-1]


def test_cause_is_the_line_that_explains_most() -> None:
    lines = [
        "connections failed",
        'Nov 29 11:48:48.287153: "net4" #2: IKE_AUTH response rejected Child SA with TS_UNACCEPTABLE',
        'Nov 29 11:48:48.287153: ERROR: "net4" #2: netlink response for Add SA esp.f12: Function not implemented',
    ]
    assert cause(lines[:1]) is None
    assert (
        cause(lines[:2])
        == 'the gateway refused the tunnel: "net4" #2: IKE_AUTH response rejected Child SA with TS_UNACCEPTABLE'
    )
    found = cause(lines)
    assert found is not None and found.startswith(
        'its kernel refuses the security association: ERROR: "net4" #2: netlink'
    )


@pytest.mark.parametrize(("key", "value"), [("esp", "aes gcm"), ("ike", "aes\nauto=start"), ("folder", "ipsec")])
def test_what_is_no_proposal_and_no_folder_is_refused(key: str, value: str) -> None:
    with pytest.raises(ValidationError):
        validate_input(LibreswanSut, {"kind": "libreswan", key: value})


def test_it_needs_its_programs_and_its_cpu_time_is_the_kernels() -> None:
    assert [need.name for need in SYSTEM.needs(LibreswanSut(), fleet=False)] == [
        "/usr/libexec/ipsec/pluto",
        "certutil",
        "ESP in the kernel",
    ]
    assert SYSTEM.cpu_attribution(LibreswanSut()) == "kernel"
