"""Where datagrams were lost: at a receiver's sockets, before them, or where no counter of an observed host is."""

from __future__ import annotations

from typing import Any

import pytest
from made_journals import EPOCH_NS, S, facts, load, observation, steady_test, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, LimitedBy, Verdict

SECONDS = range(-1, 13)
SENT = 10_000


def flood(
    *,
    lost: int,
    on_interface: int = 0,
    in_backlog: int = 0,
    socket: int = 0,
    bundled: bool = False,
    host: str = "server",
    on_leaving: int = 0,
) -> TestData:
    """10,000 datagrams of which `lost` never arrived; `host` counts drops of its interface, and its machine those of
    the backlogs, in each second evenly."""
    data = steady_test("udp", receiver=load(side="peer", socket_drops=socket))
    row: dict[str, Any] = data.outcomes[0].outcome["flows"][0]  # type: ignore[assignment]
    row |= {"lost": lost, "received_units": SENT - lost, "jitter_us": 1.0}
    row["datagrams"] = {"segmented": bundled, "coalesced": SENT - lost if bundled else 0}
    data.facts = {name: facts() for name in ("client1", "server")}
    for second in SECONDS:
        past = min(max(second, 0), 10)
        event = observation(
            EPOCH_NS + second * S, {"user": second * 0.2, "idle": second * 1.8}, interfaces={"eth0": (0, 0)}
        )
        event["network"]["interfaces"][0]["rx_dropped"] = 5 + on_interface * past // 10
        event["machine"]["softnet"] = [
            {"cpu": 1, "processed": 0, "dropped": 9 + in_backlog * past // 10, "squeezed": 0}
        ]
        data.add(host, event)
        leaving = observation(EPOCH_NS + second * S, {"user": 0.0, "idle": second * 2.0}, interfaces={"v0": (0, 0)})
        leaving["network"]["interfaces"][0]["tx_dropped"] = on_leaving * past // 10
        if on_leaving:
            data.add("client1", leaving)
    return data


def reasons(data: TestData) -> dict[str, str]:
    return {one.code: one.text for one in analyse_test(data).validity.reasons}


def notes(data: TestData) -> dict[str, str]:
    return {one.code: one.text for one in analyse_test(data).validity.notes}


def test_loss_in_a_receivers_backlog_is_the_receivers() -> None:
    data = flood(lost=3000, on_interface=2400, in_backlog=2400, socket=600)
    found = analyse_test(data)
    assert found.validity.verdict is Verdict.RECEIVER_LIMITED
    text = (
        "2,400 datagrams arrived at server and were dropped before its sockets, on eth0: the backlog of a CPU was full"
    )
    assert reasons(data)["receiver-backlog-drops"] == f"{text}; that is 80 % of the 3,000 that count as lost"
    assert found.metrics["lost_ratio"].bound is Bound.MOST
    assert found.metrics["throughput_bps"].bound is Bound.LEAST
    assert found.limit is not None and found.limit.by is LimitedBy.ANSWERING_SIDE
    expected = "server dropped 24.0 % of the datagrams sent (2,400) on eth0, before its sockets"
    assert found.limit.evidence == expected
    assert "loss-unseen" not in notes(data)


def test_interface_that_drops_by_itself_is_no_backlog() -> None:
    text = reasons(flood(lost=3000, on_interface=3000))["receiver-backlog-drops"]
    assert "backlog" not in text and "on eth0; that is 100 % of the 3,000" in text


@pytest.mark.parametrize(("on_interface", "in_backlog"), [(9, 0), (0, 3000)])
def test_a_few_drops_and_those_of_other_hosts_are_no_reason(on_interface: int, in_backlog: int) -> None:
    """The backlogs are those of all hosts of a machine; the interface is the host's own."""
    data = flood(lost=3000, on_interface=on_interface, in_backlog=in_backlog)
    assert "receiver-backlog-drops" not in reasons(data)
    assert "receiver-backlog-drops" not in reasons(flood(lost=0, on_interface=3000))
    # A host that sends, and receives none of the datagrams.
    assert "receiver-backlog-drops" not in reasons(flood(lost=3000, on_interface=3000, host="client1", socket=0))


def test_single_command_whose_server_is_on_this_machine_names_its_own_interface() -> None:
    use = {"wall_s": 10.0, "cpus": 2, "busy_s": 4.0, "softirq_s": 2.0}
    use |= {f"{way}_{what}": 1000 for way in ("sent", "received") for what in ("bytes", "units")}
    data = flood(lost=3000, on_interface=3000, host="client1")
    outcome: Any = data.outcomes[0].outcome
    for side in ("generator", "receiver"):
        outcome[side]["machine"] = dict(use)
    assert reasons(data)["receiver-backlog-drops"].startswith("3,000 datagrams arrived at client1 and were dropped")


def test_drops_of_bundles_are_not_counted_as_datagrams() -> None:
    data = flood(lost=6000, socket=150, bundled=True)
    text = "150 bundles of datagrams arrived and were dropped by the socket on the server that client1 used"
    assert reasons(data)["receiver-socket-drops"] == f"{text}, of up to 128 each; 6,000 datagrams count as lost"
    found = analyse_test(data).limit
    assert found is not None and found.by is LimitedBy.ANSWERING_SIDE
    expected = (
        "the socket on the server that client1 used dropped 150 bundles of datagrams; 60.0 % of those sent are lost"
    )
    assert found.evidence == expected
    few = flood(lost=6000, socket=15, bundled=True)
    few.outcomes[0].outcome["generator"]["threads"] = [thread(0.97)]  # type: ignore[list-item]
    limit = analyse_test(few).limit
    assert limit is not None and limit.by is LimitedBy.GENERATOR, "15 bundles are at most 1,920 of 6,000"


def test_loss_that_no_counter_saw_is_said_to_be_unseen() -> None:
    text = notes(flood(lost=3000, on_interface=12, socket=40))["loss-unseen"]
    assert text.startswith("where 3,000 datagrams were lost is not known: the counters of server saw few of them")
    assert "(sockets 40, interfaces 12, queues 0)" in text
    assert "loss-unseen" not in notes(flood(lost=50))
    assert "loss-unseen" not in notes(flood(lost=3000, socket=2000))


def test_queue_in_front_of_a_link_explains_a_loss() -> None:
    data = flood(lost=3000)
    for second in SECONDS:
        event = observation(EPOCH_NS + second * S, interfaces={"wan": (0, 1000 * (second + 2))})
        past = min(max(second, 0), 10)
        row = {"packets": 1000 * past, "drops": 300 * past, "overlimits": 0, "backlog_bytes": 0}
        event["network"]["queues"] = [{"name": "wan", "kind": "tbf", **row}]
        data.add("client1", event)
    assert "loss-unseen" not in notes(data)


def test_busy_generator_comes_after_a_full_backlog() -> None:
    data = flood(lost=3000, on_interface=3000, in_backlog=3000)
    data.outcomes[0].outcome["generator"]["threads"] = [thread(0.97)]  # type: ignore[list-item]
    found = analyse_test(data).limit
    assert found is not None and found.by is LimitedBy.ANSWERING_SIDE


def test_loss_in_the_senders_own_interface_is_not_the_paths() -> None:
    """A veth drops what its far end does not take in time."""
    data = flood(lost=3000, on_leaving=2400)
    expected = "v0 of client1 dropped 2,400 datagrams as they left: the queue of the interface was full"
    assert reasons(data)["sender-interface-drops"] == f"{expected}; that is 80 % of the 3,000 that count as lost"
    assert analyse_test(data).metrics["lost_ratio"].bound is Bound.MOST
    assert "loss-unseen" not in notes(data)
    assert "sender-interface-drops" not in reasons(flood(lost=3000, on_leaving=5))
    at_both_ends = reasons(flood(lost=3000, on_leaving=2400, on_interface=2400))
    assert "sender-interface-drops" not in at_both_ends
    assert "receiver-backlog-drops" in at_both_ends
