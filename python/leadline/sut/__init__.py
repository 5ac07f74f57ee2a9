"""Systems under test: what is brought up between the clients and the server, and checked by traffic.

A new one: its parameters in `leadline.plan.sut`, a module here with a class that is a `SystemUnderTest`, and a line in
`_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from leadline.errors import InputError
from leadline.plan.sut import OpenvpnSut, RouteSut, WireguardSut
from leadline.sut.model import BringUp, ClientState, FleetAccess, NobodyConnected, Site, SystemUnderTest
from leadline.sut.openvpn import Openvpn
from leadline.sut.route import Route
from leadline.sut.wireguard import Wireguard

__all__ = ["BringUp", "ClientState", "FleetAccess", "NobodyConnected", "Site", "SystemUnderTest", "create"]

_KINDS: dict[str, tuple[type[BaseModel], Callable[[Any], SystemUnderTest]]] = {
    "route": (RouteSut, Route),
    "wireguard": (WireguardSut, Wireguard),
    "openvpn": (OpenvpnSut, Openvpn),
}


def create(kind: str, parameters: Mapping[str, object]) -> SystemUnderTest:
    """The system of that kind, not yet running; `parameters` are its model's fields, as `model_dump` gives them.

    Raises:
        InputError: there is no such kind.
        pydantic.ValidationError: the parameters are not the kind's.
    """
    if kind not in _KINDS:
        raise InputError(f"no system under test is called {kind!r}", hint=f"one of {', '.join(_KINDS)}")
    model, make = _KINDS[kind]
    return make(model.model_validate({**parameters, "kind": kind}, strict=False, by_name=True))
