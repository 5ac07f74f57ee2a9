"""LoadRunner's functions of control: think time, rendezvous, exits; those without an effect on requests."""

from __future__ import annotations

from leadline.scenario.expressions import Call, Literal
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.context import CannotRun
from leadline.scenario.loadrunner.functions import ZERO
from leadline.scenario.loadrunner.thinking import think_steps
from leadline.scenario.loadrunner.transactions import Transactions
from leadline.scenario.loadrunner.values import Value


class Controls(Transactions):
    """What a script does between requests."""

    def think(self, call: c.FunctionCall) -> Value:
        """`lr_think_time`: a wait, as the settings say."""
        tree = self.number_of(call.arguments[0]) if call.arguments else Literal(0)
        self.out += think_steps(self.script.settings.think_time, tree, call.place)
        self.script.kept(call.name, call.place)
        return ZERO

    def meet(self, call: c.FunctionCall) -> Value:
        """`lr_rendezvous`: a wait for the users of the group."""
        name = self.parameter_name(call.arguments[0]) if call.arguments else "rendezvous"
        self.emit(call.place, meet=name, timeout="30s")
        why = "all users of the group meet, for 30s at most; the Controller's policy may say otherwise"
        self.script.changed(call.name, call.place, why)
        return ZERO

    def exit(self, call: c.FunctionCall) -> Value:
        """`lr_exit`: the end of an iteration or a user."""
        mode = call.arguments[0] if call.arguments else None
        name = mode.name if isinstance(mode, c.Name) else ""
        status = call.arguments[1] if len(call.arguments) > 1 else None
        if isinstance(status, c.Name) and status.name == "LR_FAIL":
            self.fail_open(call.place)
        if name in ("LR_EXIT_MAIN_ITERATION_AND_CONTINUE", "LR_EXIT_ITERATION_AND_CONTINUE"):
            self.emit(call.place, stop="iteration")
        elif name == "LR_EXIT_ACTION_AND_CONTINUE":
            self.emit(call.place, stop="iteration")
            if len(self.script.settings.run.actions) > 1:
                why = "the iteration ends, not the action alone"
                self.script.changed(call.name, call.place, why)
        elif name in ("LR_EXIT_VUSER", "LR_EXIT_VUSER_AFTER_ITERATION", "LR_EXIT_VUSER_AFTER_ACTION"):
            if name != "LR_EXIT_VUSER":
                self.script.changed(call.name, call.place, "the user ends at once")
            self.emit(call.place, stop="user")
        else:
            raise CannotRun("the kind of the exit is not known", call.place)
        self.script.kept(call.name, call.place)
        return ZERO

    def abort(self, call: c.FunctionCall) -> Value:
        """`lr_abort`: the end of a user."""
        self.fail_open(call.place)
        self.emit(call.place, stop="user")
        self.script.kept(call.name, call.place)
        return ZERO

    def read_property(self, call: c.FunctionCall) -> Value:
        """`web_get_int_property`: a figure of the last request."""
        name = call.arguments[0].name if call.arguments and isinstance(call.arguments[0], c.Name) else ""
        if name == "HTTP_INFO_RETURN_CODE":
            return Value(Call("last_status"), "int")
        if name == "HTTP_INFO_DOWNLOAD_TIME":
            return Value(Call("last_duration_ms"), "int")
        if name == "HTTP_INFO_DOWNLOAD_SIZE":
            return Value(Call("length", (Call("last_body"),)), "int")
        raise CannotRun(f"the property {name or '?'} has no native form", call.place)


CONTROLS = {
    "lr_think_time": Controls.think, "lr_force_think_time": Controls.think, "lr_rendezvous": Controls.meet,
    "lr_rendezvous_ex": Controls.meet, "lr_exit": Controls.exit, "lr_abort": Controls.abort,
    "exit": Controls.abort, "web_get_int_property": Controls.read_property,
}  # fmt: skip
LOGS = frozenset({
    "lr_output_message", "lr_log_message", "lr_message", "lr_error_message", "lr_debug_message", "printf", "puts",
    "lr_vuser_status_message", "lr_set_debug_message", "lr_get_debug_message", "lr_user_data_point",
    "lr_user_data_point_ex",
})  # fmt: skip
WITHOUT_EFFECT = {
    "web_set_sockets_option": "options of sockets are those of the command line",
    "web_set_option": "options of the client are those of the command line",
    "srand": "random values follow from --seed",
    "free": "a text needs no memory of its own",
    "lr_free_parameter": "a parameter needs no memory of its own",
    "web_add_filter": "which resources are fetched is the page's",
    "web_add_auto_filter": "which resources are fetched is the page's",
    "web_remove_auto_filter": "which resources are fetched is the page's",
    "web_cache_cleanup": "nothing is cached",
    "lr_continue_on_error": "the settings say what follows a failed request",
    "web_set_rts_key": "the settings are those of the files",
    "lr_wasted_time": "waits and own work are no part of a transaction here",
    "lr_stop_transaction": "the transaction's time goes on",
    "lr_resume_transaction": "the transaction's time goes on",
    "web_set_certificate": "the client's certificate is --cert and --key",
    "web_set_certificate_ex": "the client's certificate is --cert and --key",
    "lr_load_dll": "libraries of Windows are not loaded",
}
"""Functions without an effect on requests, each with the reason."""
