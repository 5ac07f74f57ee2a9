"""One tree of exceptions: whose fault it is decides the exit code; the message is the one line that a user reads.

Raise these at the edge where the cause is known; only `cli` turns them into words on stderr and an exit code.

* LeadlineError            1
  - InputError             2   the request was wrong
    + PlanError
    + MissingBinary
  - EnvironmentLimit       2   this machine cannot do what was asked
  - AgentError             1
    + AgentLost
    + TaskFailed
  - LabError               1
  - SutFailed              1
    + NoClientConnected
  - Interrupted            1   the user asked for the end
  - DatasetError           1
  - Unforeseen             1   a defect of ours
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class LeadlineError(Exception):
    """Anything that ends a command or a trial. `hint` says what would be right."""

    exit_code = 1
    code = "failed"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(LeadlineError):
    """What the user gave cannot be right."""

    exit_code = 2
    code = "bad_input"


class PlanError(InputError):
    """A plan is wrong at a known place. Further mistakes of the same plan stand in `others`."""

    code = "bad_plan"

    def __init__(self, file: Path | str, line: int | None, message: str, *, hint: str | None = None) -> None:
        where = f"{file}:{line}" if line is not None else f"{file}"
        super().__init__(f"{where}: {message}", hint=hint)
        self.file = Path(file)
        self.line = line
        self.others: tuple[PlanError, ...] = ()


class MissingBinary(InputError):
    """A program that the request needs is not here."""

    code = "missing_binary"

    def __init__(self, name: str, *, hint: str | None = None) -> None:
        super().__init__(f"{name} is not installed or not executable", hint=hint)
        self.name = name


class EnvironmentLimit(LeadlineError):
    """This machine does not allow what was asked."""

    exit_code = 2
    code = "environment"


class AgentError(LeadlineError):
    """An agent could not do its part."""

    code = "agent"


class AgentLost(AgentError):
    """An agent went away: its process ended, or it fell silent."""

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
        # What only the agent can see to be wrong, such as a cipher that it does not have, is wrong input all the same.
        self.exit_code = InputError.exit_code if of_input else AgentError.exit_code


class LabError(LeadlineError):
    """The lab could not be built."""

    code = "lab"


class SutFailed(LeadlineError):
    """The system under test did not come up, or did not stay up."""

    code = "sut_failed"


class NoClientConnected(SutFailed):
    """The gateway runs, and none of the clients got traffic through it."""

    code = "nobody_connected"

    def __init__(self, message: str, clients: Sequence[Any], version: str = "") -> None:
        super().__init__(message)
        self.clients = list(clients)
        """How far each client came, as `leadline.sut.model.ClientState`."""
        self.version = version
        """Of the system, where it is known."""


class Interrupted(LeadlineError):
    """The user asked for the end."""

    code = "interrupted"


class DatasetError(LeadlineError):
    """A run folder cannot be read or written."""

    code = "dataset"


class Unforeseen(LeadlineError):
    """An exception that nothing here expects: a defect of ours."""

    code = "unforeseen"


def each_failure(failure: BaseException) -> Iterator[BaseException]:
    """The exceptions that a group holds, also in groups inside of it; an exception that is no group is itself all."""
    if isinstance(failure, BaseExceptionGroup):
        for below in failure.exceptions:
            yield from each_failure(below)
    else:
        yield failure
