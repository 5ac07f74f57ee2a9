"""Checks which features that a lab needs this host has, by trying them in temporary namespaces.

Owns the trying. `limits` and `netlink_ops` own the wording of refusals, and `cli` presents the results.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from leadline.errors import LeadlineError
from leadline.lab import jail, kernel, netlink_ops

LINK_FACILITIES = ("netem", "tbf", "nftables")


@dataclass(frozen=True, slots=True)
class Facility:
    """A feature of the host; `has` is None if it is unknown."""

    has: bool | None
    why: str | None = None
    """The reason why it is missing."""
    mend: str | None = None
    """The fix, with the command if there is one."""


def lab() -> Facility:
    """Whether hosts can be created here."""
    found = jail.available()
    message, _, hint = (found.reason or "").partition("; ")
    return Facility(found.possible, message or ("without root" if found.rootless else "as root"), hint or None)


def link_facilities() -> dict[str, Facility]:
    """Whether links can have a delay (netem), a rate (tbf) and drops (nftables)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            out.write(json.dumps(_tried()))
            out.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    os.waitpid(child, 0)
    unknown = {name: {"has": None, "why": "trying it failed"} for name in LINK_FACILITIES}
    return {name: Facility(**one) for name, one in (json.loads(text) if text else unknown).items()}


def _tried() -> dict[str, dict[str, object]]:
    """Runs in its own process, which changes its namespaces; never raises, since no code after it may run."""
    try:
        is_able = kernel.has_capabilities(kernel.CAP_SYS_ADMIN, kernel.CAP_NET_ADMIN)
        kernel.unshare(kernel.CLONE_NEWNET | (0 if is_able else kernel.CLONE_NEWUSER))
        found = {name: _facility(error) for name, error in netlink_ops.try_kernel().items()}
    except (OSError, LeadlineError) as error:
        found = {name: Facility(None, f"no network namespace to try it in: {error}") for name in LINK_FACILITIES}
    except BaseException as error:
        found = {name: Facility(None, f"trying it failed: {error!r}") for name in LINK_FACILITIES}
    return {name: asdict(one) for name, one in found.items()}


def _facility(error: LeadlineError | None) -> Facility:
    return Facility(True) if error is None else Facility(False, error.message, error.hint)
