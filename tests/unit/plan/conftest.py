"""The fixtures of this folder are in `plan_texts`."""

from plan_texts import error_text, load

__all__ = ["error_text", "load"]
