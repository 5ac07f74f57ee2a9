"""`leadline record`: records what passes through a proxy, and writes it as a scenario or a HAR file."""

from __future__ import annotations

import os
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline.cli import options as o
from leadline.cli.output import check_writable, print_json, print_note, write_option_stream
from leadline.cli.trailing_command import TrailingCommand, command_after_dashes
from leadline.errors import InputError, LeadlineError

if TYPE_CHECKING:
    from leadline.recording.journal import Recording
    from leadline.recording.session import Progress, ProxyOptions

NAME = "record"
EXAMPLE = """\
Example: leadline record -o shop.yaml -- curl -s http://127.0.0.1:8080/

    leadline record -o shop.har --only-host shop.test --for 30s
    leadline record -o shop.yaml -- chromium http://127.0.0.1:8080/
"""
PORT = 8888
_MAX_BODY_BYTES = 256 * 2**20
_MAX_HAR_BYTES = 64 * 2**20
"""Size of a HAR file that other commands read."""


class _RecordCommand(TrailingCommand):
    example = "leadline record -o shop.yaml -- curl http://127.0.0.1:8080/"


CLASS = _RecordCommand


def command(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write; .har: a HAR file. Default: the scenario on stdout."),
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", help="End after this time. Default: Ctrl-C.", metavar="TIME")
    ] = None,
    bind: Annotated[str, typer.Option("--bind", help="Address at which the proxy listens.", metavar="ADDR")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help=f"Its port. Default: {PORT}; for a command any free one.", metavar="PORT"),
    ] = None,
    only_host: Annotated[
        list[str] | None,
        typer.Option(help="Record this host and its subdomains alone; repeatable.", metavar="HOST"),
    ] = None,
    max_body: Annotated[
        str, typer.Option(help="Size above which a body is not kept; its bytes are counted.", metavar="SIZE")
    ] = "4MiB",
    correlate: Annotated[bool, typer.Option(help="Take values from the answers that gave them.")] = True,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="Authorities that servers' certificates are checked against.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Accept any certificate of a server.")] = False,
    ca_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the proxy's own authority, for its user alone. Default: kept in ~/.local/share."),
    ] = None,
    recover: Annotated[
        Path | None, typer.Option(help="Write what a recorder that was killed left in its journal.")
    ] = None,
    json: o.Json = False,
) -> int:
    """Record a browser or another client as a scenario or HAR file.

    The client sends its requests through a proxy: mitmproxy, in the extra leadline[record]. Pages become transactions,
    pauses think times, and values that an answer gave are taken from it. A command after -- uses the proxy and trusts
    it; its end ends the recording. The file has passwords and tokens that were sent, so its user alone may read it.
    """
    from leadline.recording import session

    argv = command_after_dashes(context)
    only_hosts = [host.lower() for host in only_host or ()]
    if recover is not None:
        if argv:
            raise InputError("--recover: nothing is recorded, so no command runs", hint="leave the command out")
        return _write(recover, output, only_hosts, correlate, json, None)
    session.check_installed()
    session.check_command(argv)
    length_s = _duration_s(length)
    chosen = port if port is not None else 0 if argv else PORT
    session.check_address(bind, chosen)
    if output is not None:
        check_writable("-o", output)
    options = _proxy_options(bind, chosen, ca_dir, max_body, only_hosts, insecure, ca)
    _note_left_journals(Path(options.journal).parent)
    journal = Path(options.journal)
    try:
        progress = _record(options, argv, length_s, is_quiet=json or output is None)
        return _write(journal, output, only_hosts, correlate, json, progress)
    except BaseException:
        if journal.exists() and journal.stat().st_size:
            print_note(f"the recording is kept: leadline record --recover {journal} -o recording.har")
        else:
            journal.unlink(missing_ok=True)
        raise


def _duration_s(text: str | None) -> float | None:
    from leadline.plan import units

    try:
        found = None if text is None else units.duration_ms(text) / 1000
    except units.UnitError as error:
        raise InputError(f"--for: {error}") from None
    if found == 0:
        raise InputError("--for: a duration must be above 0")
    return found


def _max_body(text: str) -> int:
    from leadline.plan import units

    try:
        size = units.size_bytes(text)
    except units.UnitError as error:
        raise InputError(f"--max-body: {error}") from None
    if not 0 < size <= _MAX_BODY_BYTES:
        raise InputError(f"--max-body: {text} is not in its limits", hint="1 B to 256MiB")
    return size


def _proxy_options(
    bind: str, port: int, ca_dir: Path | None, max_body: str, only_hosts: list[str], insecure: bool, ca: Path | None
) -> ProxyOptions:
    from leadline.recording.session import ProxyOptions
    from leadline.recording.trust import check_certificates, data_folder, prepare_private_folder

    if ca is not None:
        check_certificates("--ca", ca)
    folder = data_folder()
    prepare_private_folder("the folder of recordings", folder)
    authority = (ca_dir or folder / "ca").absolute()
    prepare_private_folder("--ca-dir", authority)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.jsonl"
    return ProxyOptions(
        bind=bind,
        port=port,
        ca_dir=str(authority),
        journal=str(folder / name),
        max_body=_max_body(max_body),
        only_hosts=tuple(only_hosts),
        insecure=insecure,
        ca=None if ca is None else str(ca.absolute()),
    )


def _note_left_journals(folder: Path) -> None:
    from leadline.recording.journal import is_being_written

    for path in sorted(folder.glob("*.jsonl")):
        if not is_being_written(path):
            print_note(f"an earlier recording was not written: leadline record --recover {path} -o recording.har")


def _record(options: ProxyOptions, argv: list[str], length_s: float | None, *, is_quiet: bool) -> Progress:
    import asyncio

    from leadline.recording.session import record
    from leadline.trial import Interrupt

    async def run() -> Progress:
        shown = _Shown(options, argv)
        kept = f"stopped; the recording is kept: leadline record --recover {options.journal} -o recording.har"
        interrupt = Interrupt(
            lambda: shown.note("ending; press Ctrl-C again to stop without writing"), lambda: shown.note(kept)
        )
        with interrupt.signals_caught():
            progress = await record(
                options, argv, interrupt.asked, shown.show, length_s=length_s, quiet_command=is_quiet
            )
        shown.end()
        return progress

    return asyncio.run(run())


class _Shown:
    """What a terminal shows of a recording: one line that changes; elsewhere a line for each page."""

    def __init__(self, options: ProxyOptions, argv: list[str]) -> None:
        self._options = options
        self._argv = argv
        self._is_terminal = sys.stderr.isatty()
        self._has_line = False

    def show(self, event: str, progress: Progress, fields: dict[str, Any]) -> None:
        """Show an event of the proxy."""
        if event == "listening":
            self._show_start(progress)
        elif event == "entry" and (self._is_terminal or fields["is_document"]):
            page = f": {progress.title}" if fields["is_document"] and progress.title else ""
            text = (
                f"{_counted(progress.requests, 'request')}, {_counted(progress.pages, 'page')}, {progress.host}{page}"
            )
            if self._is_terminal:
                print(f"\r\x1b[K{_printable(text)[:100]}", end="", file=sys.stderr, flush=True)
                self._has_line = True
            else:
                print_note(_printable(text))
        elif event == "refused" and progress.refused[fields["by"], fields["host"]] == 1:
            self.note(self._refusal(fields))

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self.end()
        print_note(_printable(text))

    def end(self) -> None:
        """Leave the line that changes."""
        if self._has_line:
            print(file=sys.stderr)
            self._has_line = False

    def _show_start(self, progress: Progress) -> None:
        from leadline.recording.trust import certificate_of, public_key_sum

        folder = Path(self._options.ca_dir)
        print_note(f"the proxy is {progress.url}; its authority's certificate is {certificate_of(folder)}")
        if self._options.bind not in ("127.0.0.1", "::1", "localhost"):
            print_note("any host that reaches this address can use the proxy until the recording ends")
        if self._argv:
            return
        print_note(f"curl --proxy {progress.url} --cacert {certificate_of(folder)} URL")
        print_note(
            f"chromium --user-data-dir=/tmp/recorded --proxy-server={progress.url} --proxy-bypass-list='<-loopback>' "
            f"--ignore-certificate-errors-spki-list={public_key_sum(folder)}"
        )
        print_note("other browsers: set the proxy, and import the certificate as an authority; Ctrl-C ends and writes")

    def _refusal(self, fields: dict[str, Any]) -> str:
        from leadline.recording.trust import certificate_of

        match fields["by"]:
            case "client":
                trusted = certificate_of(Path(self._options.ca_dir))
                return f"{fields['host']}: the client refused the proxy's certificate; let it trust {trusted}"
            case "server":
                return f"{fields['host']}: no TLS with the server: {fields['why']}; see --ca and --insecure"
        return f"{fields['host']}: no connection to the server: {fields['why']}"


def _printable(text: str) -> str:
    """A text that has names of servers and pages, without what a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _write(
    journal: Path, output: Path | None, only_hosts: list[str], correlate: bool, json: bool, progress: Progress | None
) -> int:
    """Write what a journal has. Removes the journal of this recording, which is no longer needed then."""
    from leadline.recording.journal import read_recording, write_har

    recording = read_recording(journal)
    if not recording.rows:
        hint = "let the client use the proxy; one that ignores it for this machine's addresses needs an option"
        raise LeadlineError("nothing was recorded: no request came through the proxy", hint=hint)
    conversion = None
    if output is not None and output.suffix.lower() == ".har":
        write_option_stream("-o", output, lambda file: write_har(recording, file), is_private=True)
    else:
        conversion = _convert(recording, output, only_hosts, correlate, json)
    _print_end(recording, output, progress)
    if json:
        print_json(_document(recording, output, progress, conversion))
    if progress is not None:
        journal.unlink()
    return 1 if progress is not None and progress.failure is not None else 0


def _convert(
    recording: Recording, output: Path | None, only_hosts: list[str], correlate: bool, json: bool
) -> dict[str, object]:
    """Write the recording as a scenario, as `leadline convert` does with its HAR file."""
    from leadline.cli.convert import check_whole, conversion_document, print_conversion
    from leadline.recording.journal import write_har
    from leadline.scenario.files import reader_below
    from leadline.scenario.formats import FormatOptions, read_scenario
    from leadline.scenario.native_writer import write_native

    har = BytesIO()
    write_har(recording, har, with_binary=False)
    file = f"{'recording' if output is None else output.stem}.har"
    options = FormatOptions(only_hosts=tuple(only_hosts), correlates=correlate)
    read, conversion = read_scenario(har.getvalue(), file, options)
    assert conversion is not None, "a HAR file is converted"
    check_whole(read, reader_below(Path()), options, file)
    text = write_native(read.root, conversion)
    if output is not None:
        write_option_stream("-o", output, lambda stream: stream.write(text.encode()), is_private=True)
    elif not json:
        print(text, end="")
    if not json:
        print_conversion(conversion)
    return conversion_document(file, output, conversion, text)


def _print_end(recording: Recording, output: Path | None, progress: Progress | None) -> None:
    hosts = _printable(", ".join(recording.hosts[:5])) + (", ..." if len(recording.hosts) > 5 else "")
    where = "stdout" if output is None else str(output)
    requests, pages = _counted(len(recording.rows), "request"), _counted(len(recording.pages), "page")
    print_note(f"{requests} on {pages} of {hosts}: {where}; passwords and tokens that were sent are in it")
    if recording.unreadable:
        print_note(f"{_counted(recording.unreadable, 'line')} of the journal cannot be read, and left out")
    if output is not None and output.suffix.lower() == ".har" and output.stat().st_size > _MAX_HAR_BYTES:
        print_note(f"{output} is larger than the 64 MiB that are read: a smaller --max-body keeps fewer bodies")
    if progress is None:
        return print_note(f"the journal is kept; remove it when it is no longer needed: {recording.path}")
    if progress.outstanding:
        print_note(f"{_counted(progress.outstanding, 'request')} had no answer at the end, and left out")
    if progress.command_status:
        print_note(f"the command ended with exit code {progress.command_status}")
    if progress.failure is not None:
        print_note(f"the recording is not complete: {progress.failure}")
    return None


def _document(
    recording: Recording, output: Path | None, progress: Progress | None, conversion: dict[str, object] | None
) -> dict[str, object]:
    """The document `leadline.recording/1`."""
    refused = [] if progress is None else progress.refused.items()
    return {
        "schema": "leadline.recording/1",
        "output": None if output is None else str(output),
        "requests": len(recording.rows),
        "pages": [page.title for page in recording.pages],
        "hosts": recording.hosts,
        "outstanding": None if progress is None else progress.outstanding,
        "refused": [{"by": by, "host": host, "count": count} for (by, host), count in refused],
        "command_status": None if progress is None else progress.command_status,
        "failure": None if progress is None else progress.failure,
        "conversion": conversion,
    }
