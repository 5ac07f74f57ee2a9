//! Facts about a host: its fingerprint, its capabilities, its network.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A host's fingerprint: the facts needed to compare a figure with another machine's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// The host's own name.
    pub hostname: String,
    /// Changes with every boot: agents with equal ids share one kernel and one monotonic clock.
    pub boot_id: Option<String>,
    /// Operating system's release, as the kernel gives it.
    pub kernel: String,
    /// Distribution, from os-release.
    pub distribution: Option<String>,
    /// Machine architecture.
    pub architecture: String,
    /// CPU model.
    pub cpu_model: Option<String>,
    /// CPUs that this agent may run on.
    pub cpus: u32,
    /// The clock that the machine's CPUs keep under load without a boost, Hz: the mean over all of them. Absent where
    /// neither the kernel nor the CPU's name tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_clock_hz: Option<u64>,
    /// Physical memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Default congestion control.
    pub tcp_congestion: Option<String>,
    /// The clock.
    pub clock: ClockQuality,
    /// Interfaces with their offloads.
    pub interfaces: Vec<InterfaceFacts>,
}

/// How long an idle CPU of a host takes to run a thread that was woken up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WakeUpFacts {
    /// Wake-ups that were measured.
    pub samples: u32,
    /// From when a sleeping thread's timer was due until it ran, µs: the median.
    pub timer_p50_us: f64,
    /// The same at the 99th percentile, µs.
    pub timer_p99_us: f64,
    /// From when a thread woke another one up, on another CPU if there is one, until that one ran, µs: the median.
    pub thread_p50_us: f64,
    /// The same at the 99th percentile, µs.
    pub thread_p99_us: f64,
    /// CPUs of the waking and of the woken thread.
    pub cpus: [u32; 2],
}

/// The quality of a host's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockQuality {
    /// The kernel's clock source.
    pub source: Option<String>,
    /// Whether the kernel reports its wall clock as synchronised.
    pub synchronised: Option<bool>,
    /// The kernel's bound on the wall clock's error, µs.
    pub max_error_us: Option<u64>,
    /// The smallest step seen between two reads of the monotonic clock, ns.
    pub resolution_ns: Option<u64>,
}

/// One interface and its offloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceFacts {
    /// The interface's name.
    pub name: String,
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// TCP segmentation offload.
    pub tso: Option<bool>,
    /// Generic segmentation offload.
    pub gso: Option<bool>,
    /// Generic receive offload.
    pub gro: Option<bool>,
    /// Speed of the link, bit/s; only of a device, because virtual interfaces name any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
}

/// A feature that an agent can or cannot use on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capability {
    /// `tun`, `cgroup`, `psi`, `irq_pressure` ...
    pub name: String,
    /// Whether it works.
    pub available: bool,
    /// The reason why it does not.
    pub reason: Option<String>,
}

/// A host's addresses and routes at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkView {
    /// Interfaces.
    pub interfaces: Vec<InterfaceView>,
    /// Routes, IPv4 and IPv6.
    pub routes: Vec<RouteView>,
}

/// One interface's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceView {
    /// The interface's name.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// Addresses with prefix length, as in `10.1.2.3/24`.
    pub addresses: Vec<String>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteView {
    /// The destination, as in `10.1.0.0/16`; the default route is `0.0.0.0/0` or `::/0`.
    pub destination: String,
    /// The next hop, if there is one.
    pub gateway: Option<String>,
    /// The interface it leaves by.
    pub interface: String,
}
