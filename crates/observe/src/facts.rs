//! A host's fingerprint, read once. Facts that need a system call are the agent's: whether the wall clock is
//! synchronised (adjtimex) and the interfaces' offloads (ethtool).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Instant;

use leadline_wire::{ClockQuality, HostFacts, InterfaceFacts};

use crate::parse;

/// Reads of the clock that determine its resolution; some tens of microseconds in all.
const CLOCK_READS: usize = 1000;

/// Returns the fingerprint of this host, as the calling thread sees it.
pub fn facts() -> HostFacts {
    let cpu_model = read("/proc/cpuinfo").and_then(|text| parse::host::cpu_model(&text));
    HostFacts {
        hostname: line("/proc/sys/kernel/hostname").unwrap_or_else(unknown),
        boot_id: boot_id(),
        kernel: line("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
        distribution: read("/etc/os-release")
            .or_else(|| read("/usr/lib/os-release"))
            .and_then(|text| parse::host::distribution(&text)),
        architecture: std::env::consts::ARCH.to_string(),
        base_clock_hz: base_clock_hz(Path::new("/sys/devices/system/cpu"), cpu_model.as_deref()),
        cpu_model,
        cpus: cpus(),
        memory_bytes: read("/proc/meminfo")
            .and_then(|text| parse::machine::memory(&text))
            .map(|memory| memory.total_bytes),
        tcp_congestion: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        clock: ClockQuality {
            source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            synchronised: None,
            max_error_us: None,
            resolution_ns: clock_resolution_ns(),
        },
        interfaces: interfaces(),
    }
}

/// Returns the identity that the kernel takes at each boot; `None` if it does not tell.
pub fn boot_id() -> Option<String> {
    line("/proc/sys/kernel/random/boot_id")
}

fn unknown() -> String {
    "unknown".to_string()
}

fn read(path: &str) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

/// Returns the content of a file of one line; `None` if it is missing or empty.
fn line(path: &str) -> Option<String> {
    let bytes = read(path)?;
    let text = String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    (!text.is_empty()).then_some(text)
}

fn cpus() -> u32 {
    let allowed = read("/proc/thread-self/status").and_then(|text| parse::host::allowed_cpus(&text));
    allowed.unwrap_or_else(|| available_parallelism().map_or(1, |count| count.get() as u32))
}

/// Returns the mean clock of the CPUs without a boost: by cpufreq (intel_pstate), by ACPI, or by the CPU's name.
/// `cpuinfo_max_freq` is none: most drivers count the boost in it, under which many CPUs never stay.
fn base_clock_hz(cpus: &Path, cpu_model: Option<&str>) -> Option<u64> {
    let folders = fs::read_dir(cpus).into_iter().flatten().flatten().map(|entry| entry.path());
    let known: Vec<u64> = folders.filter_map(|cpu| base_of_cpu(&cpu)).collect();
    let mean = known.iter().sum::<u64>().checked_div(known.len() as u64);
    mean.or_else(|| parse::host::named_clock_hz(cpu_model?))
}

fn base_of_cpu(cpu: &Path) -> Option<u64> {
    let number =
        |name: &str| fs::read_to_string(cpu.join(name)).ok()?.trim().parse::<u64>().ok().filter(|rate| *rate > 0);
    let of_cpufreq = number("cpufreq/base_frequency").map(|khz| khz.saturating_mul(1_000));
    of_cpufreq.or_else(|| number("acpi_cppc/nominal_freq").map(|mhz| mhz.saturating_mul(1_000_000)))
}

/// Returns the smallest step between two reads of the monotonic clock, ns.
fn clock_resolution_ns() -> Option<u64> {
    let mut before = Instant::now();
    let steps = (0..CLOCK_READS).map(|_| {
        let now = Instant::now();
        let step = now.duration_since(before).as_nanos() as u64;
        before = now;
        step
    });
    steps.filter(|step| *step > 0).min()
}

/// Returns the interfaces from /proc, which follows the network namespace, with their MTU from /sys, which does not.
fn interfaces() -> Vec<InterfaceFacts> {
    let dev = read("/proc/thread-self/net/dev").unwrap_or_default();
    let names: BTreeSet<String> = parse::network::interfaces(&dev).into_iter().map(|sample| sample.name).collect();
    // /sys shows the network namespace of the process that mounted it, where the same name may be another interface.
    let same_namespace = sys_interfaces().as_ref() == Some(&names);
    let facts = |name: String| InterfaceFacts {
        mtu: line(&format!("/sys/class/net/{name}/mtu")).filter(|_| same_namespace).and_then(|mtu| mtu.parse().ok()),
        tso: None,
        gso: None,
        gro: None,
        speed_bps: speed_bps(&name).filter(|_| same_namespace),
        name,
    };
    names.into_iter().map(facts).collect()
}

/// The speed that a device's driver reports. Virtual interfaces have no device; some drivers say -1.
fn speed_bps(name: &str) -> Option<u64> {
    let folder = format!("/sys/class/net/{name}");
    let megabits: u64 = line(&format!("{folder}/speed"))?.parse().ok()?;
    (megabits > 0 && Path::new(&folder).join("device").exists()).then(|| megabits.saturating_mul(1_000_000))
}

fn sys_interfaces() -> Option<BTreeSet<String>> {
    let entries = fs::read_dir("/sys/class/net").ok()?;
    // Interfaces are symbolic links there; a plain file (bonding_masters) is not an interface.
    let interfaces = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    Some(interfaces.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host() {
        let facts = facts();
        assert!(facts.cpus >= 1 && facts.memory_bytes.is_some_and(|bytes| bytes > 0));
        assert_ne!(facts.kernel, "unknown");
        assert_eq!(facts.boot_id.map(|id| id.len()), Some(36));
        assert!(facts.clock.resolution_ns.is_some_and(|step| step > 0));
        assert!(facts.interfaces.iter().any(|interface| interface.name == "lo"));
    }

    #[test]
    fn base_clock_is_that_of_the_kernel_then_that_of_the_name() {
        let folder = std::env::temp_dir().join(format!("leadline-base-clock-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let named = Some("Example CPU 9000 @ 2.60GHz");
        assert_eq!(base_clock_hz(&folder, named), Some(2_600_000_000));
        assert_eq!(base_clock_hz(&folder, Some("Example CPU")), None);
        write("cpu0/cpufreq/cpuinfo_max_freq", "5000000\n");
        assert_eq!(base_clock_hz(&folder, None), None);
        write("cpu0/acpi_cppc/nominal_freq", "3000\n");
        assert_eq!(base_clock_hz(&folder, named), Some(3_000_000_000));
        write("cpu0/cpufreq/base_frequency", "2400000\n");
        write("cpu1/cpufreq/base_frequency", "1800000\n");
        write("cpufreq/base_frequency", "no number\n");
        assert_eq!(base_clock_hz(&folder, named), Some(2_100_000_000));
        fs::remove_dir_all(folder).unwrap();
    }
}
