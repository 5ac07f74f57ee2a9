"""The figures of a test that describe the gateway on its path, whatever the kind of test: CPU and memory.

Owns their names and meanings. A case has those of its own gateways: `gateway_...`, or with a site-to-site tunnel
`gateway_a_...` and `gateway_b_...`. `analysis.gateways` computes them.
"""

from __future__ import annotations

from leadline.plan.metric_specs import MetricSpec, lower

GATEWAYS = ("gateway", "gateway-b", "gateway-a")
"""The hosts that run the system under test; the first one that a case has is next to its server."""

CPU, PER_GBPS, PER_BYTE, PER_PACKET, PER_CLIENT, MEMORY, MEMORY_PER_CLIENT = (
    "cpu_percent",
    "cpu_percent_per_gbps",
    "cpu_ns_per_byte",
    "cpu_ns_per_packet",
    "cpu_percent_per_client",
    "memory_bytes",
    "memory_per_client_bytes",
)
_MEANINGS = {
    CPU: "CPU time of the system under test on {} in the steady window, percent of one CPU",
    PER_GBPS: "the same for each Gbit/s of payload that was delivered",
    PER_BYTE: "CPU time on {} for each byte of payload that was delivered",
    PER_PACKET: "CPU time on {} for each packet that it forwarded, both directions counted",
    PER_CLIENT: "CPU time on {} for each client, percent of one CPU",
    MEMORY: "memory of the system under test on {}, mean of the steady window",
    MEMORY_PER_CLIENT: "the same for each client, with what it takes without clients",
}


def metric_of(host: str, figure: str) -> str:
    """The name of a gateway's figure: `gateway_a_cpu_percent`."""
    return f"{prefix_of(host)}_{figure}"


def prefix_of(host: str) -> str:
    """The beginning of the names of a gateway's figures."""
    return host.replace("-", "_")


def split_name(metric: str) -> tuple[str, str]:
    """The host and the figure of a gateway's metric: `gateway-a` and `cpu_percent`."""
    return _NAMES[metric]


def of_gateway(metric: str) -> bool:
    """Whether a figure describes a gateway."""
    return metric in _NAMES


def says_per_gbps(cpu: float | None, per_gbps: float | None) -> bool:
    """Whether CPU per Gbit/s tells anything: not of a payload below 1 Mbit/s, which is a thousandth of that."""
    return cpu is None or per_gbps is None or per_gbps <= 1000 * cpu


def is_memory(metric: str) -> bool:
    """Whether a figure of a gateway is memory."""
    return metric.endswith((MEMORY, MEMORY_PER_CLIENT))


def is_cost(metric: str) -> bool:
    """Whether a figure of a gateway is CPU time for some amount of work."""
    return metric.endswith((PER_GBPS, PER_BYTE, PER_PACKET))


GATEWAY_METRICS: tuple[MetricSpec, ...] = tuple(
    lower(metric_of(host, figure), meaning.format(f"`{host}`"))
    for host in GATEWAYS
    for figure, meaning in _MEANINGS.items()
)
_NAMES = {metric_of(host, figure): (host, figure) for host in GATEWAYS for figure in _MEANINGS}
