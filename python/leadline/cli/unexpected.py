"""Reports an exception that no command foresees: one line on stderr, and the traceback in a file or on request."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from leadline.errors import LeadlineError, each_failure

VARIABLE = "LEADLINE_TRACEBACK"
_OPTIONS_WITH_SECRETS = frozenset({"--basic", "--bearer", "--header", "-H", "--proxy", "--body", "--url", "--set"})


def named(failure: Exception, argv: Sequence[str]) -> LeadlineError:
    """The error as the user reads it. Its traceback is in a new file that only the user may read, if one can be made;
    it is also printed if LEADLINE_TRACEBACK is set to anything but 0. Values of options that may be secrets are in
    neither.

    An exception group that hides nothing but an error that is known is that error.
    """
    failures = list(each_failure(failure))
    known = [one for one in failures if isinstance(one, LeadlineError)]
    if len(known) == len(failures):
        return known[0]
    # Heavy, and a command that succeeds has no use for it.
    from leadline.trial.unforeseen import unforeseen

    cause = next(one for one in failures if not isinstance(one, LeadlineError))
    log = _new_file()
    echo = sys.stderr if os.environ.get(VARIABLE, "0") not in ("", "0") else None
    return unforeseen(failure, log, cause=cause, secrets=_secrets(argv), shown=str(log), echo=echo)


def _new_file() -> Path | None:
    """None if no folder for temporary files can be written."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="leadline-traceback-", suffix=".log")
    except OSError:
        return None
    os.close(descriptor)
    return Path(name)


def _secrets(argv: Sequence[str]) -> Iterator[str]:
    """What the command line says after options that take secrets; a reference to a file or a variable is none."""
    for place, word in enumerate(argv):
        option, _, value = word.partition("=")
        if word in _OPTIONS_WITH_SECRETS and place + 1 < len(argv):
            value = argv[place + 1]
        elif option not in _OPTIONS_WITH_SECRETS:
            continue
        yield value
        # A user's name and password, a header's name and value.
        yield value.partition(":")[2].strip()
