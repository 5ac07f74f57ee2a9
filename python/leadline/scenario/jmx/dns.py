"""JMeter's DNS cache manager: the addresses that it gives to names. Pure."""

from __future__ import annotations

import ipaddress

from leadline.scenario.jmx.context import Context
from leadline.scenario.jmx.tree import Element, inner_text


def read_static_hosts(context: Context, element: Element) -> None:
    """Note the addresses of a manager's table for the whole scenario."""
    servers = [tag.text.strip() for tag in element.rows("DNSCacheManager.servers") if tag.text.strip()]
    if element.flag("DNSCacheManager.isCustomResolver") and servers:
        context.cannot(
            element, f"names are not resolved by the servers {', '.join(servers)[:80]}; list their addresses"
        )
    for tag in element.rows("DNSCacheManager.hosts"):
        name = context.constant(element, inner_text(tag, "StaticHost.Name").strip())
        given = context.constant(element, inner_text(tag, "StaticHost.Address").strip())
        if not name or given is None:
            continue
        # JMeter connects to the first of several.
        address = given.split(",")[0].strip()
        try:
            address = str(ipaddress.ip_address(address))
        except ValueError:
            context.cannot(element, f"the address of {name} is {address!r}; write an IP address")
            continue
        if context.hosts.setdefault(name, address) != address:
            context.cannot(element, f"{name} has another address elsewhere in the plan, {context.hosts[name]}")
    element.flag("DNSCacheManager.clearEachIteration")
    if element.flag("DNSCacheManager.isCustomResolver") or context.hosts:
        context.finished(element)
    else:
        context.conversion.dropped(element.what, element.line, "each name is resolved once by the agent")
