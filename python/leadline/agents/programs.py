"""The search for a program on this machine, the same for the checks before a run and for its hosts. Starts nothing."""

from __future__ import annotations

import os
import shutil

DAEMON_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Folders of daemons, which a user's PATH often lacks."""


def program_path(name: str) -> str | None:
    """The path of a program by name or path, in PATH or the folders of daemons; None if there is no such executable."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{DAEMON_FOLDERS}")
