"""Runs `leadline http`: one measurement, or a search for the highest rate that a server sustains."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from leadline.cli import single_args
from leadline.cli.kind_command import measure
from leadline.cli.no_host import IPV4, IPV6, own_server, refuse_without_host
from leadline.errors import InputError
from leadline.kinds.http import args
from leadline.kinds.http.model import HttpTest
from leadline.kinds.http.options import COMMAND
from leadline.masking import mask_text
from leadline.plan.options import test_values

if TYPE_CHECKING:
    from leadline.cli.single_args import OutputOptions
    from leadline.contract.models import HttpWorkload


def run(options: Mapping[str, Any]) -> int:
    """Run the measurement that the options describe (by their names in code), print it, and return the exit code."""
    read = parse_options(options)
    with read.serving() as aimed:
        load, output = aimed.load, aimed.output
        if output.find_rate is not None:
            return _search(read.test, load, output.find_rate, output)
        return measure(read.test, load, output)


def _search(test: HttpTest, load: HttpWorkload, conditions: str, output: OutputOptions) -> int:
    """Search for the highest rate of requests."""
    from leadline.analysis.capacity import Conditions
    from leadline.cli import run_search
    from leadline.kinds.http.search import HttpSearchTarget

    run_search.check(output, "--find-rate")
    read = Conditions.read(conditions, test.name, test.kind)
    return run_search.finish(HttpSearchTarget(test, load, read, ["leadline", *sys.argv[1:]]), output)


@dataclass(frozen=True, slots=True)
class HttpArgs:
    """The options of one measurement, read and checked."""

    test: HttpTest
    origin: args.Origin
    """The server's; without a URL, the loopback's, whose port `serving` finds."""
    family: Literal["v4", "v6"] | None
    output: OutputOptions

    @property
    def load(self) -> HttpWorkload:
        """The load on that server."""
        from leadline.kinds.http.workload import http_workload

        return http_workload(self.test, self.origin.host, self.origin.port, self.family)

    @contextmanager
    def serving(self) -> Iterator[HttpArgs]:
        """Give these options a server: without a URL, this machine's own while the block runs."""
        if self.output.target:
            yield self._checked_by_second_tool()
            return
        output = self.output
        with own_server(ipv6=self.family == "v6", is_document=output.is_document, what="URL") as server:
            origin = replace(self.origin, port=server.http_port)
            own = replace(self, origin=origin, output=replace(output, target=origin.url))
            yield own._checked_by_second_tool()

    def _checked_by_second_tool(self) -> HttpArgs:
        """Add the command lines of the second tool, which name the server."""
        from leadline.trial.workloads import Server

        port = self.origin.effective_port
        server = Server(self.origin.host, family=self.family or "any", http_port=port, https_port=port)
        return replace(self, output=replace(self.output, second_tool=single_args.second_tool(self.test, server)))


def parse_options(options: Mapping[str, Any]) -> HttpArgs:
    """The test, its server and its output, from the options by their names in code.

    Raises:

        InputError: what is wrong with the options, one line each.
    """
    mistakes = single_args.Mistakes()
    with mistakes:
        _check(options)
    with mistakes:
        origin = _own_origin(options) if options["url"] is None else args.parse_origin(options["url"])
        test = single_args.parse(HttpTest, _test_values(options, origin), COMMAND.flags)
    with mistakes:
        interval_ms = single_args.interval(options)
    with mistakes:
        precision = single_args.precision(options)
    with mistakes:
        family = single_args.family(options["ipv4"], options["ipv6"])
    with mistakes:
        single_args.check_targets("http", "http", options["target"])
    mistakes.raise_all()
    if family and test.unix_socket is not None:
        raise InputError(f"--ip{family} and --unix-socket exclude each other", hint="a Unix socket has no address")
    output = single_args.OutputOptions(
        mask_text(options["url"] or "", test.keep_headers),
        options["json"],
        options["out"],
        options["target"] or [],
        hdr=options["hdr"],
        format=options["output_format"],
        stop_on_miss=options["stop_on_miss"],
        calibrate=not options["no_calibrate"],
        find_rate=options["find_rate"],
        interval_ms=interval_ms,
        precision=precision,
        verbose=options["verbose"],
    )
    single_args.refuse_with_precision(output)
    return HttpArgs(test, origin, family, output)


def _own_origin(options: Mapping[str, Any]) -> args.Origin:
    """The origin of this machine's own server, whose port is not known yet.

    Raises:
        InputError: an option concerns the way to another server.
    """
    ways = [option for option in COMMAND.options if option.panel == "TLS" or option.flag in _WAYS_TO_URL]
    refuse_without_host({f"--{way.flag}": options[way.name] not in (None, way.default) for way in ways}, "URL")
    return args.Origin("http", IPV6 if options["ipv6"] else IPV4, None, "/")


def _check(options: Mapping[str, Any]) -> None:
    """Check rules that the test's model does not know, and those about options that end a measurement."""
    if options["rest"] and options["script"] is None:
        raise InputError(
            f"{options['rest'][0]!r} is an argument for a script, but no script is given", hint="see --script"
        )
    single_args.refuse_two_documents(options)
    if options["find_rate"] is not None and options["interval"] is not None:
        raise InputError("--find-rate and --interval exclude each other", hint="a search prints its trials")
    if options["find_rate"] is not None and options["cross_check"] is not None:
        raise InputError("--find-rate and --cross-check exclude each other", hint="the other tools search for no rate")
    if options["find_rate"] is not None and options["stop_on_miss"]:
        raise InputError(
            "--find-rate and --stop-on-miss exclude each other", hint="the trials of a search are never cut short"
        )


def _test_values(options: Mapping[str, Any], origin: args.Origin) -> dict[str, Any]:
    """The test's keys and values. Raises InputError for a value that cannot be read."""
    entries = args.entries(options["urls"], origin) if options["urls"] is not None else None
    if entries is not None and origin.path not in ("", "/"):
        raise InputError(
            "--urls beside a URL with a path", hint="every line has its own path; write http://HOST[:PORT]"
        )
    proxy = args.proxy(options["proxy"])
    if options["resolve"]:
        args.check_names(options["resolve"], origin, proxy)
    found = test_values(COMMAND.options, options)
    if "tls" in found and origin.scheme == "http":
        flag = COMMAND.flags[f"tls.{next(iter(found['tls']))}"]
        raise InputError(f"--{flag} with an http:// URL", hint="TLS is for https:// URLs")
    path = None if entries is not None else origin.path or "/"
    return {"name": "http", "scheme": origin.scheme, "path": path, "urls": entries, "proxy": proxy, **found}


_WAYS_TO_URL = frozenset({"bind", "proxy", "resolve", "unix-socket"})
