"""Shows progress on stderr: live lines on a terminal, and one line for each trial and test that ends.

Consumes notifications; measures nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.text import Text

from leadline import quantities
from leadline.analysis.model import TestResult
from leadline.cli.live_table import live_label_lines
from leadline.cli.terminal import Terminal
from leadline.errors import without_log
from leadline.report import trial_headline
from leadline.trial import (
    FirstRoundMeasured,
    HostLost,
    HostSilent,
    Interrupt,
    LiveFigures,
    LiveLabel,
    Notification,
    PhaseBegan,
    RoundAdded,
    RoundsOutOfTime,
    RunBegan,
    RunEnded,
    TargetOpen,
    TestBegan,
    TestEnded,
    TrialBegan,
    TrialEnded,
    TrialMeasured,
    Waiting,
)

if TYPE_CHECKING:
    from rich.live import Live

_NEARLY_S = 0.5
"""A test counts as nearly done when less than this remains of its expected time."""


@contextmanager
def watched(json: bool, *, has_intervals: bool = False) -> Iterator[tuple[Progress, Interrupt]]:
    """Show one measurement while it runs, and let Ctrl-C end it. With --json, progress is shown only on a
    terminal. `has_intervals`: each interval's figures are printed."""
    with Progress(quiet=json and not sys.stderr.isatty(), has_intervals=has_intervals) as progress:
        interrupt = Interrupt(lambda: progress.note("stopping; press Ctrl-C again to stop at once"), progress.stop)
        with interrupt.signals_caught():
            yield progress, interrupt


class Progress:
    """Draws the state of a run: the current trial, the test, live figures, the time that remains."""

    def __init__(self, quiet: bool = False, *, has_intervals: bool = False) -> None:
        self.quiet = quiet
        """Whether only essential lines are printed."""
        self._has_intervals = has_intervals
        """Whether a line is printed for each interval: its figures are not drawn below it once more."""
        self._console = Terminal(stderr=True)
        self._live: Live | None = None
        self._trials = 1
        self._number = 0
        self._title = ""
        self._doing = ""
        self._figures = ""
        self._health = ""
        self._waiting: Waiting | None = None
        self._labels: tuple[LiveLabel, ...] = ()
        self._ended = ""
        self._began_s = time.monotonic()
        self._expected_s = 0.0

    def __enter__(self) -> Progress:
        if not self.quiet and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                transient=True,
                refresh_per_second=4,
                get_renderable=self._lines,
                # Other output is printed above the live lines if both use the same terminal; else it goes to its file.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the live lines and restore the cursor."""
        self._print_ended()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, line: str | Text) -> None:
        """Print a line above the live ones."""
        if self._live is not None:
            self._live.console.print(Text(line) if isinstance(line, str) else line)
        else:
            print(line, file=sys.stderr)

    def __call__(self, notification: Notification) -> None:
        """Handle one notification."""
        match notification:
            case RunBegan():
                self._trials, self._expected_s, self._began_s = (
                    notification.trials,
                    notification.expected_s,
                    time.monotonic(),
                )
            case RoundAdded():
                self._trials += notification.trials
                self._expected_s += notification.expected_s
                self.note(f"{notification.trials} more to run: their figures are not known well enough")
            case FirstRoundMeasured() | RoundsOutOfTime() | TargetOpen() | HostLost() | HostSilent():
                self.note(describe(notification))
            case TrialBegan():
                self._print_ended()
                self._number, self._title = notification.number, notification.case.title
                self._do("")
            case PhaseBegan():
                self._do(notification.phase)
            case TestBegan():
                if not self._expected_s:  # a single test; a calibration may precede it
                    self._expected_s, self._began_s = notification.duration_s, time.monotonic()
                self._do(notification.test)
            case LiveFigures():
                self._figures, self._health, self._waiting = (
                    _figures(notification, has_intervals=self._has_intervals),
                    _health(notification, has_intervals=self._has_intervals),
                    notification.waiting,
                )
                self._labels = notification.labels
            case TrialEnded():
                self._trial_ended(notification)
            case TrialMeasured():
                self._print_ended(notification.results)
            case RunEnded():
                self._print_ended()
                self._do("")
            case TestEnded():
                self._figures, self._health, self._waiting, self._labels = "", "", None, ()

    def _do(self, what: str) -> None:
        self._doing, self._figures, self._health, self._waiting, self._labels = what, "", "", None, ()

    def _trial_ended(self, notification: TrialEnded) -> None:
        """Keep the line of a trial until its figures are known: they belong to it."""
        # The answer has the log of a daemon that failed.
        tail = f": {without_log(notification.error)}" if notification.error else ""
        status = "" if notification.status == "done" else f"  {notification.status}{tail}"
        self._ended = f"[{self._number}/{self._trials}] {notification.label} {self._title}{status}"

    def _print_ended(self, results: Sequence[TestResult] = ()) -> None:
        """Print one line for the trial that ended, with its tests' figures, so that a long run shows them early."""
        if self._ended and not self.quiet:
            line = Text.assemble(self._ended, trial_headline(results))
            line.no_wrap, line.overflow = True, "ellipsis"
            self.note(line)
        self._ended = ""

    def _lines(self) -> Text:
        """The live lines: the trial and the time, the figures, then latency and the state of the generator.

        A single measurement has its figures on the first line. Text that does not fit is cut, but never the time.
        """
        left_s = self._expected_s - (time.monotonic() - self._began_s)
        # Before its time ends, a fleet does not wait: its clients may still connect and leave.
        waiting = self._waiting if left_s < _NEARLY_S else None
        is_run = self._trials > 1 or bool(self._title)
        where = f"[{self._number}/{self._trials}] {self._title}" if is_run else ""
        first = [where, self._doing] if is_run else [self._doing, self._figures]
        lines = [self._timed("  ".join(part for part in first if part), self._time(left_s, waiting is not None))]
        if is_run and self._figures:
            lines.append(Text(f"  {self._figures}", no_wrap=True, overflow="ellipsis"))
        below = "  ".join(part for part in (_waiting(waiting) if waiting else "", self._health) if part)
        if below:
            lines.append(Text(f"  {below}", no_wrap=True, overflow="ellipsis", style="dim"))
        # As high as the terminal at most: lines beyond it could not be taken away again.
        lines += live_label_lines(self._labels, self._console.height - len(lines) - 1)
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)

    def _timed(self, what: str, when: str) -> Text:
        """The text, then the time, cut to the available width."""
        room = max(0, self._console.width - len(when) - 2)
        left = Text(what)
        left.truncate(room, overflow="ellipsis")
        return Text.assemble(left, "  " if what else "", when)

    def _time(self, left_s: float, is_waiting: bool) -> str:
        over = "waiting" if is_waiting else "nearly done"
        left = f"about {_whole(left_s)} left" if left_s >= _NEARLY_S else over
        return f"{_whole(self._expected_s - left_s)}, {left}"


def describe(notification: FirstRoundMeasured | RoundsOutOfTime | TargetOpen | HostLost | HostSilent) -> str:
    """What the run decided, or which host it misses; after the first round, what else the machine does, and what
    further rounds would bring."""
    if isinstance(notification, HostLost):
        return f"{notification.reason}; the trial goes on without it"
    if isinstance(notification, HostSilent):
        return f"{notification.host} has been silent for {notification.silent_s:.0f} s"
    if isinstance(notification, TargetOpen):
        missed = f"{notification.target} is missed so far ({notification.reason})"
        return f"the load goes on although {missed}: {notification.limit}"
    if isinstance(notification, RoundsOutOfTime):
        return "no further round: the plan's time (`within`) is used up, and figures are still not known well enough"
    first = notification.first
    if first.cause is None:
        noise = f"after round 1, no result of {first.results} is disturbed"
    else:
        noise = f"after round 1, {first.disturbed} of {first.results} results are disturbed: {first.cause}"
    longest = f"at most {first.possible} rounds are run, {_whole((first.possible - 1) * first.round_s)} more"
    if first.needed is None:
        return f"{noise}. As busy as now, {longest}, and too few of them will count: stop what else runs here"
    return (
        f"{noise}. About {first.needed} rounds are needed, {_whole((first.needed - 1) * first.round_s)} more; {longest}"
    )


def _whole(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 99.5 else quantities.seconds(round(seconds))


def _figures(figures: LiveFigures, *, has_intervals: bool) -> str:
    """What arrives; only what the lines of intervals have not, where there are some."""
    parts = []
    if figures.users is not None:
        parts.append(quantities.counted(figures.users, "user"))
    if figures.clients is not None:
        states = [f"{count:,} {state}" for state, count in figures.clients.items() if count or state == "configured"]
        parts.append(", ".join(states))
    if has_intervals:
        return "  ".join([*parts, *_errors(figures)])
    if figures.units_per_s is not None:
        parts.append(quantities.per_second(figures.units_per_s))
    if figures.bits_per_s is not None and (figures.bits_per_s or figures.clients is None):
        parts.append(quantities.bit_rate(figures.bits_per_s))
    if figures.lost_ratio is not None:
        parts.append(f"lost {quantities.share(figures.lost_ratio)}")
    if figures.retransmits is not None:
        parts.append(quantities.counted(figures.retransmits, "retransmit"))
    if figures.rtt_us is not None:
        parts.append(f"RTT {quantities.microseconds(figures.rtt_us)}")
    return "  ".join([*parts, *_errors(figures)])


def _errors(figures: LiveFigures) -> list[str]:
    return [] if figures.errors is None else [quantities.counted(figures.errors, "error")]


def _waiting(waiting: Waiting) -> str:
    """The clients that a fleet waits for, and for how long at most."""
    states = ((waiting.unanswered, "unanswered"), (waiting.others, "not up yet"), (waiting.resting, "to try again"))
    (first, what), *more = [(count, what) for count, what in states if count]
    clients = "client" if first == 1 else "clients"
    parts = [f"{first:,} {clients} {what}", *(f"{count:,} {what}" for count, what in more)]
    return f"waiting up to {_whole(waiting.most_s)} more: {', '.join(parts)}"


def _health(figures: LiveFigures, *, has_intervals: bool) -> str:
    """Latency of the last second, open connections, and whether the generator keeps up."""
    parts = []
    if figures.latency_p99_us is not None and not has_intervals:
        p50 = quantities.at_least(quantities.microseconds(figures.latency_p50_us), figures.latency_p50_censored)
        p99 = quantities.at_least(quantities.microseconds(figures.latency_p99_us), figures.latency_p99_censored)
        parts.append(f"p50 {p50}, p99 {p99}")
    if figures.connections is not None:
        parts.append(quantities.counted(figures.connections, "connection"))
    if figures.busiest_thread is not None:
        parts.append(f"thread {quantities.share(figures.busiest_thread)}")
    if figures.late_p99_us is not None:
        parts.append(f"late {quantities.microseconds(figures.late_p99_us)}")
    return "  ".join(parts)
