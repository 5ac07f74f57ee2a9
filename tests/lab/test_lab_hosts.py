"""Labs: packets go where they should and nowhere else, links do what was asked, and closing takes everything away.

What runs in the labs is in `lab_programs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import lab_programs as programs
import pytest
from lab_scripts import JailUser, jail_user

pytestmark = [pytest.mark.lab, pytest.mark.takes(20)]


@pytest.fixture(params=["root", "nobody"])
def who(request: pytest.FixtureRequest) -> Iterator[JailUser]:
    with jail_user(request.param) as user:
        yield user
        assert user.left_behind() == []


@pytest.fixture(params=[pytest.param("root", marks=pytest.mark.full_matrix), "nobody"])
def either(request: pytest.FixtureRequest) -> Iterator[JailUser]:
    """For what rights may change, and have not so far: the rarer rights in `make test`."""
    with jail_user(request.param) as user:
        yield user
        assert user.left_behind() == []


@pytest.fixture
def anyone() -> Iterator[JailUser]:
    """For what does not depend on rights."""
    with jail_user("nobody") as user:
        yield user
        assert user.left_behind() == []


def test_remote_access_reaches_the_server_through_the_gateway_only(who: JailUser) -> None:
    said = who.run(programs.remote_access)
    assert said[0] == {"bare": ["OSError", "OSError"]}  # no route
    assert said[1] == {"unforwarded": ["TimeoutError", "TimeoutError"]}
    assert said[2]["routed"] == [
        ["there", "back", "10.81.1.1"],
        ["there", "back", "fd81::1:1"],
        ["there", "back", "10.81.1.2"],
        ["there", "back", "fd81::1:2"],
    ]
    assert said[3] == {
        "reported": {"wan": {"4": "10.81.1.2", "6": "fd81::1:2"}},
        "gateway": {"wan": {"4": "10.81.0.1", "6": "fd81::1"}, "lan": {"4": "10.82.0.1", "6": "fd82::1"}},
    }


def test_site_to_site_reaches_over_two_gateways(either: JailUser) -> None:
    [said] = either.run(programs.site_to_site)
    assert said == {"seen": [["10.84.0.2", "back"], ["fd84::2", "back"]]}


def test_launching_on_a_host(either: JailUser) -> None:
    [said] = either.run(programs.links_of_a_host)
    assert said == {"links": ["lan", "lo", "wan"]}


@pytest.mark.parametrize("bundle", [1, 20])
def test_every_100th_udp_packet_is_lost_to_the_packet_each_way(either: JailUser, bundle: int) -> None:
    """Also where the sender hands the kernel bundles (generic segmentation offload)."""
    said = either.run(programs.udp_loss_each_way, bundle)
    exact = {"arrived": 9900, "missing": 100, "steps": [100]}
    assert said == [{"up": exact}, {"down": exact}]


def test_every_100th_packet_of_any_kind(anyone: JailUser) -> None:
    """On a link too narrow for IPv6, so that nothing but the test's own packets is counted."""
    said = anyone.run(programs.loss_of_any_packet)
    assert said == [{"up": {"arrived": 9900, "missing": 100, "steps": [100]}, "versions": [4]}]


def test_random_loss_has_the_share_that_was_asked_for(anyone: JailUser) -> None:
    """10,000 packets at 20 %: six standard deviations are 240."""
    [said] = anyone.run(programs.random_loss)
    assert abs(said["arrived"] - 8000) < 240


def test_rate_and_mtu_are_set_on_both_ends_of_every_link(anyone: JailUser) -> None:
    [said] = anyone.run(programs.rates_and_mtus)
    port = [1400, 100_000_000]
    assert said == {
        "client1": {"wan": port},
        "client2": {"wan": port},
        "gateway": {"wan": port, "lan": port},
        "server": {"lan": port},
        "switch": {"client1": port, "client2": port, "gateway": port, "bridge": [1400, None]},
    }


def test_delay_works_or_is_said_to_be_impossible_and_nothing_stays(either: JailUser) -> None:
    said = either.run(programs.delay)
    if "took_s" in said[0]:
        assert said[0]["took_s"] >= 0.060
    else:
        assert said == [
            {
                "error": "links cannot have a delay or faults: this kernel has no netem; load it with "
                "`sudo modprobe sch_netem`, or write lab.emulator: own",
                "status": 2,
                "left": [],
            }
        ]


def test_closing_ends_what_runs_and_removes_everything(who: JailUser) -> None:
    [said] = who.run(programs.closing)
    assert said == {"ended": [-9, -9], "left": [], "refusal": "this lab is closed", "hosts": {}}


def test_a_second_lab_in_one_jail_is_refused_and_leaves_the_first_alone(anyone: JailUser) -> None:
    [said] = anyone.run(programs.second_lab)
    assert said == {"error": "this jail already has a host switch; close the other lab first", "got": "there"}


def test_one_lab_after_another_in_an_event_loop(anyone: JailUser) -> None:
    """As a run does it: build and close from a coroutine."""
    [said] = anyone.run(programs.labs_in_an_event_loop)
    assert said == {"done": True}


def test_errors_name_the_route(anyone: JailUser) -> None:
    said = anyone.run(programs.impossible_routes)
    assert [line["error"] for line in said] == [
        "cannot set a route to 10.9.0.0/16 via 10.99.0.1: Network is unreachable",
        "nonsense is not a network: 'nonsense' does not appear to be an IPv4 or IPv6 network",
        "there is no interface tun7",
        "a route to 10.9.0.0/16 needs a neighbour or a device",
    ]


def test_a_host_has_a_cgroup_that_accounts_for_its_cpu(who: JailUser) -> None:
    said = who.run(programs.cpu_account)
    if "reason" in said[0]:
        assert said[0]["reason"]
        assert set(said[0]["groups"]) == {None}
    else:
        assert said[0]["usage_us"] >= 200_000


def test_a_hundred_clients(either: JailUser, record_property: Callable[[str, object], None]) -> None:
    [said] = either.run(programs.hundred_clients)
    record_property("build_s", said.pop("took_s"))
    assert said == {"hosts": 102, "last": {"4": "10.81.1.100", "6": "fd81::1:64"}}
