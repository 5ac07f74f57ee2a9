"""The meaning of charon's log lines for a client that is not fully connected. Pure: text in, one cause out.

The texts are those of 5.9; a line that is not in the table is still quoted with the end of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SCRIPT = "leadline"
"""The name of the daemon's start script, which stands before each line that the script prints."""
DONE, FAILED = "swanctl is done", "swanctl failed"
"""What the script prints last: everything is loaded and, at a client, connected; or not."""
READY, REFUSED = f"{SCRIPT}: {DONE}", f"{SCRIPT}: {FAILED}"
"""The same in charon's log, which has the script's own text, too."""
LOADED_PLUGINS = "loaded plugins:"
IKE_IS_UP = "established between"
"""The gateway and the client have authenticated each other; an address and the tunnel may still be missing."""

_OF_CLIENT = (
    ("MAC mismatched", "the pre-shared keys differ"),
    ("no shared key found", "the gateway has no pre-shared key for it"),
    ("no trusted", "its certificate was refused"),
    ("is full, unable to assign address", "the gateway's address pool is used up"),
    ("no virtual IP found for", "the gateway's address pool is used up"),
)
"""What the gateway logs with a client's name."""
_OF_GATEWAY = (
    ("ESN not supported", "kernel-libipsec has no extended sequence numbers"),
    ("unable to install", "the gateway's data plane refuses the tunnel"),
)
"""What the gateway logs of its own end of a tunnel, without a client's name."""
_OWN = (
    ("failed to create TUN device", "it cannot create its tunnel device"),
    ("unable to bind socket", "its port is in use"),
    ("not recognized", "it does not know an algorithm"),
    ("invalid value for:", "it refuses its configuration"),
    ("URI failed", "swanctl cannot reach it"),
    ("no trusted", "the gateway's certificate was refused"),
    ("no private key found", "it has no private key"),
    ("EAP-MS-CHAPv2 failed with error", "the gateway refused its password"),
    ("received TS_UNACCEPTABLE", "the gateway accepts none of its networks"),
)
"""What a daemon logs of itself. Ordered by how much they explain: of several lines, the one highest in this list is the
cause."""
_SYMPTOMS = (
    ("received INTERNAL_ADDRESS_FAILURE", "the gateway has no address for it"),
    ("received FAILED_CP_REQUIRED", "the gateway has no address for it"),
    ("received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built", "there is no common ESP proposal"),
    ("received NO_PROPOSAL_CHOSEN notify error", "there is no common IKE proposal"),
    ("no CHILD_SA built", "the gateway refused the tunnel"),
    ("received AUTHENTICATION_FAILED", "the gateway refused it"),
    ("retransmit ", "no answer from the gateway"),
    ("not established after", "no answer from the gateway"),
)
"""What a client sees of a refusal, whose cause only the gateway knows."""
_OFFERED, _CONFIGURED = "received proposals: ", "configured proposals: "
"""What the gateway logs of proposals that have nothing in common."""

_REPORTED = (*_OF_CLIENT, *_OF_GATEWAY, *_OWN, *_SYMPTOMS)
REPORT = (READY, REFUSED, LOADED_PLUGINS, IKE_IS_UP, _OFFERED, _CONFIGURED, *(marker for marker, _ in _REPORTED))
"""The texts that an agent reports from either end's output."""

_PREFIX = re.compile(rf"^\d+\[[A-Z]+\]\s+(?:{SCRIPT}: )?(?:\[[A-Z]+\]\s+)?")
"""charon's thread and subsystem, and the script that repeats a line of the daemon."""


def own_cause(lines: Iterable[str]) -> str | None:
    """What prevents a daemon from connecting, by its own log; None if no line explains it."""
    return _first_known(list(lines), _OWN)


def symptom(lines: Iterable[str]) -> str | None:
    """What a client saw of a refusal."""
    return _first_known(list(lines), _SYMPTOMS)


def gateway_cause(said: Iterable[str], name: str, symptoms: str | None) -> str | None:
    """Why the gateway refused a client, by the gateway's log; None if it says nothing of it. Lines without a client's
    name count only for a client that saw a refusal: `symptoms` is what `symptom` returned."""
    lines = list(said)
    named = _first_known([line for line in lines if f"'{name}'" in line], _OF_CLIENT)
    if named is not None or symptoms is None:
        return named
    return _first_known(lines, _OF_GATEWAY) or _differing_proposals(lines, "ESP" if "ESP" in symptoms else "IKE")


def _differing_proposals(lines: list[str], protocol: str) -> str | None:
    offered = _last_after(lines, f"{_OFFERED}{protocol}:")
    configured = _last_after(lines, f"{_CONFIGURED}{protocol}:")
    if offered is None or configured is None:
        return None
    return f"there is no common {protocol} proposal: it offers {offered}, the gateway has {configured}"


def _last_after(lines: list[str], marker: str) -> str | None:
    return next((line.partition(marker)[2].strip() for line in reversed(lines) if marker in line), None)


def missing_plugins(lines: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...] | None:
    """Plugins that the daemon has not loaded; None if it has not said yet what it loaded."""
    said = next((line for line in lines if LOADED_PLUGINS in line), None)
    if said is None:
        return None
    loaded = set(said.partition(LOADED_PLUGINS)[2].split())
    return tuple(name for name in wanted if name not in loaded)


def unstamped(line: str) -> str:
    """The line without thread and subsystem."""
    return _PREFIX.sub("", line).strip()


def _first_known(lines: list[str], causes: Iterable[tuple[str, str]]) -> str | None:
    for marker, meaning in causes:
        for line in lines:
            if marker in line:
                return f"{meaning}: {unstamped(line)}"
    return None
