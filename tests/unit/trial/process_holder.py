"""A program that starts processes for an analysis, as on a machine with two CPUs, and waits to be killed."""

from __future__ import annotations

import os
import signal

from leadline.trial.analysis_processes import analysis_processes


def main() -> None:
    """Tell that they have started, and wait."""
    os.sched_getaffinity = lambda _: {0, 1}
    with analysis_processes(1 << 40):
        print("started", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
