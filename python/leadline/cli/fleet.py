"""`leadline fleet`: machines of a cloud, for a time: `up`, `list` and `down`."""

from __future__ import annotations

import ipaddress
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leadline.cli import options as o
from leadline.cli.help_format import PanelHelpCommand, PanelHelpGroup, summary
from leadline.cli.output import check_writable, print_all, print_json, print_note, write_option_file
from leadline.errors import InputError, Interrupted
from leadline.quantities import counted

if TYPE_CHECKING:
    from leadline.agents.launchers.cloud.life import FleetUp, Hooks, Removal
    from leadline.agents.launchers.cloud.model import CloudFleet, FleetRequest, Offer, Price, Provider

NAME = "fleet"
EXAMPLE = """\
Example: leadline fleet up --provider aws --count 50 --type m7i.large --ttl 2h

    leadline fleet list --provider aws --region eu-central-1
    leadline fleet down --provider aws --all-expired
"""
EXAMPLE_UP = """\
Example: leadline fleet up --provider aws --count 50 --type m7i.large --ttl 2h

    leadline fleet up --provider openstack --count 4 --type m1.small --name lab
    leadline fleet up --provider aws --count 2 --type c7g.large --from 198.51.100.7/32
"""
EXAMPLE_LIST = "Example: leadline fleet list --provider aws --region eu-central-1"
EXAMPLE_DOWN = """\
Example: leadline fleet down lab --provider openstack

    leadline fleet down --provider aws --all-expired
"""
ANYWHERE = "0.0.0.0/0"
MAX_MACHINES = 500
_SLICE_S = 0.1
"""How late a signal may be noticed in a pause."""

app = typer.Typer(
    cls=PanelHelpGroup,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
)

ProviderName = Annotated[Literal["aws", "openstack"], typer.Option("--provider", help="Whose machines.")]
Region = Annotated[
    str | None,
    typer.Option(
        help="Region of the provider. Default: AWS_REGION or OS_REGION_NAME, or the profile's.", metavar="NAME"
    ),
]


@app.callback()
def command() -> None:
    """Create, list and remove machines of a cloud. Each halts itself at its end.

    By Apache libcloud, in the extra leadline[cloud]. Credentials come from where the provider's own tools have them:
    AWS_* variables and ~/.aws, OS_* variables and clouds.yaml. A fleet is known by the tags of its machines, so it can
    be listed and removed from any computer.
    """


def up(
    provider: ProviderName,
    count: Annotated[int, typer.Option(min=1, max=MAX_MACHINES, help="Number of machines.")],
    machine_type: Annotated[str, typer.Option("--type", help="Type of the machines, as m7i.large.", metavar="NAME")],
    ttl: Annotated[str, typer.Option(help="Time to live: each machine halts itself then.", metavar="TIME")] = "1h",
    name: Annotated[
        str | None, typer.Option(help="Name of the fleet. Default: by date and time.", show_default=False)
    ] = None,
    region: Region = None,
    arch: Annotated[
        Literal["x86_64", "aarch64"] | None, typer.Option(help="Architecture. Default: that of the type.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Image. Default: the newest of Debian, else Ubuntu.", metavar="ID")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="User of the image for SSH. Default: its distribution's.", metavar="NAME")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Key pair of the provider. Default: one is generated.", metavar="NAME")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="VPC or network. Default: the provider's default.", metavar="ID")
    ] = None,
    subnet: Annotated[str | None, typer.Option(help="Subnet, on AWS. Default: one of the VPC.", metavar="ID")] = None,
    floating_network: Annotated[
        str | None,
        typer.Option(help="On OpenStack: network that gives each machine an address for SSH.", metavar="ID"),
    ] = None,
    ssh_from: Annotated[
        str,
        typer.Option("--from", help="IPv4 network that SSH is open to.", metavar="CIDR"),
    ] = ANYWHERE,
    spot: Annotated[bool, typer.Option("--spot", help="Spot machines, which AWS may end at any time.")] = False,
    wait: Annotated[
        str, typer.Option(help="Wait this long for SSH on all machines; 0 s: do not wait.", metavar="TIME")
    ] = "10m",
    keep: Annotated[bool, typer.Option("--keep", help="Leave what there is if something fails.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Create without asking.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Inventory to write. Default: fleet-NAME.yaml.", show_default=False)
    ] = None,
    json: o.Json = False,
) -> int:
    """Create machines, wait for SSH on them, and write an inventory for --hosts.

    The price is shown first, and nothing is created without a yes. What was created is removed again if something
    fails or Ctrl-C ends it. Each machine halts itself at its end: AWS then removes it; on OpenStack it stays and costs
    until `leadline fleet down`.

    SSH is open to the network of --from, by default to all addresses: the images accept keys alone. The machines reach
    each other on all ports.
    """
    from leadline.agents.launchers.cloud.life import check_free

    request = _request(
        name if name is not None else _new_name(),
        count,
        machine_type,
        ttl,
        ssh_from,
        arch=arch,
        image=image,
        user=user,
        key=key,
        network=network,
        subnet=subnet,
        is_spot=spot,
        floating_network=floating_network,
    )
    wait_s = _seconds("--wait", wait)
    inventory = out if out is not None else Path(f"fleet-{request.name}.yaml")
    check_writable("--out", inventory)
    _check_answerable(yes)
    found = _provider(provider, region)
    check_free(found, request.name)
    offer = found.offer(request)
    for line in _offer_lines(offer, found):
        print_note(line)
    if not yes and not _ask():
        print_note("nothing was created")
        return 130
    return _create(found, offer, inventory, wait_s, is_kept=keep, json=json)


def list_fleets(provider: ProviderName, region: Region = None, json: o.Json = False) -> int:
    """List the fleets of a provider and region, with what they have cost so far.

    Prices are the on-demand prices of libcloud's list for the machines alone; `not known` where it has none.
    """
    from rich.table import Table

    found = _provider(provider, region)
    now = datetime.now(UTC)
    fleets = found.find_fleets()
    prices = {one.machine_type: found.find_price(one.machine_type) for fleet in fleets for one in fleet.machines}
    rows = [_fleet_document(fleet, prices, now) for fleet in fleets]
    if json:
        print_json({"schema": "leadline.fleets/1", "provider": found.name, "region": found.region, "fleets": rows})
        return 0
    if not rows:
        print_note(f"{_where(found)} has no fleet")
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("fleet", "machines", "type", "state", "age", "time left", "so far"):
        table.add_column(title)
    for row in rows:
        table.add_row(*_fleet_cells(row))
    print_all([table])
    if any(row["is_expired"] for row in rows):
        print_note(f"expired: leadline fleet down --all-expired --provider {provider}{_region_words(found.region)}")
    return 0


def down(
    provider: ProviderName,
    name: Annotated[str | None, typer.Argument(help="Name of the fleet.", show_default=False)] = None,
    region: Region = None,
    all_expired: Annotated[bool, typer.Option("--all-expired", help="All fleets whose end has passed.")] = False,
    json: o.Json = False,
) -> int:
    """Remove the machines, the security group and the generated key pair of a fleet.

    It may be repeated: nothing being there is no error. Exit code 1: something could not be removed, and is named.
    """
    from leadline.agents.launchers.cloud.key_files import fleet_folder, remove_folder
    from leadline.agents.launchers.cloud.life import take_down
    from leadline.agents.launchers.cloud.model import check_name

    if (name is None) != all_expired:
        raise InputError("leadline fleet down: name one fleet, or --all-expired")
    if name is not None:
        check_name(name)
    found = _provider(provider, region)
    now = datetime.now(UTC)
    # Asked for a name that is given, too: an account that may not ask is bad input.
    fleets = found.find_fleets()
    names = [fleet.name for fleet in fleets if fleet.is_expired(now)] if name is None else [name]
    signals = _Signals("ending after this fleet (Ctrl-C again: at once)")
    removals: list[Removal] = []
    with signals.caught():
        for one in names:
            if signals.is_asked:
                break
            removals.append(take_down(found, one, signals.hooks()))
            if not removals[-1].left:
                remove_folder(fleet_folder(found, one))
    return _finish_down(found, removals, is_stopped=signals.is_asked and len(removals) < len(names), json=json)


for _name, _function, _example in (
    ("up", up, EXAMPLE_UP),
    ("list", list_fleets, EXAMPLE_LIST),
    ("down", down, EXAMPLE_DOWN),
):
    app.command(_name, cls=PanelHelpCommand, short_help=summary(_function.__doc__), epilog=_example)(_function)


def _provider(name: str, region: str | None) -> Provider:
    """The account that the environment has, at a provider."""
    from leadline.agents.launchers.cloud.calls import check_installed

    check_installed()
    if name == "aws":
        from leadline.agents.launchers.cloud.aws import Aws
        from leadline.agents.launchers.cloud.aws_account import read_aws_account

        return Aws(read_aws_account(region))
    from leadline.agents.launchers.cloud.openstack import OpenStack
    from leadline.agents.launchers.cloud.openstack_account import read_openstack_account

    return OpenStack(read_openstack_account(region))


def _new_name() -> str:
    """A name that no other fleet of the account has, and that says when it was made."""
    return f"{datetime.now(UTC):%m%d-%H%M}-{secrets.token_hex(2)}"


def _request(name: str, count: int, machine_type: str, ttl: str, ssh_from: str, **others: Any) -> FleetRequest:
    from leadline.agents.launchers.cloud.model import MAX_TTL_S, MIN_TTL_S, RESOURCE_PREFIX, FleetRequest, check_name

    ttl_s = _seconds("--ttl", ttl)
    if not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
        raise InputError(f"--ttl: {ttl} is not in its limits", hint="10 min to 168 h")
    if (others["key"] or "").startswith(RESOURCE_PREFIX):
        raise InputError(f"--key: {others['key']} is a fleet's own", hint="name a key pair of your own")
    try:
        network = ipaddress.IPv4Network(ssh_from)
    except ValueError as error:
        raise InputError(f"--from: {error}", hint="write an IPv4 network, as 198.51.100.7/32") from None
    return FleetRequest(check_name(name), count, machine_type, ttl_s, str(network), **others)


def _seconds(option: str, text: str) -> int:
    from leadline.plan import units

    try:
        return -(-units.duration_ms(text) // 1000)
    except units.UnitError as error:
        raise InputError(f"{option}: {error}") from None


def _check_answerable(is_agreed: bool) -> None:
    """Check that a user can say yes, before anything is asked of a provider."""
    if not is_agreed and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            "leadline fleet up asks before it creates machines, and there is no terminal", hint="add --yes"
        )


def _ask() -> bool:
    print("leadline: create them? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _offer_lines(offer: Offer, provider: Provider) -> Iterator[str]:
    """What would be created, and what it costs."""
    request = offer.request
    arch = f" ({offer.arch})" if offer.arch else ""
    kind = "spot machines" if request.is_spot else "machines"
    yield f"the fleet {request.name}: {request.count} {kind} of type {request.machine_type}{arch}, {_where(provider)}"
    yield f"image {offer.image.name} ({offer.image.id}; {offer.image.owner}), user {offer.image.user}"
    who = "all addresses (--from narrows it)" if request.ssh_from == ANYWHERE else request.ssh_from
    yield f"network {offer.network}{f', subnet {offer.subnet}' if offer.subnet else ''}; SSH is open to {who}"
    yield f"each halts itself after {_length(request.ttl_s)}" + (
        " and is removed by the provider then"
        if provider.ends_halted
        else "; it stays and costs until `leadline fleet down`"
    )
    yield _price_line(offer.price, request.count, request.ttl_s, is_spot=request.is_spot)


def _price_line(price: Price | None, count: int, ttl_s: int, *, is_spot: bool) -> str:
    if price is None:
        return "price: not known to libcloud's list; ask the provider"
    together = price.usd_per_hour * count
    most = "at most " if is_spot else ""
    return (
        f"price: {most}{price.usd_per_hour:.4f} USD/h each, {together:.2f} USD/h together, "
        f"{together * ttl_s / 3600:.2f} USD until the end "
        f"(list of {price.as_of}; disks, traffic and public addresses come on top)"
    )


def _create(provider: Provider, offer: Offer, inventory: Path, wait_s: int, *, is_kept: bool, json: bool) -> int:
    """Create the fleet, write its files, and tell how to go on."""
    from leadline.agents.launchers.cloud.inventory import host_name, render_inventory
    from leadline.agents.launchers.cloud.key_files import SSH_CONFIG, fleet_folder, write_ssh_config
    from leadline.agents.launchers.cloud.life import bring_up
    from leadline.agents.launchers.cloud.model import format_removal, format_time

    name, user = offer.request.name, offer.image.user
    folder = fleet_folder(provider, name)

    def write_files(fleet: FleetUp) -> None:
        addresses = [(host_name(place), str(one.ssh_address)) for place, one in enumerate(fleet.machines)]
        config = write_ssh_config(folder, user, addresses)
        notes = [f"{_where(provider)}, fleet {name}, until {format_time(fleet.end)}"]
        write_option_file("--out", inventory, render_inventory(fleet.machines, user, notes, config))

    signals = _Signals("ending; what was created is removed (Ctrl-C again: leave it, until its end)")
    try:
        with signals.caught():
            fleet = bring_up(provider, offer, folder, signals.hooks(), wait_s=wait_s, is_kept=is_kept, use=write_files)
    except Interrupted:
        return 130
    except KeyboardInterrupt:
        print_note(f"what is left: {format_removal(provider, name)}")
        raise
    count = counted(offer.request.count, "machine")
    print_note(f"{count} until {format_time(fleet.end)}; inventory: {inventory}")
    print_note(f"for ssh, in the first line of ~/.ssh/config: Include {folder / SSH_CONFIG}")
    if json:
        print_json(_up_document(provider, offer, fleet, folder, inventory))
    return 0


def _up_document(provider: Provider, offer: Offer, fleet: FleetUp, folder: Path, inventory: Path) -> dict[str, Any]:
    from leadline.agents.launchers.cloud.inventory import host_name
    from leadline.agents.launchers.cloud.key_files import KEY, SSH_CONFIG
    from leadline.agents.launchers.cloud.model import format_time

    request = offer.request
    return {
        "schema": "leadline.fleet/1",
        "provider": provider.name,
        "region": provider.region,
        "name": request.name,
        "type": request.machine_type,
        "is_spot": request.is_spot,
        "image": {"id": offer.image.id, "name": offer.image.name, "owner": offer.image.owner},
        "end": format_time(fleet.end),
        "ttl_s": request.ttl_s,
        "ssh_from": request.ssh_from,
        "price": _price_document(offer),
        "inventory": str(inventory),
        "key": str(folder / KEY) if fleet.has_own_key else None,
        "ssh_config": str(folder / SSH_CONFIG),
        "machines": [
            {
                "name": host_name(place),
                "id": one.id,
                "ssh": f"{offer.image.user}@{one.ssh_address}",
                "address": one.address,
            }
            for place, one in enumerate(fleet.machines)
        ],
    }


def _price_document(offer: Offer) -> dict[str, Any]:
    price, count = offer.price, offer.request.count
    each = None if price is None else price.usd_per_hour
    return {
        "usd_per_machine_hour": each,
        "usd_per_hour": None if each is None else each * count,
        "usd_until_end": None if each is None else each * count * offer.request.ttl_s / 3600,
        "as_of": None if price is None else price.as_of,
    }


def _finish_down(provider: Provider, removals: Sequence[Removal], *, is_stopped: bool, json: bool) -> int:
    for one in removals:
        parts = [(one.machines, "machine"), (one.groups, "security group"), (one.keys, "key pair")]
        parts += [(one.addresses, "floating IP")]
        done = ", ".join(counted(number, word) for number, word in parts if number)
        if done or not one.left:
            print_note(f"{one.fleet}: " + (f"removed {done}" if done else f"{_where(provider)} has nothing of it"))
        for left in one.left:
            print_note(f"{one.fleet}: not removed: {left}")
    if not removals and not is_stopped:
        print_note(f"{_where(provider)} has no expired fleet")
    if json:
        fleets = [
            {
                "name": one.fleet,
                "machines": one.machines,
                "security_groups": one.groups,
                "key_pairs": one.keys,
                "floating_ips": one.addresses,
                "left": one.left,
            }
            for one in removals
        ]
        print_json(
            {"schema": "leadline.fleet-down/1", "provider": provider.name, "region": provider.region, "fleets": fleets}
        )
    if is_stopped:
        return 130
    return int(any(one.left for one in removals))


def _fleet_document(fleet: CloudFleet, prices: dict[str, Price | None], now: datetime) -> dict[str, Any]:
    """A fleet in the list; what is not known is None."""
    from leadline.agents.launchers.cloud.model import format_time
    from leadline.agents.launchers.cloud.prices import cost_per_hour, cost_so_far

    states = sorted(machine.state for machine in fleet.machines)
    return {
        "name": fleet.name,
        "machines": len(fleet.machines),
        "types": sorted({machine.machine_type for machine in fleet.machines}),
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "created": format_time(fleet.created) if fleet.created else None,
        "age_s": round((now - fleet.created).total_seconds()) if fleet.created else None,
        "end": format_time(fleet.end) if fleet.end else None,
        "ttl_left_s": max(0, round((fleet.end - now).total_seconds())) if fleet.end else None,
        "is_expired": fleet.is_expired(now),
        "usd_per_hour": cost_per_hour(fleet, prices),
        "usd_so_far": cost_so_far(fleet, prices, now),
    }


def _fleet_cells(row: dict[str, Any]) -> Iterator[str]:
    yield row["name"]
    yield str(row["machines"])
    yield ", ".join(row["types"])
    yield ", ".join(f"{number} {state}" for state, number in row["states"].items()) or "leftovers"
    yield "not known" if row["age_s"] is None else _length(row["age_s"])
    left = "not known" if row["ttl_left_s"] is None else _length(row["ttl_left_s"])
    yield "expired" if row["is_expired"] else left
    yield "not known" if row["usd_so_far"] is None else f"{row['usd_so_far']:.2f} USD"


def _length(seconds: int) -> str:
    """2 h 5 min"""
    hours, minutes = divmod(round(seconds / 60), 60)
    words = [f"{hours} h"] if hours else []
    return " ".join([*words, *([f"{minutes} min"] if minutes or not hours else [])])


def _where(provider: Provider) -> str:
    return f"{provider.name} in {provider.region}" if provider.region else provider.name


def _region_words(region: str | None) -> str:
    return f" --region {region}" if region else ""


class _Signals:
    """Ctrl-C, SIGTERM and SIGHUP while a fleet changes: the first asks for an end between two steps, so that no request
    is cut off whose effect would not be known; the second ends at once."""

    def __init__(self, note: str) -> None:
        self.is_asked = False
        self._note = note

    def hooks(self) -> Hooks:
        """What the life of a fleet needs: progress goes to stderr."""
        from leadline.agents.launchers.cloud.life import Hooks

        return Hooks(show=print_note, is_stopped=lambda: self.is_asked, sleep=self._sleep)

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals while the block runs; those that were ignored before stay ignored."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        try:
            yield
        finally:
            for number in numbers:
                signal.signal(number, before[number])

    def _sleep(self, seconds: float) -> None:
        """Sleep; the first signal cuts a sleep short that began before it."""
        was_asked = self.is_asked
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self.is_asked == was_asked:
            time.sleep(min(left, _SLICE_S))

    def _ask(self, _number: int, _frame: object) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        print_note(self._note)
