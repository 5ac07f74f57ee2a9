"""The life of a fleet: bring it up, and take it down. Owns that nothing is left of a fleet that did not come up whole.

Removal asks the provider what there is, by the fleet's name: it does not rely on what this process remembers, so it
finds what was created by a request whose answer was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, repeat
from pathlib import Path

from leadline.agents.launchers.cloud.inventory import host_name
from leadline.agents.launchers.cloud.key_files import make_folder, make_key, remove_folder
from leadline.agents.launchers.cloud.model import (
    RESOURCE_PREFIX,
    CloudFailed,
    CloudFleet,
    Machine,
    Offer,
    Provider,
    Refused,
    describe_group,
    format_removal,
    whole_seconds,
)
from leadline.agents.launchers.cloud.ssh_ready import find_answering
from leadline.agents.launchers.cloud.user_data import halt_script
from leadline.errors import InputError, Interrupted, LeadlineError

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 3.0)
"""Between looks at what changes at the provider; the last one is repeated."""
MAX_REMOVAL_S = 600.0
"""How long a removal waits for machines to be gone."""
MAX_START_S = 600.0
"""How long machines may take to run where nothing is said."""
_GROUP_RETRY_S = 60.0
"""How long a security group may stay in use after its machines are gone."""
_SETTLE_S = 15.0
"""How long a removal waits for machines that were asked for and are not listed yet."""
_MAX_LOOKS = 3
"""How often a list of machines is asked for until a provider's failure to give it is one of the fleet."""


@dataclass(slots=True)
class Hooks:
    """What a fleet's life needs of its surroundings."""

    show: Callable[[str], None] = lambda _: None
    """Takes a line of progress."""
    is_stopped: Callable[[], bool] = lambda: False
    """Whether the user wants an end."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    find_answering: Callable[[Sequence[str]], set[str]] = find_answering
    """Takes addresses, and returns those at which SSH answers."""


@dataclass(frozen=True, slots=True)
class FleetUp:
    """A fleet that came up."""

    machines: list[Machine]
    """In the order of their names."""
    end: datetime
    has_own_key: bool
    """Whether the key pair was generated for this fleet."""


@dataclass(slots=True)
class Removal:
    """What a removal did."""

    fleet: str
    machines: int = 0
    groups: int = 0
    keys: int = 0
    addresses: int = 0
    left: list[str] = field(default_factory=list)
    """What is still there, each with the reason."""


def check_free(provider: Provider, name: str) -> None:
    """Check that there is nothing of a fleet of this name. Raises InputError."""
    if any(fleet.name == name for fleet in provider.find_fleets()):
        hint = f"choose another --name, or remove it with: {format_removal(provider, name)}"
        raise InputError(f"--name: there is a fleet {name} already", hint=hint)


def bring_up(
    provider: Provider,
    offer: Offer,
    folder: Path,
    hooks: Hooks,
    *,
    wait_s: float,
    is_kept: bool = False,
    use: Callable[[FleetUp], None] = lambda _: None,
) -> FleetUp:
    """Create a fleet, and wait until all of its machines run and SSH answers on them.

    What was created is removed again if that fails or the user wants an end, unless `is_kept`.

    Args:
        provider: Where.
        offer: What.
        folder: For the fleet's files on this computer.
        hooks: The surroundings.
        wait_s: How long to wait for the machines; 0 does not wait for SSH.
        is_kept: Whether to leave what there is after a failure.
        use: What to do with the fleet; a failure of that is one of the fleet.

    Raises:
        InputError: there is a fleet of this name, or the provider says that something is wrong with the request.
        Interrupted: the user wanted an end.
        KeyboardInterrupt: the user wanted an end at once; nothing is removed.
        CloudFailed: the provider refused, a machine failed, or the time was over.
    """
    name = offer.request.name
    check_free(provider, name)
    make_folder(folder)
    expected = 0
    try:
        end, key, group = _prepare(provider, offer, folder, hooks)
        expected = offer.request.count
        try:
            provider.create_machines(offer, key, group, end, halt_script(name, end, offer.request.ttl_s))
        except (Refused, InputError):
            expected = 0
            raise
        hooks.show(f"{expected} machines of type {offer.request.machine_type} are starting")
        fleet = FleetUp(_await_machines(provider, offer, hooks, wait_s), end, offer.request.key is None)
        use(fleet)
        return fleet
    except KeyboardInterrupt:
        # The user did not want to wait for the removal either.
        raise
    except BaseException:
        if is_kept:
            hooks.show(f"kept, until its end: {format_removal(provider, name)}")
            raise
        hooks.show(f"removing what there is of the fleet {name}")
        removal = take_down(provider, name, hooks, expected=expected)
        if removal.left:
            left = "; ".join(removal.left)
            hooks.show(f"not removed: {left}; remove it with: {format_removal(provider, name)}")
        else:
            remove_folder(folder)
        raise


def take_down(provider: Provider, name: str, hooks: Hooks, *, expected: int = 0) -> Removal:
    """Remove all that there is of a fleet: machines, security group, addresses, key pair. Nothing there is no error.

    Raises no LeadlineError: what could not be removed is in the result. `expected` is the number of machines that were
    asked for: a provider lists them a while later, also those of a request whose answer was lost.
    """
    removal = Removal(name)
    try:
        _remove_machines(provider, removal, hooks, expected)
        fleet = next((one for one in provider.find_fleets() if one.name == name), CloudFleet(name))
    except LeadlineError as failure:
        removal.left.append(f"the fleet {name} ({failure})")
        return removal
    for group in fleet.groups:
        delete = partial(provider.delete_group, group.id)
        removal.groups += _remove(f"the security group {group.id}", delete, removal, hooks)
    for address in fleet.addresses:
        delete = partial(provider.delete_address, address)
        removal.addresses += _remove(f"the floating address {address}", delete, removal, hooks)
    for key in fleet.keys:
        removal.keys += _remove(f"the key pair {key}", partial(provider.delete_key, key), removal, hooks)
    return removal


def _prepare(provider: Provider, offer: Offer, folder: Path, hooks: Hooks) -> tuple[datetime, str, str]:
    """Create what machines need. Returns the fleet's end, the name of its key pair and its security group."""
    request = offer.request
    key = request.key
    if key is None:
        key = f"{RESOURCE_PREFIX}{request.name}"
        provider.import_key(key, make_key(folder, key))
        hooks.show(f"key pair {key}")
    _check_stopped(hooks)
    end = whole_seconds(hooks.now()) + timedelta(seconds=request.ttl_s)
    group = provider.create_group(offer, describe_group(end))
    hooks.show(f"security group {group}")
    _check_stopped(hooks)
    return end, key, group


def _await_machines(provider: Provider, offer: Offer, hooks: Hooks, wait_s: float) -> list[Machine]:
    """Wait until all machines run, have addresses and answer."""
    count = offer.request.count
    is_ssh_awaited = wait_s > 0
    until = hooks.now() + timedelta(seconds=wait_s or MAX_START_S)
    running: set[str] = set()
    answering: set[str] = set()
    for pause_s in _pauses():
        _check_stopped(hooks)
        machines = _list_machines(provider, offer.request.name, hooks)
        names = {machine.id: host_name(place) for place, machine in enumerate(machines)}
        _check_none_failed(machines, names)
        provider.connect_machines(offer, [machine for machine in machines if machine.state == "running"])
        for machine in machines:
            if machine.id not in running and _is_reachable(machine, offer):
                running.add(machine.id)
                hooks.show(f"{names[machine.id]} ({machine.id}) runs, {machine.ssh_address}")
        if is_ssh_awaited:
            asked = {str(one.ssh_address): one.id for one in machines if one.id in running - answering}
            for address in sorted(hooks.find_answering(list(asked)), key=lambda one: names[asked[one]]):
                answering.add(asked[address])
                hooks.show(f"{names[asked[address]]}: SSH answers ({len(answering)} of {count})")
        ready = answering if is_ssh_awaited else running
        if len(machines) == count and ready >= set(names):
            return machines
        if hooks.now() >= until:
            raise CloudFailed(_describe_wait(machines, names, ready, count, wait_s or MAX_START_S))
        hooks.sleep(pause_s)
    raise AssertionError("the pauses have no end")


def _is_reachable(machine: Machine, offer: Offer) -> bool:
    """Whether it runs and has the address that SSH is to use."""
    address = machine.public_address if offer.floating_network is not None else machine.ssh_address
    return machine.state == "running" and address is not None


def _check_none_failed(machines: Sequence[Machine], names: dict[str, str]) -> None:
    """Raise CloudFailed for a machine that will not run any more."""
    for machine in machines:
        if machine.state in ("failed", "ending", "halted"):
            why = f": {machine.fault}" if machine.fault else ""
            raise CloudFailed(f"{names[machine.id]} ({machine.id}) did not start, and is {machine.state}{why}")


def _describe_wait(
    machines: Sequence[Machine], names: dict[str, str], ready: set[str], count: int, wait_s: float
) -> str:
    late = [
        f"{names[one.id]} ({one.state}, {one.ssh_address or 'no address'})" for one in machines if one.id not in ready
    ]
    missing = count - len(machines)
    said = [*late[:10], *([f"{len(late) - 10} more"] if len(late) > 10 else [])]
    said += [f"{missing} that the provider does not list"] if missing > 0 else []
    return f"after {wait_s:.0f} s {len(ready)} of {count} machines are ready; not ready: {', '.join(said)}"


def _check_stopped(hooks: Hooks) -> None:
    if hooks.is_stopped():
        raise Interrupted("stopped before the fleet was up")


def _list_machines(provider: Provider, fleet: str, hooks: Hooks) -> list[Machine]:
    """The machines of a fleet. One answer that does not come is no failure of fifty machines."""
    for pause_s in PAUSES_S[: _MAX_LOOKS - 1]:
        try:
            return provider.list_machines(fleet)
        except CloudFailed as failure:
            hooks.show(f"{failure}; asking again")
            hooks.sleep(pause_s)
    return provider.list_machines(fleet)


def _remove_machines(provider: Provider, removal: Removal, hooks: Hooks, expected: int) -> None:
    """Remove the machines, and wait until they are gone."""
    begin = hooks.now()
    asked: set[str] = set()
    for pause_s in _pauses():
        machines = _list_machines(provider, removal.fleet, hooks)
        passed_s = (hooks.now() - begin).total_seconds()
        if not machines and (len(asked) >= expected or passed_s >= _SETTLE_S):
            break
        if machines and passed_s >= MAX_REMOVAL_S:
            removal.left += [f"the machine {one.id} ({one.state})" for one in machines]
            break
        new = [one for one in machines if one.id not in asked]
        if new:
            try:
                provider.delete_machines([one for one in new if one.state != "ending"])
            except CloudFailed as failure:
                # A provider that is busy, or has no answer once, is asked again until the time for it is over.
                if passed_s >= MAX_REMOVAL_S:
                    raise
                hooks.show(f"{failure}; asking again")
            else:
                asked |= {one.id for one in new}
                hooks.show(f"{len(new)} machines of {removal.fleet} are ending")
        hooks.sleep(pause_s)
    removal.machines = len(asked) - sum(one.startswith("the machine ") for one in removal.left)


def _remove(what: str, remove: Callable[[], None], removal: Removal, hooks: Hooks) -> int:
    """Remove one thing, which may be in use for a while. Returns 1 if it is gone."""
    until = hooks.now() + timedelta(seconds=_GROUP_RETRY_S)
    for pause_s in _pauses():
        try:
            remove()
        except LeadlineError as failure:
            # A group stays in use for a while after its machines.
            if not isinstance(failure, CloudFailed) or hooks.now() >= until:
                removal.left.append(f"{what} ({failure})")
                return 0
        else:
            return 1
        hooks.sleep(pause_s)
    raise AssertionError("the pauses have no end")


def _pauses() -> Iterator[float]:
    return chain(PAUSES_S, repeat(PAUSES_S[-1]))
