"""The parameters of `packets` tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from leadline.kinds.packets import fields, pktgen
from leadline.plan import units
from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.dscp import Dscp
from leadline.plan.field_types import Clients, RateBps, Total, rule, validation_error, within
from leadline.plan.packet_rates import FCS_BYTES, PacketRate, mean_frame_bytes, read_packet_rate
from leadline.plan.rate_search import MAX_CONDITIONS, RateSearch, expected_ms, search_errors

DEFAULT_BYTES = 64
_MAX_FLOWS = 1 << 20


def _rate(value: Any) -> str:
    read_packet_rate(value)
    return str(value)


_Rate = Annotated[str, BeforeValidator(_rate)]
_NewFlows = Annotated[float, BeforeValidator(units.per_second)]


class PacketsTest(BaseTest):
    """Raw frames into an interface, and a receiver that counts them where they arrive."""

    clients: Clients = 1
    """One client takes part: receivers count the flows of one generator."""
    kind: Literal["packets"] = "packets"
    device: str | None = None
    """The interface into which frames go; null: that of the route to their destination."""
    to: str | None = None
    """The interface at which they are counted; null: in a plan the server's, in a command none."""
    size: fields.FrameSizes = Field(default_factory=lambda: {DEFAULT_BYTES: 1})
    """Bytes of each frame, FCS included (RFC 2544), or sizes in turn with their counts; `imix` is {64: 7, 594: 4,
    1518: 1}."""
    rate: _Rate | None = None
    """Frames per second (1Mpps), bits of layer 2 per second (500mbit) or a share of the line's rate (50%); null: as
    fast as possible."""
    line_bps: RateBps | None = Field(default=None, validation_alias="line")
    """The rate of the line, for shares of it; null: not known."""
    number: Total | None = None
    """Frames; the test ends after them, even before its duration."""
    protocol: Literal["udp", "tcp-syn", "tcp-ack", "icmp"] = "udp"
    """What is in the frames: datagrams, TCP segments that open a connection or seem to belong to one, echo requests."""
    dst: fields.Addresses | None = None
    """Destination addresses: 192.0.2.1, 192.0.2.1-192.0.2.9 or 192.0.2.0/28, with `random` behind them at random.
    Null: in a plan the server's."""
    src: fields.Addresses | None = None
    """Source addresses; null: the interface's own."""
    dport: fields.Ports = "9"
    """Destination ports: 9 or 1024-65535, with `random` behind them at random."""
    sport: fields.Ports = "1024-65535"
    """Source ports."""
    dst_mac: fields.Mac | None = None
    """Destination MAC address; null: that of the next hop is asked for."""
    src_mac: fields.Mac | None = None
    """Source MAC address; null: the interface's."""
    vlan: fields.Vlans | None = None
    """VLAN tags: 7, 1-100, or two with a dot, the outermost first: 100.7."""
    ttl: Annotated[int, Field(ge=1, le=255)] | None = None
    """Time to live, hop limit; null: 64, and of pktgen 32, which has no other."""
    dscp: Dscp | None = None
    """Code point: 0 to 63, or a class such as EF, CS1 or AF41."""
    tunnel: Literal["gre", "vxlan"] | None = None
    """A tunnel around the packets."""
    tunnel_src: fields.Address | None = None
    """The tunnel's source address."""
    tunnel_dst: fields.Address | None = None
    """The tunnel's destination address."""
    tunnel_id: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    """VXLAN's network identifier, GRE's key."""
    template: str | None = None
    """A whole frame as hex digits, instead of fields: only its last bytes are the test's."""
    checksum: bool = True
    """Whether UDP over IPv4 has a checksum."""
    flows: Annotated[int, within(1, _MAX_FLOWS, " flows")] = 1
    """Flows, which differ in the fields that have ranges; each has its own sequence numbers."""
    flow_order: Literal["in_turn", "random"] = "in_turn"
    """The order of their frames."""
    zipf: Annotated[float, Field(ge=0, le=10)] | None = None
    """Exponent of Zipf's law for the flows' shares, at random; null: all have the same share."""
    new_flows: _NewFlows | None = None
    """Flows per second that are replaced by new ones, with the next values of their ranges."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Seed of all random choices."""
    stamp_every: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """One frame in this many has its time in it, by which its delay is measured; 0: none."""
    echo: bool = False
    """Whether the far interface sends the frames back: they are counted, and their round trips measured, at the
    interface from which they went."""
    search: RateSearch | None = None
    """Search for the highest rate that holds; `duration` is then the length of the deciding trials."""
    via: Literal["auto", "xdp", "af_xdp", "af_packet", "pktgen"] = "auto"
    """The path into the interface; auto: the fastest that can be used, which pktgen, the kernel's generator, is not."""
    pktgen: dict[str, str] = Field(default_factory=dict)
    """Commands of the kernel's packet generator, for `via: pktgen`: {clone_skb: 0, flag: NODE}. Those that a key of the
    test has, as count and pkt_size, set that key."""
    receive_via: Literal["auto", "xdp", "af_packet"] = "auto"
    """The path out of the receiving interface."""
    then: Literal["drop", "pass"] = "drop"
    """What becomes of counted frames: they end, or the host's stack gets them."""
    pcap: str | None = None
    """A capture (pcap or pcapng) whose frames are sent instead: at their own times, at `rate`, or at once (`top`)."""
    speed: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    """How much faster than it was recorded a capture is sent."""
    top: bool = False
    """Whether a capture is sent as fast as possible."""
    loop: Annotated[int, Field(ge=0, le=10**9)] = 1
    """How often a capture is sent; 0: until the end of the duration."""
    rewrite: dict[str, str] = Field(default_factory=dict)
    """Networks of a capture, each with one of the same length that replaces it: {10.0.0.0/8: 198.0.0.0/8}."""
    rewrite_macs: bool = False
    """Whether a capture's MAC addresses become those of the interface and of the next hop."""
    set_vlan: Annotated[int, Field(ge=0, le=4094)] | None = None
    """The VLAN of a capture's tags; 0 takes them away."""
    pad_cut: bool = False
    """Whether frames that were cut when they were captured are filled with zeros; otherwise they are refused."""
    batch: Annotated[int, Field(ge=1, le=256)] | None = None
    """Frames that go to the driver together; null: by the rate."""
    yes_i_mean: str | None = None
    """The interface of the default route, if frames may go into it."""

    @model_validator(mode="before")
    @classmethod
    def _adopt_pktgen(cls, given: object) -> object:
        return pktgen.adopt_commands(given) if isinstance(given, dict) and given.get("pktgen") else given

    @property
    def frame_bytes(self) -> dict[int, int]:
        """Sizes without FCS, as interfaces count them, with their counts."""
        return {size - FCS_BYTES: count for size, count in self.size.items()}

    @property
    def mean_bits(self) -> float:
        """Bits of layer 2 of a frame, FCS included."""
        return 8.0 * (mean_frame_bytes(self.frame_bytes) + FCS_BYTES)

    @property
    def stamps(self) -> int:
        """One frame in this many has its time in it; round trips are measured of all frames, if of no other share."""
        return self.stamp_every or int(self.echo)

    @property
    def packet_rate(self) -> PacketRate | None:
        """The rate; None for as fast as possible."""
        return None if self.rate is None else read_packet_rate(self.rate)

    @property
    def rate_pps(self) -> float | None:
        """The rate in frames per second; None for as fast as possible."""
        rate = self.packet_rate
        return None if rate is None else rate.packets_per_s(self.frame_bytes, self.line_bps)

    @rule
    def _rate_is_known(self) -> Iterator[PydanticCustomError]:
        if self.rate is not None and self.rate_pps is None:
            yield validation_error("a share of a line whose rate is not known", at=("rate",), hint="set line: 10gbit")

    @property
    def searched(self) -> RateSearch | None:
        """The search, if there is one."""
        return self.search

    @property
    def expected_ms(self) -> int:
        """A search takes several trials."""
        return self.duration_ms if self.search is None else expected_ms(self.duration_ms)

    @rule
    def _search_fits(self) -> Iterator[PydanticCustomError]:
        yield from search_errors(self, self.search, self.rate, self.number, MAX_CONDITIONS)
        if self.search is not None and self.pcap is not None:
            yield validation_error("a capture has its own times", at=("search",), hint="leave one out")

    @rule
    def _fits_its_generator(self) -> Iterator[PydanticCustomError]:
        if self.clients != 1:
            yield validation_error("one client sends packets", at=("clients",), hint="leave it out; use threads")
        if self.threads > self.flows:
            yield validation_error(
                f"{self.threads} threads for {self.flows} flows: each has flows of its own", at=("flows",)
            )
        if self.zipf is not None and self.threads > 1:
            yield validation_error("flows by Zipf's law are those of one thread", at=("threads",))

    def given_host_conflicts(self) -> Iterator[Conflict]:
        """A flood of segments that open connections fills tables of what answers them: in a lab of one's own only."""
        if self.protocol == "tcp-syn":
            yield "protocol", "segments that open connections go to a lab's hosts only", "use udp, tcp-ack or icmp"

    @rule
    def _echo_fits(self) -> Iterator[PydanticCustomError]:
        if not self.echo:
            return
        others = {"then": self.then != "drop", "pcap": self.pcap, "tunnel": self.tunnel, "via": self.via == "pktgen"}
        for key, value in others.items():
            if value:
                yield validation_error(f"echo and {key} exclude each other", at=(key,), hint="leave one out")

    @rule
    def _pktgen_can_send(self) -> Iterator[PydanticCustomError]:
        if self.via != "pktgen":
            if self.pktgen:
                yield validation_error(
                    "commands of pktgen are for the path pktgen", at=("pktgen",), hint="set via: pktgen"
                )
            return
        if self.stamp_every:
            yield validation_error("packets of pktgen have no time of the receiver's clock", at=("stamp_every",))
        if self.search is not None:
            yield validation_error("pktgen begins up to 0.1 s late, too late for a search", at=("search",))
        if self.ttl not in {None, pktgen.TTL}:
            yield validation_error(f"packets of pktgen have a TTL of {pktgen.TTL}", at=("ttl",), hint="leave it out")

    @rule
    def _capture_is_sent_one_way(self) -> Iterator[PydanticCustomError]:
        if self.pcap is None:
            return
        if self.top and (self.rate is not None or self.speed != 1.0):
            yield validation_error("top and rate or speed exclude each other", at=("top",), hint="leave one out")
        if self.rate is not None and self.speed != 1.0:
            yield validation_error("rate and speed exclude each other", at=("speed",), hint="leave one out")
        for key, value in (("via", self.via != "auto"), ("number", self.number), ("threads", self.threads > 1)):
            if value:
                yield validation_error(f"a capture has no {key}", at=(key,), hint="leave it out")

    @rule
    def _addresses_fit(self) -> Iterator[PydanticCustomError]:
        if self.src is not None and self.dst is not None and fields.version(self.src) != fields.version(self.dst):
            yield validation_error(f"from {self.src} to {self.dst}: both are of one version of IP", at=("src",))

    @rule
    def _tunnel_is_whole(self) -> Iterator[PydanticCustomError]:
        if self.tunnel is None:
            return
        for key, value in (("tunnel_src", self.tunnel_src), ("tunnel_dst", self.tunnel_dst)):
            if value is None:
                yield validation_error(f"a tunnel has its own addresses: set {key}", at=(key,))
        if self.tunnel == "vxlan" and (self.tunnel_id is None or self.tunnel_id >= 1 << 24):
            yield validation_error("a VXLAN has an identifier from 0 to 16777215", at=("tunnel_id",))
