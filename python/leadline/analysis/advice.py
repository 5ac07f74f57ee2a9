"""What to do about each reason for which a result is not valid. Texts only: rules make the reasons."""

from __future__ import annotations

_MORE_THREADS = "give the named host more threads (threads) or CPUs, or lower the rate; the figure is a lower bound"
_LESS_RATE = "lower the rate, use more threads or generating hosts, and keep other work off them"
_QUIET = "keep other work off the hosts, and measure longer (duration, warmup) or more often (repeat)"
_AS_LONG = (
    "measure as long as the reason says (duration, beside warmup), or more often (repeat); where it says no time, find "
    "what moves the rate: other work, CPUs that hosts share, a queue, a timeout"
)
OWN_CPUS = "give it CPUs of its own (lab.cpus: split, or separate machines): it waits for one"
_SPREAD = "; in a plan, limits.stability.spread sets the limit"
_ERROR_BELOW = "the errors of failed trials are listed below; fix their causes, and run again"
_MORE_TIME = "give the fleet more time (duration, timeout), or let fewer clients connect at once"
_SERVER_SIDE = "use `leadline serve` of this version at the other end: it counts what arrives"
_LINK = "see why the named link was out (cable, switch port, `dmesg` and `ethtool` on its host), and run it again"

ADVICE: dict[str, str] = {
    "change-point": f"{_QUIET}; see in report.html when the rate changed{_SPREAD}",
    "clients-missing": "the causes are listed with the bring-up of clients; fix them, or use fewer clients",
    "clients-never-tried": _MORE_TIME,
    "clients-unfinished": _MORE_TIME,
    "connections-lost": "see in the server's log why it closed or refused connections; use fewer (connections)",
    "ends-cpus-full": "use a machine with more CPUs, or separate machines, to find the gateway's own limit",
    "ended-early": "run it again to its end; if it failed by itself, fix the cause in the list of errors",
    "flows-broken-off": "see in the server's and the gateway's logs why connections ended, and run it again",
    "flows-not-started": "check whether the clients reach the server's ports 5201 and 8080 through the gateway",
    "gateway-counters-unknown": "put clients, gateway and server on separate hosts: only then its counters tell",
    "gateway-not-crossed": "check the clients' routes, and give the server's address behind it (hosts.server.address)",
    "hosts-lost": "see on that host what ended its agent or cut it off; without `tolerate` such a trial fails",
    "hosts-without-figures": "see on that host whether its agent was ended or cut off, and run it again",
    "intervals-disagree": f"{_AS_LONG}; see in report.html how the rate went{_SPREAD}",
    "nothing-replayed": "choose another part (--from, --to, --only), or name the format of the recording (--format)",
    "requests-lost": "this is a defect of leadline: please report it, with the recording if you may",
    "source-broken-off": "check the recording (a cut or damaged file), and replay it again",
    "source-read-late": "replay a part of the recording (--only, --from), or on a host with a free CPU for reading it",
    "journal-damaged": "check the disk with the run's folder, and run the named trials again",
    "machine-rules-off": "unset LEADLINE_MACHINE_RULES, which is for tests, and measure or report again",
    "link-lost": _LINK,
    "link-outage": _LINK,
    "machine-saturated": "use separate machines, or a rate (rate) below this machine's limit",
    "generator-limited-trials": "use more threads or generating hosts; the rate found is a lower bound",
    "few-samples": "search longer trials (-d, or duration), or for a lower percentile",
    "highest-rate-held": "use more threads or generating hosts, to offer more than the path carries",
    "search-budget": "keep other work off the hosts, and use longer trials (duration): the same rate had both outcomes",
    "trials-disturbed": "stop what else runs on the machine, and search again; the rate found is a lower bound",
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
    "heat-throttled": "cool the machine, or give it less load before the test, and run it again",
    "quota-held-back": "raise or remove the CPU quota of the container or slice that Leadline runs in",
    "quota-used-up": "raise or remove the CPU quota of the container or slice that the named host runs in",
    "cpu-stolen": "run it on a machine of its own, or when its neighbours are quiet: a hypervisor shared its CPUs out",
    "percentile-uncertain": "measure as long as the reason says (duration, beside warmup), or three times or more "
    f"(repeat): repeats decide by their own interval{_SPREAD}",
    "precision-unknown": f"{_AS_LONG}{_SPREAD}",
    "interface-counters": "see what else takes packets away at that interface (XDP, tc), and run it again",
    "uncounted-packets": "name the interface where they arrive (--to), or run it in a plan: the server's host counts",
    "inexact-packets": "give the receiver the generator's flows; where a path reorders more, its counts are bounds",
    "sender-interface-drops": "lower the rate: the far end of the named interface takes no more; a veth's has room for "
    "256 packets",
    "pushback": "lower the rate, or generate from more hosts: the sending host's queue was full",
    "ran-over": _LESS_RATE,
    "read-late": "use more threads, keep other work off the named host, or lower the rate: the percentile is an "
    "upper bound",
    "receiver-backlog-drops": "raise net.core.netdev_max_backlog on the receiving host, spread its packets over more "
    "CPUs (RPS), or lower the rate",
    "receiver-socket-drops": "lower the rate, use larger packets, or give the answering host more CPUs",
    "repeats-disagree": f"{_QUIET}{_SPREAD}",
    "repeats-disturbed": "`repeat: {min: 3, max: 15, until: 3%}` runs trials again that something else disturbed",
    "repeats-failed": _ERROR_BELOW,
    "repeats-too-few": f"measure more often (repeat): each repeat narrows the interval of so few a lot{_SPREAD}",
    "sender-side-figure": _SERVER_SIDE,
    "sends-late": _LESS_RATE,
    "still-arriving": "lower the rate, or send for less time: a queue on the way holds more than leaves it in 20 s",
    "thread-saturated": _MORE_THREADS,
    "thread-starved": "other work used the CPUs of the named host: stop it, or use fewer threads",
    "thread-waited": OWN_CPUS,
    "unsent": _LESS_RATE,
    "users-wait": "spread the users over more threads, processes or generating hosts, and see what they do between "
    "requests (scripts, extractions, files): the system can do more than this",
    "window-too-short": "measure longer (duration, number), or shorten the warm-up (warmup)",
}
"""Advice for each reason that makes a result not valid, by its code."""
