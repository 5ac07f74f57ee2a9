"""What is said beside a fleet's figures of the server's own account."""

from __future__ import annotations

from made_fleets import client, fleet
from made_journals import EPOCH_NS, S

from leadline.analysis.fleet_validity import notes
from leadline.analysis.gather import ServerReading


def test_a_server_whose_process_was_watched_is_no_unknown() -> None:
    data = fleet([client(0), client(1)])
    assert [note.code for note in notes(data)] == ["answering-side-unknown"]
    data.server_readings.append(ServerReading(EPOCH_NS - 1, 1.0, 10_000))
    data.server_readings.append(ServerReading(EPOCH_NS + 11 * S, 2.0, 20_000))
    assert list(notes(data)) == []
