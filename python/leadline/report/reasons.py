"""Prints why each result is not valid: the cause with its figures, and the advice.

`analysis` makes a reason's text; this module has the advice, once per code.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from leadline.analysis.model import Limit, LimitedBy, Reason, RunAnalysis, Summary, Verdict
from leadline.report import verdicts

# Reasons of a run that only count the results' verdicts, as the headline does.
_COUNTS = "results-"
# Verdicts that say themselves what the limit was.
_NAMES_A_LIMIT = (Verdict.GENERATOR_LIMITED, Verdict.RECEIVER_LIMITED)
# Figures that a line names.
_MOST_METRICS = 3
# One or two screens; for further results only the codes are shown.
MOST_IN_FULL = 20

_MORE_THREADS = "give the named host more threads (threads) or CPUs, or lower the rate; the figure is a lower bound"
_LESS_RATE = "lower the rate, use more threads or generating hosts, and keep other work off them"
_QUIET = "keep other work off the hosts, and measure longer (duration, warmup) or more often (repeat)"
_SPREAD = "; limits.stability.spread sets the limit"
_ERROR_BELOW = "the errors of failed trials are listed below; fix their causes, and run again"
_MORE_TIME = "give the fleet more time (duration, timeout), or let fewer clients connect at once"
_SERVER_SIDE = "use `leadline serve` of this version at the other end: it counts what arrives"

ADVICE: dict[str, str] = {
    "change-point": f"see in report.html when the rate changed; {_QUIET}{_SPREAD}",
    "clients-missing": "the causes are listed with the bring-up of clients; fix them, or use fewer clients",
    "clients-never-tried": _MORE_TIME,
    "clients-unfinished": _MORE_TIME,
    "connections-lost": "see in the server's log why it closed or refused connections; use fewer (connections)",
    "ended-early": "run it again to its end; if it failed by itself, fix the cause in the list of errors",
    "flows-broken-off": "see in the server's and the gateway's logs why connections ended, and run it again",
    "flows-not-started": "check whether the clients reach the server's ports 5201 and 8080 through the gateway",
    "gateway-counters-unknown": "put clients, gateway and server on separate hosts: only then its counters tell",
    "gateway-not-crossed": "check the clients' routes, and give the server's address behind it (hosts.server.address)",
    "hosts-without-figures": "see on that host whether its agent was ended or cut off, and run it again",
    "intervals-disagree": f"see in report.html how the rate went; {_QUIET}{_SPREAD}",
    "journal-damaged": "check the disk with the run's folder, and run the named trials again",
    "machine-saturated": "use separate machines, or a rate (rate) below this machine's limit",
    "near-ceiling": "use more threads or generating hosts; the figure is a lower bound",
    "no-clients-reported": "run it again with an agent of this version",
    "no-generator-figures": "`leadline doctor` on that host shows which counters are missing, and why",
    "no-receiver-figures": _SERVER_SIDE,
    "no-repeat-done": _ERROR_BELOW,
    "no-steady-window": "measure longer (duration), or shorten the warm-up (warmup): all flows must run together",
    "nothing-answered": "see whether the server answers at all (curl), and what its log and the errors above say",
    "nothing-came-through": "check whether the destination answers at all (to, --echo), and the gateway's routes to it",
    "path-mtu-too-small": "send shorter packets (packet), or lower the tunnel's MTU (tun-mtu)",
    "other-work": "stop what else runs on the machine that is named (`top` shows it), and run it again",
    "cpu-stolen": "run it on a machine of its own, or when its neighbours are quiet: a hypervisor shared its CPUs out",
    "pushback": "lower the rate, or generate from more hosts: the sending host's queue was full",
    "receiver-socket-drops": "lower the rate, use larger packets, or give the answering host more CPUs",
    "repeats-disagree": f"{_QUIET}{_SPREAD}",
    "repeats-disturbed": "`repeat: {min: 3, max: 15, until: 3%}` runs trials again that something else disturbed",
    "repeats-failed": _ERROR_BELOW,
    "sender-side-figure": _SERVER_SIDE,
    "sends-late": _LESS_RATE,
    "thread-saturated": _MORE_THREADS,
    "thread-starved": "other work used the CPUs of the named host: stop it, or use fewer threads",
    "unsent": _LESS_RATE,
    "window-too-short": "measure longer (duration, number), or shorten the warm-up (warmup)",
}
"""Advice for each reason that makes a result not valid, by its code."""


def why_not_valid(analysis: RunAnalysis) -> RenderableType | None:
    """The reasons of each result that is not valid, with advice; None if all are valid."""
    doubted = [summary for summary in analysis.summaries if summary.validity.verdict is not Verdict.VALID]
    if not doubted:
        return None
    lines: list[RenderableType] = [Text("Why results are not valid", style="bold underline")]
    for summary in doubted[:MOST_IN_FULL]:
        lines += _in_full(summary)
    rest = doubted[MOST_IN_FULL:]
    if rest:
        named = ", ".join(
            f"{one.case} {one.test} ({', '.join(_codes(one)) or one.validity.verdict.value})" for one in rest
        )
        lines.append(_indented(Text(f"{len(rest)} more, in full in report.html: {named}"), 1))
    lines += advice_lines(code for summary in doubted for code in _codes(summary))
    return Group(*lines)


def advice_lines(codes: Iterable[str]) -> list[RenderableType]:
    """The advice for these reasons, once per code."""
    known = [code for code in dict.fromkeys(codes) if code in ADVICE]
    if not known:
        return []
    lines = [_indented(Text.assemble((f"{code}: ", "dim"), ADVICE[code]), 2) for code in known]
    return [_indented(Text("What to do", style="bold"), 1), *lines]


def reason_line(reason: Reason, indent: int = 2) -> RenderableType:
    """A reason's code and text, and which figures it concerns where that is not all of them."""
    return _indented(Text.assemble((f"{reason.code}: ", "dim"), reason.text, (concerned(reason), "dim")), indent)


def limit_line(limit: Limit, indent: int = 2) -> RenderableType:
    """`limited by the link: lan of gateway (sent) carried 99.1 of 100 Mbit/s, headers included`."""
    return _indented(Text.assemble((f"{limited_by(limit)}: ", "dim"), limit.evidence), indent)


def limit_word(summary: Summary) -> str:
    """The part that limited a test, for a cell beside its verdict; empty if that names it, or it is not known."""
    limit = summary.limit
    if limit is None or limit.by is LimitedBy.UNKNOWN or summary.validity.verdict in _NAMES_A_LIMIT:
        return ""
    return "offered" if limit.by is LimitedBy.OFFERED_RATE else limit.by.value


def limited_by(limit: Limit) -> str:
    """The limit in words."""
    return "what limited it is not known" if limit.by is LimitedBy.UNKNOWN else f"limited by the {limit.by.value}"


def concerned(reason: Reason) -> str:
    """` (jitter_us only)`: the figures that a reason concerns; empty where it is all of them, or too many to name."""
    return f" ({', '.join(reason.metrics)} only)" if 0 < len(reason.metrics) <= _MOST_METRICS else ""


def own_reasons(analysis: RunAnalysis) -> list[Reason]:
    """The run's reasons without those that count the results."""
    return [reason for reason in analysis.validity.reasons if not reason.code.startswith(_COUNTS)]


def _in_full(summary: Summary) -> list[RenderableType]:
    verdict = summary.validity.verdict
    wording = verdicts.WORDINGS[verdict]
    head = Text.assemble(
        (f"{summary.case} {summary.test}", "bold"),
        "  ",
        (f"{wording.mark} {verdict.value}", verdicts.TONES[wording.tone]),
    )
    reasons = [reason_line(reason, 3) for reason in summary.validity.reasons]
    return [_indented(head, 1), *(reasons or [_indented(Text(wording.sentence), 3)])]


def _codes(summary: Summary) -> list[str]:
    return list(dict.fromkeys(reason.code for reason in summary.validity.reasons))


def _indented(text: Text, by: int) -> RenderableType:
    return Padding(text, (0, 0, 0, by), expand=False)
