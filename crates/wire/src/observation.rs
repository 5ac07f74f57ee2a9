//! Samples of a host: the kernel's cumulative counters, so that a lost sample loses no count.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// One sample of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// The trial that the control plane named.
    pub trial: Option<String>,
    /// When the sample was begun, ns.
    pub t_ns: u64,
    /// CPU time that this host's observer has used since it began, s: the cost of observing.
    pub observer_cpu_s: f64,
    /// Resources that all hosts on the machine share.
    pub machine: Option<MachineSample>,
    /// The host's own network counters.
    pub network: NetworkSample,
    /// The agent's cgroup: the CPU time of all processes of this host.
    pub cgroup: Option<CgroupSample>,
    /// The agent, every process that it started, and the processes that `observe` named.
    pub processes: Vec<ProcessSample>,
    /// A CPU quota above this host's own group, as a container has. Read once a second; absent in the samples
    /// between, and where there is none.
    pub quota: Option<QuotaSample>,
    /// One row per CPU while `observe` asks for the soaker.
    pub soaker: Option<Vec<SoakerSample>>,
}

/// CPUs, memory, pressure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineSample {
    /// One row per online CPU.
    pub cpus: Vec<CpuSample>,
    /// Memory.
    pub memory: MemorySample,
    /// Pressure stall information, read once a second; absent in the samples between, and if the kernel does not keep
    /// it.
    pub pressure: Pressure,
    /// One row per CPU of /proc/net/softnet_stat.
    pub softnet: Vec<SoftnetSample>,
    /// Context switches of all CPUs since boot.
    pub context_switches: Option<u64>,
    /// Hardware interrupts of all CPUs since boot.
    pub interrupts: Option<u64>,
    /// Clock speed and thermal throttling of each CPU that reports one of them. Read once a second; absent in the
    /// samples between.
    pub clocks: Option<Vec<ClockSample>>,
    /// One row per disk that has been used. Read once a second; absent in the samples between, and if the kernel does
    /// not report them.
    pub disks: Option<Vec<DiskSample>>,
}

/// One CPU's clock speed, as the kernel reports it at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockSample {
    /// CPU number.
    pub cpu: u32,
    /// Clock speed, MHz. A virtual machine often sees a constant one.
    pub mhz: Option<f64>,
    /// Times since boot that the core was slowed down because it was hot.
    pub core_throttles: Option<u64>,
    /// The same of its package.
    pub package_throttles: Option<u64>,
}

/// One disk (/proc/diskstats).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskSample {
    /// The disk's name.
    pub name: String,
    /// Reads that have completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes that have completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time with a request outstanding, ms.
    pub busy_ms: u64,
}

/// A control group above the host whose CPU quota holds for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaSample {
    /// The group's folder.
    pub group: String,
    /// The quota, in CPUs.
    pub cpus: f64,
    /// Periods in which the quota was used up, since the group was made.
    pub throttled_periods: u64,
    /// Time for which the group's threads were kept from running, s: the sum over CPUs.
    pub throttled_s: f64,
}

/// One CPU's soaker: a thread of policy SCHED_IDLE that counts what is left of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoakerSample {
    /// CPU number.
    pub cpu: u32,
    /// Slices of a fixed number of arithmetic rounds that it has done since it began.
    pub slices: u64,
    /// Time of its fastest slice so far, ns: what a slice takes while nothing else runs on the CPU.
    pub fastest_ns: Option<u64>,
    /// Time of its fastest slice since the sample before, ns: longer where the CPU's clock went slower.
    pub recent_ns: Option<u64>,
    /// CPU time that the kernel charged to it, s. It includes interrupts that came while it ran.
    pub cpu_s: Option<f64>,
}

/// Seconds that one CPU has spent per kind, since boot (proc_stat).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuSample {
    /// CPU number.
    pub cpu: u32,
    /// User mode, niced included.
    pub user_s: f64,
    /// Kernel mode.
    pub system_s: f64,
    /// Idle.
    pub idle_s: f64,
    /// Idle with I/O outstanding.
    pub iowait_s: f64,
    /// Hardware interrupts.
    pub irq_s: f64,
    /// Soft interrupts: most of the network stack.
    pub softirq_s: f64,
    /// Taken by the hypervisor.
    pub steal_s: f64,
    /// Part of `user_s` of niced processes.
    pub nice_s: f64,
}

/// Memory of the machine, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySample {
    /// Total memory.
    pub total_bytes: u64,
    /// Memory available to a new program.
    pub available_bytes: u64,
}

/// Pressure stall information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// Waiting for a CPU.
    pub cpu: Option<PressureSample>,
    /// Waiting for memory.
    pub memory: Option<PressureSample>,
    /// Waiting for I/O.
    pub io: Option<PressureSample>,
    /// Stalled by interrupts.
    pub irq: Option<PressureSample>,
}

/// Stalled time since boot, µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PressureSample {
    /// Some task was stalled.
    pub some_us: Option<u64>,
    /// All tasks were stalled.
    pub full_us: Option<u64>,
}

/// One CPU's packet backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoftnetSample {
    /// CPU number.
    pub cpu: u32,
    /// Frames processed.
    pub processed: u64,
    /// Frames dropped because the backlog was full.
    pub dropped: u64,
    /// Times that the budget ended with work left.
    pub squeezed: u64,
}

/// A host's interfaces and protocol counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkSample {
    /// One row per interface.
    pub interfaces: Vec<InterfaceSample>,
    /// TCP.
    pub tcp: Option<TcpSample>,
    /// UDP, the sum of IPv4 and IPv6. Read once a second; absent in the samples between.
    pub udp: Option<UdpSample>,
    /// One row per interface that packets leave by a queue; absent if the kernel does not report them, and between
    /// samples of a second apart on hosts with many interfaces.
    pub queues: Option<Vec<QueueSample>>,
}

/// One interface's counters (/proc/net/dev).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceSample {
    /// The interface's name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Packets dropped on receipt.
    pub rx_dropped: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Transmit errors.
    pub tx_errors: u64,
    /// Packets dropped on sending.
    pub tx_dropped: u64,
}

/// One interface's queue for sending (its root queueing discipline), with the queues inside it. /proc/net/dev does not
/// count what it drops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueSample {
    /// The interface's name.
    pub name: String,
    /// The discipline: `fq_codel`, `tbf`.
    pub kind: String,
    /// Packets that left it; a bundle of segments counts as many.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Times that it held packets back for its rate.
    pub overlimits: u64,
    /// Bytes that wait in it now.
    pub backlog_bytes: u64,
}

/// TCP counters (RFC 4022 names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpSample {
    /// Segments received.
    pub in_segments: u64,
    /// Segments sent, without retransmissions.
    pub out_segments: u64,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Connections opened actively.
    pub active_opens: u64,
    /// Connections opened passively.
    pub passive_opens: u64,
    /// Connections in ESTABLISHED or CLOSE-WAIT now.
    pub established: u64,
    /// Connections dropped because the accept queue was full. Read once a second; absent in the samples between.
    pub listen_drops: Option<u64>,
}

/// UDP counters (RFC 4113 names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UdpSample {
    /// Datagrams delivered.
    pub in_datagrams: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
    /// Datagrams for a port without a listener.
    pub no_ports: u64,
    /// Datagrams not delivered for another reason.
    pub in_errors: u64,
    /// Of these, because a receive buffer was full.
    pub receive_buffer_errors: u64,
    /// Sends refused because a send buffer was full.
    pub send_buffer_errors: u64,
}

/// A cgroup's accounting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupSample {
    /// CPU time, s.
    pub usage_s: f64,
    /// Part of it in user mode, s.
    pub user_s: Option<f64>,
    /// Part of it in the kernel, s.
    pub system_s: Option<f64>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Time throttled by a CPU limit, s.
    pub throttled_s: Option<f64>,
}

/// One process's accounting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSample {
    /// The task's `name`; `agent` for the agent itself.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// CPU time in user mode, s.
    pub user_s: f64,
    /// CPU time in the kernel, s.
    pub system_s: f64,
    /// CPU time by the scheduler's clock, s: exact to the nanosecond, where `user_s` and `system_s` count hundredths of a
    /// second. Absent for a process that has or had several threads, and where the kernel does not keep it.
    #[serde(default)]
    pub scheduled_s: Option<f64>,
    /// Time that its threads were runnable and waited for a CPU, s, summed. Of several threads it is read together with the
    /// switches. Absent where the kernel does not keep it.
    #[serde(default)]
    pub runnable_wait_s: Option<f64>,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Voluntary context switches of all threads. Read once a second, absent in the samples between; less often for a
    /// process with many threads.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches of all threads. Read together with the voluntary ones.
    pub involuntary_switches: Option<u64>,
    /// Of several threads, the one that used the most CPU time since the reading before. Read together with the switches.
    pub busiest_thread: Option<ThreadTime>,
}

/// The CPU time of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTime {
    /// Thread id.
    pub tid: u32,
    /// CPU time since the thread began, s.
    pub cpu_s: f64,
}
