"""What the command of a kind with a control session reads: a test, a server, and how well figures are to be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.cli import single_args
from leadline.cli.iperf3_login import login_of
from leadline.cli.iperf3_options import iperf3_options_of
from leadline.cli.no_host import own_server, refuse_without_host
from leadline.plan.options import test_values

if TYPE_CHECKING:
    from leadline.plan.options import Command
    from leadline.plan.repeats import PrecisionGoal
    from leadline.trial.workloads import Server


@dataclass(frozen=True, slots=True)
class SessionArgs:
    """The options of one measurement, read and checked."""

    test: Any
    server: Server | None
    """None if no host is named: `serving` has one."""
    precision: PrecisionGoal | None
    ipv6: bool
    """Whether IPv6 alone is asked for."""

    @contextmanager
    def serving(self, *, is_document: bool) -> Iterator[Server]:
        """Give the server that is named; without one, this machine's own while the block runs. `is_document`: stdout
        has room for a document alone."""
        if self.server is not None:
            yield self.server
            return
        with own_server(ipv6=self.ipv6, is_document=is_document) as server:
            yield server


def read(
    name: str,
    command: Command,
    values: Mapping[str, Any],
    *checks: Callable[[], Any],
    check_test: Callable[[Any], None] | None = None,
) -> SessionArgs:
    """Read the options of the command of the kind `name`. The checks may raise InputError too.

    Raises:
        InputError: something is wrong; it lists every mistake.
    """
    mistakes = single_args.Mistakes()
    test = family = key = login = iperf3 = precision = None
    with mistakes:
        given = test_values(command.options, values)
        test = single_args.parse(command.model, {"name": name, **given}, command.flags)
        if check_test is not None:
            check_test(test)
    with mistakes:
        if values["host"] is None:
            refuse_without_host(_ways_to_host(command, values))
        else:
            single_args.host(values["host"])
    for check in checks:
        with mistakes:
            check()
    with mistakes:
        precision = single_args.precision(values)
    with mistakes:
        family = single_args.family(values["ipv4"], values["ipv6"])
    with mistakes:
        key = single_args.key_of(values["key_file"])
    with mistakes:
        login = login_of(values)
    with mistakes:
        iperf3 = iperf3_options_of(values)
    with mistakes:
        single_args.check_targets(name, name, values["target"])
    mistakes.raise_all()
    if values["host"] is None:
        return SessionArgs(test, None, precision, family == "v6")
    from leadline.trial.workloads import Server

    server = Server(values["host"], values["port"], key, values["bind"], family or "any", login=login, iperf3=iperf3)
    return SessionArgs(test, server, precision, family == "v6")


def _ways_to_host(command: Command, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say how to reach a host, and what program answers there, by their flags."""
    port = next(option.default for option in command.options if option.name == "port")
    return {
        "--peer iperf3": values.get("peer") == "iperf3",
        "--bind": values["bind"],
        "--port": values["port"] != port,
        "--key-file": values["key_file"],
    }
