"""Finds the parameters that a script saves, before its statements are read: only those are replaced."""

from __future__ import annotations

from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.answers import REGISTERED
from leadline.scenario.loadrunner.context import Script
from leadline.scenario.loadrunner.searches import called_functions


def find_saved(script: Script) -> None:
    """Note the names of the parameters that statements save, and which of them are lists."""
    for function in (*script.actions.values(), *script.functions.values()):
        for call in called_functions(function.body):
            if call.name in REGISTERED:
                _find_registered(script, call)
            elif call.name in _SAVED_AT:
                place = _SAVED_AT[call.name]
                if place < len(call.arguments) and isinstance(one := call.arguments[place], c.Text):
                    script.saved.add(one.value)
            elif call.name == "lr_save_param_regexp":
                script.saved |= {text[12:] for text in _find_texts(call) if text.lower().startswith("resultparam=")}


def _find_registered(script: Script, call: c.FunctionCall) -> None:
    texts = _find_texts(call)
    name = texts[0] if texts and call.name == "web_reg_save_param" else ""
    is_list = False
    for text in texts:
        key, _, value = text.partition("=")
        key = key.strip().lower()
        if key in ("paramname", "savecount"):
            name = value
            script.counts |= {value} if key == "savecount" else set()
        elif key in ("ord", "ordinal", "instance", "selectall"):
            is_list = value.strip().lower() in ("all", "yes")
    if name:
        script.saved.add(name)
        if is_list:
            script.lists.add(name)


def _find_texts(call: c.FunctionCall) -> list[str]:
    return [one.value for one in call.arguments if isinstance(one, c.Text)]


_SAVED_AT = {
    "lr_save_string": 1, "lr_save_int": 1, "lr_save_var": 3, "lr_save_datetime": 2, "web_save_timestamp_param": 0,
    "lr_save_timestamp": 0, "lr_param_sprintf": 0, "lr_param_increment": 0, "lr_param_unique": 0,
}  # fmt: skip
"""At which argument functions have the name of the parameter that they save."""
