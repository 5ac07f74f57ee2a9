"""What the command of a kind with a control session reads: a test, a server, and how well figures are to be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.cli import single_args
from leadline.cli.iperf3_login import login_of
from leadline.cli.iperf3_options import iperf3_options_of
from leadline.plan.options import test_values

if TYPE_CHECKING:
    from leadline.plan.options import Command
    from leadline.plan.repeats import PrecisionGoal
    from leadline.trial.workloads import Server


@dataclass(frozen=True, slots=True)
class SessionArgs:
    """The options of one measurement, read and checked."""

    test: Any
    server: Server
    precision: PrecisionGoal | None


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
    from leadline.trial.workloads import Server

    server = Server(values["host"], values["port"], key, values["bind"], family or "any", login=login, iperf3=iperf3)
    return SessionArgs(test, server, precision)
