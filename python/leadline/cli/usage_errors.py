"""One line for a command line that cannot be parsed: the option, the mistake, and the command that prints help.

The parser checks numbers by pydantic, whose messages are not for users: they are said as those of a plan are.
"""

from __future__ import annotations

import re

from pydantic import ValidationError

from leadline.plan.validation_errors import value_error_text


def usage_line(error: BaseException) -> str:
    """A usage error in one line."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "leadline"
    return f"{_mistake(error)}; see `{where} --help`"


def _mistake(error: BaseException) -> str:
    message: str = getattr(error, "format_message", error.__str__)()
    text = " ".join(message.split()).rstrip(".").replace("Value error, ", "")
    option, colon, said = _OPTION.sub(r"\1", text).partition(": ")
    if isinstance(error.__cause__, ValidationError) and colon:
        found = value_error_text(error.__cause__.errors(include_url=False)[0])
        said = said if found is None else "; ".join(part for part in found if part)
    return f"{option}{colon}{said}"


_OPTION = re.compile(r"^Invalid value for (?:'-\w' / )?'(--[\w-]+)'(?: / '--[\w-]+')*(?=: )")
"""Such a line is about an option, and says so by its long name, as the lines about values with units do."""
