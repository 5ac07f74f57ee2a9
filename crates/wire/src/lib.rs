//! The contract between the control plane and an agent: one JSON object per line, commands on the agent's stdin,
//! events on its stdout. Owns the types and nothing else: no I/O, no clock, no behaviour.
//! `contract/agent.schema.json` and Python's models are generated from it; a test fails when they are stale.
//!
//! Conventions: a bare `*_ns` (`t_ns`, `start_ns`) is an instant on the sending agent's CLOCK_MONOTONIC; other units
//! are in the field's name. An unknown figure is absent (`null`), never 0.

mod command;
mod counts;
mod emulation;
mod event;
mod facts;
mod failure_cause;
mod histogram;
mod http;
mod iperf3_login;
mod iperf3_options;
mod observation;
mod outcome;
mod packets;
pub mod scenario;
mod schema;
mod stream;
mod target;
mod tunnel;
mod workload;

pub use command::Command;
pub use counts::{unless_zero, Counts, FlowCounts, HttpCounts, NoCounts, StatusCounts, TrafficCounts, TunnelCounts};
pub use emulation::{EmulateSpec, FrameCounts, LinkCounts, LinkEffects};
pub use event::{Blame, ErrorReport, Event, ExitUsage, FlowProgress, Standing};
pub use facts::{
    Capability, ClockQuality, HostFacts, InterfaceFacts, InterfaceView, NetworkView, RouteView, WakeUpFacts,
};
pub use failure_cause::FailureCause;
pub use histogram::HistogramReport;
pub use http::{
    DelayShape, DnsPolicy, Header, HttpAnswer, HttpRequest, HttpRoute, HttpScript, HttpSpec, HttpTimeouts, RateStage,
    Resolution, SocketOptions, TlsIdentity, TlsSpec, TlsVersion,
};
pub use iperf3_login::{Iperf3Login, Iperf3Users, RsaPadding};
pub use iperf3_options::Iperf3Options;
pub use observation::{
    CgroupSample, ClockSample, CpuSample, DiskSample, InterfaceSample, MachineSample, MemorySample, NetworkSample,
    Observation, Pressure, PressureSample, ProcessSample, QueueSample, QuotaSample, SoakerSample, SoftnetSample,
    TcpSample, ThreadTime, UdpSample,
};
pub use outcome::{
    DatagramReport, DelayReport, FlowReport, LengthsReport, LoadReport, MachineUse, Outcome, QuotaUse, Side,
    ThreadReport,
};
pub use packets::{
    AddressRange, CaptureSpec, CaptureTiming, FieldOrder, FrameSize, FrameSpec, FrameTransport, GeneratorPath,
    InterfaceCounts, OuterKind, OuterSpec, PacketFlowCount, PacketFlows, PacketGeneratorSpec, PacketReceiverSpec,
    PacketsReceived, PacketsReport, PacketsSent, PktgenStreams, PortRange, ReceivedFrames, ReceiverPath, SizeCount,
    VlanSpec,
};
pub use scenario::ScenarioSpec;
pub use stream::{ReceiveMethod, SendMethod, StreamOptions, StreamPayload, TcpReport};
pub use target::{Direction, IpVersion, SessionKey, Target};
pub use tunnel::{
    CryptoReport, CryptoSpec, TunnelAction, TunnelActionKind, TunnelAttemptReport, TunnelClientReport,
    TunnelExpectation, TunnelFile, TunnelIdentities, TunnelIdentity, TunnelOccasion, TunnelPacketSizes, TunnelReport,
    TunnelSpec, TunnelState, TunnelTraffic, TunnelUser,
};
pub use workload::{
    PeerLimits, PeerProgram, ProcessSpec, ProfileSpec, Protocol, RrSpec, ServeSpec, SizeShare, TcpSpec, UdpSpec,
    UndoSpec, Workload,
};

/// The contract's version; it increases when an old reader would misunderstand a new line.
pub const PROTOCOL_VERSION: u32 = 2;

/// The longest line that either side accepts, in bytes: a bound on the memory that a peer can occupy.
pub const LINE_LIMIT_BYTES: usize = 16 * 1024 * 1024;
