//! Raw frames: what a packet generator sends, what a packet receiver counts, and their figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A generator of frames on one interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PacketGeneratorSpec {
    /// The interface; that of the route to the first destination if absent.
    pub device: Option<String>,
    /// The path into it.
    pub via: GeneratorPath,
    /// What every frame is made of.
    pub frame: FrameSpec,
    /// The flows among which the frames are distributed.
    pub flows: PacketFlows,
    /// Frames per second over all threads; as fast as the path takes them if absent.
    pub rate_pps: Option<f64>,
    /// Frames over all threads, after which it ends.
    pub number: Option<u64>,
    /// Duration, ms, including the warm-up; until `number` or a stop if absent.
    pub duration_ms: Option<u64>,
    /// Leading time whose figures are kept but flagged, ms.
    pub warmup_ms: u64,
    /// Threads; the flows are distributed evenly.
    pub threads: u32,
    /// Frames that the kernel passes to the driver together; by the rate if absent.
    pub batch: Option<u32>,
    /// One frame in this many has its time in it; 0 is none.
    pub stamp_every: u32,
    /// The number in every frame by which a receiver knows the frames of this test.
    pub test_id: u32,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
    /// The capture whose frames are sent instead, for `pcap`.
    pub capture: Option<CaptureSpec>,
    /// Whether it may send on the interface of the default route.
    pub may_use_default_route: bool,
    /// Further commands of the kernel's packet generator, each with its value, for `pktgen`.
    pub pktgen: BTreeMap<String, String>,
    /// Flows that are replaced per second by ones with other ports; none if absent.
    pub new_flows_per_s: Option<f64>,
}

/// The path of generated frames into an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GeneratorPath {
    /// The fastest one that the interface, the frames and the rights allow.
    Auto,
    /// A BPF program that the kernel runs on pages of its own (live frames).
    Xdp,
    /// AF_XDP sockets.
    AfXdp,
    /// Packet sockets.
    AfPacket,
    /// The kernel's packet generator.
    Pktgen,
    /// Packet sockets, with the frames of a capture.
    Pcap,
}

/// The path of received frames out of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverPath {
    /// The fastest one that the interface and the rights allow.
    Auto,
    /// A BPF program at the driver.
    Xdp,
    /// Packet sockets.
    AfPacket,
}

/// What a frame is made of, from outside to inside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameSpec {
    /// Lengths in turn by their shares; without FCS.
    pub sizes: Vec<FrameSize>,
    /// Source MAC address; the interface's if absent.
    pub source_mac: Option<String>,
    /// Destination MAC address; if absent, that of the destination or of its gateway is asked for.
    pub destination_mac: Option<String>,
    /// VLAN tags, the outermost first.
    pub vlans: Vec<VlanSpec>,
    /// A tunnel around the packet.
    pub outer: Option<OuterSpec>,
    /// Source addresses, of the same version as the destinations; the interface's own address if absent.
    pub sources: Option<AddressRange>,
    /// Destination addresses.
    pub destinations: AddressRange,
    /// The kind of packet.
    pub transport: FrameTransport,
    /// Source ports; for ICMP identifiers.
    pub source_ports: PortRange,
    /// Destination ports; ICMP has none.
    pub destination_ports: PortRange,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Whether UDP over IPv4 has a checksum; over IPv6 it has one.
    pub has_udp_checksum: bool,
    /// A whole frame as hex, instead of all of the above but the sizes: only its last bytes are those of the test.
    pub template: Option<String>,
}

/// One length of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameSize {
    /// Bytes from the destination MAC address to the last byte in front of the FCS.
    pub bytes: u32,
    /// How many of each round of the mix have this length.
    pub count: u32,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VlanSpec {
    /// Its protocol: 0x8100, or 0x88a8 outside of another one.
    pub protocol: u16,
    /// The first VLAN.
    pub first: u16,
    /// The last VLAN: flows have them in turn.
    pub last: u16,
    /// Priority, 0 to 7.
    pub priority: u8,
}

/// A tunnel around a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OuterSpec {
    /// Its protocol.
    pub kind: OuterKind,
    /// The source address outside.
    pub source: String,
    /// The destination address outside.
    pub destination: String,
    /// The network identifier of VXLAN, or the key of GRE; GRE has none if absent.
    pub identifier: Option<u32>,
}

/// A protocol of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OuterKind {
    /// GRE (RFC 2784, 2890) with an IP packet inside.
    Gre,
    /// VXLAN (RFC 7348) with a frame inside, which has no VLAN tag.
    Vxlan,
}

/// Addresses from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressRange {
    /// The first one.
    pub first: String,
    /// The last one.
    pub last: String,
    /// How flows have them.
    pub order: FieldOrder,
}

/// Ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortRange {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// How flows have them.
    pub order: FieldOrder,
}

/// How the values of a range are distributed among flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldOrder {
    /// In turn.
    InTurn,
    /// At random.
    Random,
}

/// What is in an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrameTransport {
    /// UDP datagrams.
    Udp,
    /// TCP segments that open a connection.
    TcpSyn,
    /// TCP segments as of an open connection.
    TcpAck,
    /// ICMP or ICMPv6 echo requests.
    IcmpEcho,
}

/// The flows of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PacketFlows {
    /// How many; each has its own sequence numbers.
    pub count: u32,
    /// The order of their frames.
    pub order: FieldOrder,
    /// The exponent of Zipf's law for the flows' shares, at random; all have the same share if absent.
    pub zipf: Option<f64>,
    /// Seed of all random decisions.
    pub seed: u64,
}

/// A capture that is sent again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureSpec {
    /// The file: pcap or pcapng.
    pub file: String,
    /// When its frames are sent.
    pub timing: CaptureTiming,
    /// How much faster than recorded, for their own timing.
    pub speed: f64,
    /// How often it is sent; until the end of the duration if absent.
    pub loops: Option<u64>,
    /// Networks whose addresses become those of another one of the same length, each as `from` to `to`, in CIDR notation.
    pub networks: BTreeMap<String, String>,
    /// The MAC addresses become those of the frame's specification.
    pub rewrites_macs: bool,
    /// The outermost VLAN of every frame: 0 takes tags away; unchanged if absent.
    pub vlan: Option<u16>,
    /// Whether frames that the capture has only in part are sent with zeros in the place of what is missing.
    pub pads_cut_frames: bool,
}

/// When the frames of a capture are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureTiming {
    /// As recorded.
    Own,
    /// At the specification's rate.
    Rate,
    /// As fast as the path takes them.
    Top,
}

/// A receiver of frames on one interface. It counts those of one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PacketReceiverSpec {
    /// The interface; that with the address below if absent.
    pub device: Option<String>,
    /// An address of the interface.
    pub address: Option<String>,
    /// A destination, where neither is named: the interface is that of the route to it, as a generator's is.
    pub toward: Option<String>,
    /// The path out of it.
    pub via: ReceiverPath,
    /// The number of the test.
    pub test_id: u32,
    /// The frames are those of the kernel's packet generator, with its numbers instead of the test's; absent otherwise.
    pub pktgen: Option<PktgenStreams>,
    /// Flows that have counters of their own; frames of higher ones are counted together.
    pub flows: u32,
    /// What becomes of the test's frames. Other frames pass.
    pub then: ReceivedFrames,
    /// Whether the delays of frames that have a time in them are measured.
    pub measures_delay: bool,
    /// Whether the frames come back to their generator, so that their delays are round trips.
    pub is_round_trip: bool,
    /// By how much the generator's clock is ahead of this one, ns; 0 on one host.
    pub clock_ahead_ns: i64,
    /// Duration, ms, from the start of the load; until a stop if absent.
    pub duration_ms: Option<u64>,
    /// Time after the duration in which frames still count, ms.
    pub drain_ms: u64,
    /// Leading time whose delays are kept but flagged, ms.
    pub warmup_ms: u64,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
}

/// The frames of the kernel's packet generator (pktgen), one stream of each of its threads, which count as flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PktgenStreams {
    /// The first source port of the first stream.
    pub first_port: u16,
    /// Source ports of each stream, those of one behind those of the other; 0 is a single stream of any port.
    pub ports: u16,
    /// Whether every frame has a number of its own; copies of one frame have the same, so that only counts are known.
    pub has_numbers: bool,
}

/// What becomes of received frames of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceivedFrames {
    /// They end here.
    Drop,
    /// The host's stack gets them.
    Pass,
    /// They return to their sender, with addresses and ports exchanged.
    Echo,
}

/// The figures of a packet generator or of a packet receiver: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketsReport {
    /// Of a generator.
    pub generator: Option<PacketsSent>,
    /// Of a receiver.
    pub receiver: Option<PacketsReceived>,
}

/// The figures of a packet generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketsSent {
    /// The path that it used.
    pub via: GeneratorPath,
    /// Why this one.
    pub via_reason: String,
    /// Frames given to the interface's driver.
    pub sent: u64,
    /// Their bytes, without FCS.
    pub sent_bytes: u64,
    /// Of the frames given to it, those that the driver or its queue refused; absent if it does not say.
    pub refused: Option<u64>,
    /// Frames that were due and never sent: the generator was at its limit. Absent without a rate.
    pub unsent: Option<u64>,
    /// How late frames were, 99th percentile, µs; absent without a rate or if the path does not say.
    pub late_p99_us: Option<f64>,
    /// When the first frame was sent, ns.
    pub first_ns: Option<u64>,
    /// When the last frame was sent, ns.
    pub last_ns: Option<u64>,
    /// The destination's MAC address.
    pub destination_mac: Option<String>,
    /// Frames by length.
    pub by_size: Vec<SizeCount>,
    /// The first flows.
    pub flows: Vec<PacketFlowCount>,
    /// The interface's own counters.
    pub interface: InterfaceCounts,
}

/// The figures of a packet receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketsReceived {
    /// The path that it used.
    pub via: ReceiverPath,
    /// Why this one.
    pub via_reason: String,
    /// Frames of the test, duplicates included.
    pub received: u64,
    /// Their bytes, without FCS.
    pub received_bytes: u64,
    /// Of them, frames that had arrived before; absent if frames have no numbers of their own.
    pub duplicates: Option<u64>,
    /// Of them, frames that arrived after one of their flow with a higher number (RFC 4737); absent likewise.
    pub reordered: Option<u64>,
    /// Of the reordered frames, those so far behind that they may be duplicates: 64 numbers or more.
    pub behind_window: u64,
    /// Frames of flows that have no counters of their own; they are in `received` and in no other count.
    pub beyond_flows: u64,
    /// Frames that are not of the test.
    pub foreign: u64,
    /// Frames that its own queue dropped; absent where that cannot be known.
    pub overrun: Option<u64>,
    /// Frames that returned to their sender.
    pub echoed: u64,
    /// Flows of which at least one frame arrived.
    pub flows_seen: u32,
    /// When the first frame arrived, ns; absent if there was none, or where the path does not say.
    pub first_ns: Option<u64>,
    /// When the last frame arrived, ns.
    pub last_ns: Option<u64>,
    /// Frames by length.
    pub by_size: Vec<SizeCount>,
    /// The first flows.
    pub flows: Vec<PacketFlowCount>,
    /// The interface's own counters.
    pub interface: InterfaceCounts,
}

/// Frames of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SizeCount {
    /// Bytes, without FCS.
    pub bytes: u32,
    /// Frames.
    pub frames: u64,
}

/// The counters of one flow, at its generator or at its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketFlowCount {
    /// The flow's number within its test.
    pub flow: u32,
    /// Frames sent, or received with duplicates.
    pub frames: u64,
    /// One more than the highest sequence number.
    pub numbers: u64,
    /// Frames that had arrived before.
    pub duplicates: u64,
    /// Frames that arrived after one with a higher number.
    pub reordered: u64,
}

/// By how much an interface's own counters grew while the task ran, with the frames of others; absent if unreadable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceCounts {
    /// Packets received.
    pub rx_packets: Option<u64>,
    /// Received packets that were dropped.
    pub rx_dropped: Option<u64>,
    /// Packets sent.
    pub tx_packets: Option<u64>,
    /// Packets that were to be sent and were dropped.
    pub tx_dropped: Option<u64>,
}
