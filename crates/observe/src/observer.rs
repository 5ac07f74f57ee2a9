//! Samples a host. Owns the open files, their shared buffer and the extension of 32-bit counts. Starts no thread and
//! reads no clock: the caller passes the time, the scope and the cost.

use std::io;
use std::path::{Path, PathBuf};

use leadline_wire::{
    CgroupSample, MachineSample, NetworkSample, Observation, Pressure, PressureSample, SoftnetSample, UdpSample,
};

use crate::cgroup::CgroupPaths;
use crate::hardware::Hardware;
use crate::parse;
use crate::process::Processes;
use crate::quota::Quota;
use crate::reread::{Buffer, Reread};

/// Reads a host's counters. A file that cannot be opened at the start stays absent from every sample.
#[derive(Debug)]
pub struct Observer {
    machine: MachineFiles,
    network: NetworkFiles,
    cgroup: CgroupFiles,
    quota: Option<Quota>,
    processes: Processes,
    softnet: Vec<Widened>,
    buffer: Buffer,
    next_whole_ns: u64,
}

/// The period of full samples, which include counters that are expensive to read and change slowly: listen drops,
/// UDP's counters over both families, PSI, clock speeds, disks, the context switches of every thread. It is a little under a second, so
/// that a sampling period that divides the second meets it. Samples between have `None` for these, because an old
/// figure could be mistaken for a fresh one.
const WHOLE_PERIOD_NS: u64 = 975_000_000;

impl Observer {
    /// Opens the files that can stay open. The network's files belong to the namespace of the calling thread.
    pub fn open(cgroup: &CgroupPaths) -> Self {
        Self {
            machine: MachineFiles::open(),
            network: NetworkFiles::open(),
            cgroup: CgroupFiles::open(cgroup),
            quota: Quota::find(cgroup.v2.as_deref()),
            processes: Processes::default(),
            softnet: Vec::new(),
            buffer: Buffer::default(),
            next_whole_ns: 0,
        }
    }

    /// Makes the next sample a full one, for the beginning or end of a phase.
    pub fn make_next_whole(&mut self) {
        self.next_whole_ns = 0;
    }

    /// Whether a sample at this time would be a full one.
    pub fn is_whole_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_whole_ns
    }

    /// Takes one sample. `processes` are names and process ids; processes that do not exist are omitted. `machine`
    /// tells whether to read what all hosts of one machine share, which one of them does for all. The caller fills in
    /// `trial`, `observer_cpu_s`, `soaker` and the network's queues.
    pub fn sample(&mut self, now_ns: u64, machine: bool, processes: &[(String, u32)]) -> Observation {
        let whole = self.is_whole_due(now_ns);
        if whole {
            self.next_whole_ns = now_ns.saturating_add(WHOLE_PERIOD_NS);
        }
        let machine = if machine { self.machine.sample(whole, &mut self.softnet, &mut self.buffer) } else { None };
        Observation {
            trial: None,
            t_ns: now_ns,
            observer_cpu_s: 0.0,
            machine,
            network: self.network.sample(whole, &mut self.buffer),
            cgroup: self.cgroup.sample(&mut self.buffer),
            processes: self.processes.sample(processes, whole, &mut self.buffer),
            quota: self.quota.as_ref().filter(|_| whole).and_then(|quota| quota.sample(&mut self.buffer)),
            soaker: None,
        }
    }
}

/// A file that may be missing.
type Source = Option<Reread>;

fn source(path: impl AsRef<Path>) -> Source {
    Reread::open(path).ok()
}

/// Parses the file's current content.
fn parsed<T>(file: &Source, buffer: &mut Buffer, parser: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    parser(file.as_ref()?.read(buffer).ok()?)
}

#[derive(Debug)]
struct MachineFiles {
    stat: Source,
    meminfo: Source,
    softnet: Source,
    pressure_cpu: Source,
    pressure_memory: Source,
    pressure_io: Source,
    pressure_irq: Source,
    hardware: Hardware,
}

impl MachineFiles {
    fn open() -> Self {
        Self {
            stat: source("/proc/stat"),
            meminfo: source("/proc/meminfo"),
            softnet: source("/proc/thread-self/net/softnet_stat"),
            pressure_cpu: source("/proc/pressure/cpu"),
            pressure_memory: source("/proc/pressure/memory"),
            pressure_io: source("/proc/pressure/io"),
            pressure_irq: source("/proc/pressure/irq"),
            hardware: Hardware::open(),
        }
    }

    /// `None` if CPUs or memory cannot be read: a machine sample needs both.
    fn sample(&self, whole: bool, widened: &mut Vec<Widened>, buffer: &mut Buffer) -> Option<MachineSample> {
        let stat = |text: &[u8]| Some((parse::machine::cpus(text), parse::machine::switches_and_interrupts(text)));
        let (cpus, (context_switches, interrupts)) = parsed(&self.stat, buffer, stat)?;
        let memory = parsed(&self.meminfo, buffer, parse::machine::memory)?;
        let mut softnet = parsed(&self.softnet, buffer, |text| Some(parse::machine::softnet(text))).unwrap_or_default();
        for row in &mut softnet {
            widen(widened, row);
        }
        let mut pressure = |file: &Source| -> Option<PressureSample> {
            whole.then(|| parsed(file, buffer, parse::machine::pressure)).flatten()
        };
        let pressure = Pressure {
            cpu: pressure(&self.pressure_cpu),
            memory: pressure(&self.pressure_memory),
            io: pressure(&self.pressure_io),
            irq: pressure(&self.pressure_irq),
        };
        let clocks = whole.then(|| self.hardware.clocks(buffer)).flatten();
        let disks = whole.then(|| self.hardware.disks(buffer)).flatten();
        (!cpus.is_empty()).then_some(MachineSample {
            cpus,
            memory,
            pressure,
            softnet,
            context_switches,
            interrupts,
            clocks,
            disks,
        })
    }
}

/// One CPU's row of softnet_stat, extended past the 2^32 at which the kernel's counts wrap: at a million frames a
/// second that is every 72 minutes.
#[derive(Debug)]
struct Widened {
    cpu: u32,
    raw: [u32; 3],
    total: [u64; 3],
}

fn widen(known: &mut Vec<Widened>, row: &mut SoftnetSample) {
    let total = [row.processed, row.dropped, row.squeezed];
    let raw = total.map(|count| count as u32);
    let Some(entry) = known.iter_mut().find(|entry| entry.cpu == row.cpu) else {
        known.push(Widened { cpu: row.cpu, raw, total });
        return;
    };
    for ((total, before), now) in entry.total.iter_mut().zip(entry.raw).zip(raw) {
        *total += u64::from(now.wrapping_sub(before));
    }
    entry.raw = raw;
    [row.processed, row.dropped, row.squeezed] = entry.total;
}

#[derive(Debug)]
struct NetworkFiles {
    dev: Source,
    snmp: Source,
    netstat: Source,
    /// The outer `None`: the file exists but could not be opened. The inner one: this kernel has no IPv6.
    snmp6: Option<Source>,
}

impl NetworkFiles {
    fn open() -> Self {
        let snmp6 = match Reread::open("/proc/thread-self/net/snmp6") {
            Ok(file) => Some(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
            Err(_) => None,
        };
        Self {
            dev: source("/proc/thread-self/net/dev"),
            snmp: source("/proc/thread-self/net/snmp"),
            netstat: source("/proc/thread-self/net/netstat"),
            snmp6,
        }
    }

    fn sample(&self, whole: bool, buffer: &mut Buffer) -> NetworkSample {
        let interfaces = parsed(&self.dev, buffer, |text| Some(parse::network::interfaces(text))).unwrap_or_default();
        let both = |text: &[u8]| Some((parse::network::tcp(text), parse::network::udp(text)));
        let (mut tcp, over_ipv4) = parsed(&self.snmp, buffer, both).unwrap_or_default();
        if !whole {
            return NetworkSample { interfaces, tcp, udp: None, queues: None };
        }
        if let Some(tcp) = &mut tcp {
            tcp.listen_drops = parsed(&self.netstat, buffer, parse::network::listen_drops);
        }
        let udp = match (&self.snmp6, over_ipv4) {
            (Some(None), over_ipv4) => over_ipv4,
            (Some(file), Some(over_ipv4)) => {
                parsed(file, buffer, parse::network::udp6).map(|over_ipv6| sum(over_ipv4, over_ipv6))
            }
            // A sum with an unknown part is unknown.
            _ => None,
        };
        NetworkSample { interfaces, tcp, udp, queues: None }
    }
}

fn sum(one: UdpSample, other: UdpSample) -> UdpSample {
    UdpSample {
        in_datagrams: one.in_datagrams.wrapping_add(other.in_datagrams),
        out_datagrams: one.out_datagrams.wrapping_add(other.out_datagrams),
        no_ports: one.no_ports.wrapping_add(other.no_ports),
        in_errors: one.in_errors.wrapping_add(other.in_errors),
        receive_buffer_errors: one.receive_buffer_errors.wrapping_add(other.receive_buffer_errors),
        send_buffer_errors: one.send_buffer_errors.wrapping_add(other.send_buffer_errors),
    }
}

#[derive(Debug)]
struct CgroupFiles {
    cpu_stat: Source,
    cpuacct_usage: Source,
    cpuacct_stat: Source,
    memory: Source,
}

impl CgroupFiles {
    fn open(paths: &CgroupPaths) -> Self {
        let file = |folder: &Option<PathBuf>, name: &str| folder.as_ref().and_then(|folder| source(folder.join(name)));
        Self {
            cpu_stat: file(&paths.v2, "cpu.stat"),
            cpuacct_usage: file(&paths.v1_cpuacct, "cpuacct.usage"),
            cpuacct_stat: file(&paths.v1_cpuacct, "cpuacct.stat"),
            memory: file(&paths.v2, "memory.current").or_else(|| file(&paths.v1_memory, "memory.usage_in_bytes")),
        }
    }

    fn sample(&self, buffer: &mut Buffer) -> Option<CgroupSample> {
        let cpu = parsed(&self.cpu_stat, buffer, parse::cgroup::cpu_stat).or_else(|| self.version_1(buffer))?;
        Some(CgroupSample {
            usage_s: cpu.usage_s,
            user_s: cpu.user_s,
            system_s: cpu.system_s,
            memory_bytes: parsed(&self.memory, buffer, parse::cgroup::bytes),
            throttled_s: cpu.throttled_s,
        })
    }

    fn version_1(&self, buffer: &mut Buffer) -> Option<parse::cgroup::CgroupCpu> {
        let usage_s = parsed(&self.cpuacct_usage, buffer, parse::cgroup::cpuacct_usage_s)?;
        let split = parsed(&self.cpuacct_stat, buffer, |text| Some(parse::cgroup::cpuacct_stat_s(text)));
        let (user_s, system_s) = split.unwrap_or_default();
        Some(parse::cgroup::CgroupCpu { usage_s, user_s, system_s, throttled_s: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_32_bits_go_on_past_their_end() {
        let mut known = Vec::new();
        let row = |processed| SoftnetSample { cpu: 3, processed, dropped: 7, squeezed: 0 };
        let mut totals = Vec::new();
        for processed in [0xffff_fff0, 0x10, 0x30] {
            let mut row = row(processed);
            widen(&mut known, &mut row);
            totals.push((row.processed, row.dropped));
        }
        assert_eq!(totals, [(0xffff_fff0, 7), (0x1_0000_0010, 7), (0x1_0000_0030, 7)]);
    }

    #[test]
    fn missing_counters_are_absent_and_not_zero() {
        let nowhere = Some(PathBuf::from("/proc/self/no-such-folder"));
        let paths = CgroupPaths { v2: nowhere.clone(), v1_cpuacct: nowhere.clone(), v1_memory: nowhere };
        let sample = Observer::open(&paths).sample(5, false, &[]);
        assert_eq!((sample.cgroup, sample.machine, sample.t_ns), (None, None, 5));
        assert!(Observer::open(&CgroupPaths::default()).sample(5, false, &[]).cgroup.is_none());
    }

    #[test]
    fn expensive_counters_are_read_once_a_second() {
        let mut observer = Observer::open(&CgroupPaths::default());
        let own = [("own".to_owned(), std::process::id())];
        let mut is_whole = |at_ms: u64| {
            let sample = observer.sample(at_ms * 1_000_000, false, &own);
            let network = sample.network;
            let known = [network.udp.is_some(), network.tcp.unwrap().listen_drops.is_some()];
            assert_eq!(known[0], known[1]);
            // This process's threads come and go with its tests, so a full sample may miss some.
            assert!(known[0] || sample.processes[0].voluntary_switches.is_none());
            known[0]
        };
        let whole: Vec<u64> = (0..40).map(|tenth| tenth * 100).filter(|at_ms| is_whole(*at_ms)).collect();
        assert_eq!(whole, [0, 1000, 2000, 3000]);
        assert!(!is_whole(3_950) && is_whole(60_000));
        observer.make_next_whole();
        assert!(observer.sample(60_001_000_000, false, &own).network.udp.is_some());
    }

    #[test]
    fn this_machine_has_cpus_memory_and_a_loopback() {
        let sample = Observer::open(&CgroupPaths::default()).sample(0, true, &[]);
        let machine = sample.machine.unwrap();
        assert!(!machine.cpus.is_empty() && machine.memory.available_bytes < machine.memory.total_bytes);
        assert!(machine.cpus.iter().any(|cpu| cpu.idle_s + cpu.user_s + cpu.system_s > 0.0));
        assert!(sample.network.interfaces.iter().any(|interface| interface.name == "lo"));
        assert!(sample.network.tcp.unwrap().listen_drops.is_some() && sample.network.udp.is_some());
    }
}
