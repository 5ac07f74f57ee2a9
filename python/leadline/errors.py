"""The tree of exceptions. The class decides the exit code; the message is the single line that a user reads.

Raise these where the cause is known; only `cli` prints them and sets the exit code.

* LeadlineError            1
  - InputError             2   the request is invalid
    + PlanError
    + MissingBinary
  - EnvironmentLimit       2   this machine cannot do it
    + ClosedDevice
    + MissingKernelFeature
  - AgentError             1
    + AgentLost
    + TaskFailed
  - LabError               1
  - SutFailed              1
    + NoClientConnected
  - Interrupted            1   the user interrupted
  - DatasetError           1
  - Unforeseen             1   a defect of Leadline
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class LeadlineError(Exception):
    """The base class: ends a command or a trial. `hint` is advice for the user."""

    exit_code = 1
    code = "failed"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(LeadlineError):
    """The user's input is invalid. `others` has further mistakes of the same input."""

    exit_code = 2
    code = "bad_input"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.others: tuple[InputError, ...] = ()


class PlanError(InputError):
    """A plan is invalid at a known place."""

    code = "bad_plan"

    def __init__(self, file: Path | str, line: int | None, message: str, *, hint: str | None = None) -> None:
        where = f"{file}:{line}" if line is not None else f"{file}"
        super().__init__(f"{where}: {message}", hint=hint)
        self.file = Path(file)
        self.line = line
        self.others: tuple[PlanError, ...] = ()


class MissingBinary(InputError):
    """A program that the request needs is missing."""

    code = "missing_binary"

    def __init__(self, name: str, *, host: str | None = None, hint: str | None = None) -> None:
        """`host` names the host that lacks it; None for this machine."""
        where = f" on {host}" if host is not None else ""
        super().__init__(f"{name} is not installed or not executable{where}", hint=hint)
        self.name = name


class EnvironmentLimit(LeadlineError):
    """This machine does not allow what the request needs."""

    exit_code = 2
    code = "environment"


class ClosedDevice(EnvironmentLimit):
    """A device that the request needs is missing, or the rights forbid it."""

    code = "closed_device"


class MissingKernelFeature(EnvironmentLimit):
    """The kernel of a host lacks what the request needs."""

    code = "missing_kernel_feature"


class AgentError(LeadlineError):
    """An agent could not do its work."""

    code = "agent"


class AgentLost(AgentError):
    """An agent is lost: its process ended, or it stopped sending."""

    code = "agent_lost"

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"the agent on {host} is lost: {reason}")
        self.host = host
        self.reason = reason


class TaskFailed(AgentError):
    """A task on an agent failed, by a named cause."""

    code = "task_failed"

    def __init__(self, host: str, task: str, code: str, message: str, *, of_input: bool = False) -> None:
        super().__init__(f"{task} on {host}: {message}")
        self.host = host
        self.task = task
        self.code = code
        # Some invalid input is known only to the agent, such as a cipher that it lacks. It counts as invalid input.
        self.exit_code = InputError.exit_code if of_input else AgentError.exit_code


class LabError(LeadlineError):
    """The lab could not be built."""

    code = "lab"


class SutFailed(LeadlineError):
    """The system under test did not start, or ended early."""

    code = "sut_failed"


class NoClientConnected(SutFailed):
    """The gateway runs, but no client could send traffic through it."""

    code = "nobody_connected"

    def __init__(self, message: str, clients: Sequence[Any], version: str = "") -> None:
        super().__init__(message)
        self.clients = list(clients)
        """The state of each client, as `leadline.sut.model.ClientState`."""
        self.version = version
        """Version of the system; None if unknown."""


class Interrupted(LeadlineError):
    """The user interrupted the run."""

    code = "interrupted"


class DatasetError(LeadlineError):
    """A run folder cannot be read or written. With `is_full`, there is no space for it."""

    code = "dataset"

    def __init__(self, message: str, *, hint: str | None = None, is_full: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_full = is_full


class Unforeseen(LeadlineError):
    """An unexpected exception, which is a defect of Leadline."""

    code = "unforeseen"


LOG_END = "; its log ends: "
"""Before the last lines of a daemon's log in a message; they are its end."""


def without_log(message: str) -> str:
    """A message without the log at its end, for those places that do not need it a second time."""
    return message.partition(LOG_END)[0]


def each_failure(failure: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, including nested groups; an exception that is not a group yields itself."""
    if isinstance(failure, BaseExceptionGroup):
        for below in failure.exceptions:
            yield from each_failure(below)
    else:
        yield failure
