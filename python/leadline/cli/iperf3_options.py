"""What a command's options ask of an iperf3 server, beyond the test itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.contract.models import Iperf3Options

_FLAGS = ("local_port", "get_server_output", "repeating_payload", "udp_counters_32bit")
_LAST_PORT = 65_535


def iperf3_options_of(values: Mapping[str, Any]) -> Iperf3Options | None:
    """The options for an iperf3 server; None without one of them.

    Raises:
        InputError: the server is Leadline's own, or the flows have no ports left.
    """
    given = [name for name in _FLAGS if values.get(name)]
    if not given:
        return None
    if values.get("peer") != "iperf3":
        raise InputError(f"--{given[0].replace('_', '-')} is for iperf3's servers", hint="give --peer iperf3")
    if values["repeating_payload"] and (values.get("payload_file") or values.get("payload") not in (None, "zeros")):
        raise InputError("--repeating-payload and another payload exclude each other", hint="give one of them")
    port, flows = values["local_port"], values["parallel"] * (2 if values["bidir"] else 1)
    if port is not None and port + flows - 1 > _LAST_PORT:
        raise InputError(f"--local-port {port}: {flows} flows need {flows} ports, and {_LAST_PORT} is the last one")
    from leadline.contract.models import Iperf3Options

    return Iperf3Options(
        local_port=port,
        server_output=values["get_server_output"],
        repeating_payload=values["repeating_payload"],
        short_counters=bool(values.get("udp_counters_32bit")),
    )
