"""Reads the files of scenarios: the scenario itself and the files that it names, which lie in its folder or below."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leadline.errors import PlanError
from leadline.plan.external_inputs import MOST_SCENARIO_BYTES
from leadline.plan.regular_files import NotRegular, read_regular

MOST_DATA_BYTES = 8 * 2**20
"""Size of a file that a scenario names."""


def find_scenario(path: Path) -> Path:
    """The scenario's file; of a folder the script of LoadRunner that is in it.

    Raises:
        PlanError: the folder has none, or several.
    """
    if not path.is_dir():
        return path
    try:
        found = sorted(one for one in path.iterdir() if one.suffix.lower() == ".usr" and one.is_file())
    except OSError as error:
        raise PlanError(path, None, f"cannot be read: {error.strerror or error}") from None
    if len(found) == 1:
        return found[0]
    why = f"has {len(found)} scripts of LoadRunner" if found else "is a folder without a script of LoadRunner (.usr)"
    raise PlanError(path, None, f"this {why}" if not found else why, hint="give the path of the file")


def read_scenario_file(path: Path) -> bytes:
    """The content of a scenario's file.

    Raises:
        PlanError: it is no regular file, too large, or cannot be read.
    """
    hint = "give the path of a scenario: YAML, .jmx, .har, .usr or .lrs"
    try:
        return read_regular(path, MOST_SCENARIO_BYTES)
    except FileNotFoundError:
        raise PlanError(path, None, "there is no such file", hint=hint) from None
    except NotRegular as error:
        raise PlanError(path, None, f"this {error}", hint=hint) from None
    except OSError as error:
        raise PlanError(path, None, f"cannot be read: {error.strerror or error}") from None


def find_in_any_case(path: Path) -> Path:
    """The path, or the one that is there and differs in capitals alone: files of Windows name each other so."""
    try:
        if path.exists() or path.parent == path:
            return path
        folder = find_in_any_case(path.parent)
        found = [one for one in folder.iterdir() if one.name.lower() == path.name.lower()]
    except (OSError, ValueError, RecursionError):
        return path  # reading it says what is wrong
    return found[0] if len(found) == 1 else path


def reader_below(folder: Path, *, anywhere: bool = False) -> Callable[[str], bytes]:
    """A function that reads the files that a scenario names; raises ValueError with a message for the user.

    Without `anywhere`, only files in the folder and below are read, also where a link leads elsewhere.
    """

    def read(name: str) -> bytes:
        path = find_in_any_case(folder / name.replace("\\", "/"))
        if not anywhere and not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name} is outside of the scenario's folder; move it there, or give --any-file")
        try:
            return read_regular(path, MOST_DATA_BYTES)
        except NotRegular as error:
            raise ValueError(f"{name} {error}") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ValueError(f"{name} cannot be read: {reason or error}") from None

    return read
