"""What is said of what a fleet lacks, and beside its figures of the server's own account."""

from __future__ import annotations

from made_fleets import client, fleet, fleet_outcome
from made_journals import EPOCH_NS, S, finished, flow, observation, process, test_data

from leadline.analysis.fleet_validity import gaps, notes


def test_a_server_whose_process_was_watched_is_no_unknown() -> None:
    data = fleet([client(0), client(1)])
    assert [note.code for note in notes(data)] == ["answering-side-unknown"]
    data.server_pid = 7
    for at_ns, cpu_s in ((EPOCH_NS - 1, 1.0), (EPOCH_NS + 11 * S, 2.0)):
        data.add("client1", observation(at_ns, processes=[process("vpn", 7, cpu_s, 0.0, 10_000)]))
    assert list(notes(data)) == []


def load_inside(received: int | None, sizes: dict[str, int] | None) -> list[tuple[str, str]]:
    clients = [client(0), client(1)]
    flows = [flow(number, 0, 1, sent_units=300, sent_bytes=300 * 1400, received_units=received) for number in range(2)]
    tunnel = {"clients": clients, "ignored_options": [], "memory_bytes": None, "packet_sizes": sizes}
    data = test_data("tunnel", duration_ms=None)
    data.add("client1", finished(EPOCH_NS + 10 * S, fleet_outcome(clients, tunnel=tunnel) | {"flows": flows}))
    return [(reason.code, reason.text) for _, reason in gaps(data)]


def test_load_of_which_nothing_came_through_is_no_whole_measurement() -> None:
    assert load_inside(1, None) == []
    assert load_inside(None, None) == [], "what the far end received is not known"
    [(code, text)] = load_inside(0, None)
    assert (code, text) == ("nothing-came-through", "none of 600 packets arrived through the tunnels")


def test_a_path_that_carries_short_packets_alone_is_named() -> None:
    [(code, text)] = load_inside(0, {"answered_bytes": 1216, "unanswered_bytes": 1310})
    assert code == "path-mtu-too-small"
    assert text.startswith("0 of 600 packets arrived")
    assert "up to 1216 bytes are answered, and packets of 1310 bytes and more are not" in text
    some = load_inside(3, {"answered_bytes": 1216, "unanswered_bytes": 1310})
    assert [code for code, _ in some] == ["path-mtu-too-small"]
    long_enough = {"answered_bytes": 1405, "unanswered_bytes": 1500}
    assert load_inside(3, long_enough) == [], "the load's packets are shorter: something else took them"
