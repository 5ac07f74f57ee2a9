"""Lines to and from an agent: the unions that `contract` leaves open, and the conversion between bytes and records.

Refuses everything that is not in the contract; the caller decides what happens then (`agent` ends such an agent).
Observations, which are most of the lines, are checked as lines (`observations`) and read where figures are needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, Literal, TypeAlias

import pydantic_core
from pydantic import Field, TypeAdapter, ValidationError

from leadline.contract import models

PROTOCOL_VERSION = 2
"""The contract's version, `leadline_wire::PROTOCOL_VERSION`."""

LINE_LIMIT_BYTES = 16 * 1024 * 1024
"""The longest line that either side accepts, `leadline_wire::LINE_LIMIT_BYTES`."""


@dataclass(slots=True)
class UnreadObservation:
    """An observation as the agent's line, which is in the contract. While a load runs, nothing needs its figures."""

    line: bytes
    type: ClassVar[Literal["observation"]] = "observation"

    def read(self) -> models.ObservationEvent:
        """Its figures; each call reads the line.

        Raises:
            MalformedLine: it is not in the contract after all.
        """
        event = parse_event(self.line)
        assert isinstance(event, models.ObservationEvent)
        return event


ReadEvent: TypeAlias = (
    models.Hello
    | models.Heartbeat
    | models.ClockReply
    | models.NetworkReply
    | models.WakeUpReply
    | models.Prepared
    | models.Started
    | models.Progress
    | models.Samples
    | models.Finished
    | models.Failed
    | models.OutputLine
    | models.Exited
    | models.Profiled
    | models.Emulated
    | models.LinkChanged
)

Event: TypeAlias = ReadEvent | UnreadObservation
"""What an `Agent` passes on."""

ContractEvent: TypeAlias = ReadEvent | models.ObservationEvent

Command: TypeAlias = (
    models.Prepare
    | models.Start
    | models.Stop
    | models.Observe
    | models.Inspect
    | models.Clock
    | models.MeasureWakeUp
    | models.ControllerHeartbeat
    | models.Shutdown
)

Workload: TypeAlias = (
    models.ServeWorkload
    | models.TcpWorkload
    | models.UdpWorkload
    | models.RrWorkload
    | models.HttpWorkload
    | models.ScenarioWorkload
    | models.CryptoWorkload
    | models.TunnelWorkload
    | models.ProcessWorkload
    | models.ProfileWorkload
    | models.UndoWorkload
    | models.EmulateWorkload
    | models.PacketGeneratorWorkload
    | models.PacketReceiverWorkload
)

_EVENTS: TypeAdapter[ContractEvent] = TypeAdapter(Annotated[ContractEvent, Field(discriminator="type")])


class MalformedLine(ValueError):
    """A line that is not in the contract; the text gives the reason in one line."""


def parse_event(line: bytes | bytearray | str) -> ContractEvent:
    """Read one line of an agent's stdout.

    Raises:
        MalformedLine: it is not JSON, or not an event of this contract.
    """
    try:
        return _EVENTS.validate_json(line)
    except ValidationError as error:
        raise MalformedLine(_complaint(error)) from error


def greeting_of_another(line: bytes | bytearray | str) -> str | None:
    """What an agent speaks whose `hello` is not this contract's; None if the line is no greeting at all."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("type") != "hello":
        return None
    return f"agent {found.get('agent_version')} speaks protocol {found.get('protocol')}"


def parse_command(line: bytes | str) -> Command:
    """Parse one line of an agent's stdin; used for transcripts.

    Raises:
        MalformedLine: it is not JSON, or not a command of this contract.
    """
    try:
        return _commands().validate_json(line)
    except ValidationError as error:
        raise MalformedLine(_complaint(error)) from error


def encode(command: Command) -> bytes:
    """The command as a line, including the line end."""
    # Each part by its own model: the command's has all workloads, most of which a process never uses.
    return pydantic_core.to_json(dict(command)) + b"\n"


@cache
def _commands() -> TypeAdapter[Command]:
    return TypeAdapter(Annotated[Command, Field(discriminator="type")])


def _complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
