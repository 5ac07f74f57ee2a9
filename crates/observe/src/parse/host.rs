//! Parsers of a host's fingerprint: /proc/cpuinfo, os-release, CPU lists, and the privileges of this process in
//! /proc/PID/status.

use super::{decimal, hexadecimal, lines};

/// Returns the CPU's model from /proc/cpuinfo: `model name` on x86 and similar machines, else the board's `Model`, else what
/// ARM's numbers of its implementer and part stand for.
pub fn cpu_model(cpuinfo: &[u8]) -> Option<String> {
    let value_of = |label: &str| lines(cpuinfo).find_map(|line| value_after(line, label.as_bytes()));
    let named = ["model name", "cpu model", "cpu", "Model"].into_iter().find_map(|label| {
        let value = value_of(label)?;
        (!value.is_empty()).then(|| text(value))
    });
    named.or_else(|| Some(arm_model(&text(value_of("CPU implementer")?), &text(value_of("CPU part")?))))
}

/// The processors of servers and boards in Linux's arch/arm64/include/asm/cputype.h.
const ARM_MODELS: [(&str, &str, &str); 11] = [
    ("0x41", "0xd03", "ARM Cortex-A53"),
    ("0x41", "0xd08", "ARM Cortex-A72"),
    ("0x41", "0xd0b", "ARM Cortex-A76"),
    ("0x41", "0xd0c", "ARM Neoverse-N1"),
    ("0x41", "0xd40", "ARM Neoverse-V1"),
    ("0x41", "0xd49", "ARM Neoverse-N2"),
    ("0x41", "0xd4f", "ARM Neoverse-V2"),
    ("0x43", "0x0af", "Cavium ThunderX2"),
    ("0x48", "0xd01", "HiSilicon TSV110"),
    ("0xc0", "0xac3", "Ampere-1"),
    ("0xc0", "0xac4", "Ampere-1A"),
];

fn arm_model(implementer: &str, part: &str) -> String {
    let known = ARM_MODELS.iter().find(|(by, number, _)| (*by, *number) == (implementer, part));
    known.map_or_else(|| format!("ARM processor, implementer {implementer}, part {part}"), |known| known.2.to_owned())
}

/// Returns the clock in the name of a CPU, as in `Intel(R) Xeon(R) CPU E5-2690 v3 @ 2.60GHz`.
pub fn named_clock_hz(cpu_model: &str) -> Option<u64> {
    let ghz: f64 = cpu_model.rsplit_once('@')?.1.trim().strip_suffix("GHz")?.trim().parse().ok()?;
    (0.1..100.0).contains(&ghz).then(|| (ghz * 1e9).round() as u64)
}

/// Returns PRETTY_NAME of os-release(5), without its quotes.
pub fn distribution(os_release: &[u8]) -> Option<String> {
    let quoted = lines(os_release).find_map(|line| line.strip_prefix(b"PRETTY_NAME="))?.trim_ascii();
    let bare = [b'"', b'\''].iter().find_map(|quote| quoted.strip_prefix(&[*quote])?.strip_suffix(&[*quote]));
    let name = bare.unwrap_or(quoted);
    (!name.is_empty()).then(|| text(name))
}

/// Returns the number of CPUs in Cpus_allowed_list of /proc/PID/status, as in `0-3,8`.
pub fn allowed_cpus(status: &[u8]) -> Option<u32> {
    let list = lines(status).find_map(|line| value_after(line, b"Cpus_allowed_list"))?;
    list.split(|byte| *byte == b',').try_fold(0u32, |total, range| {
        let (first, last) = match range.iter().position(|byte| *byte == b'-') {
            Some(dash) => (decimal(&range[..dash])?, decimal(&range[dash + 1..])?),
            None => (decimal(range)?, decimal(range)?),
        };
        let count = last.checked_sub(first)?.checked_add(1)?;
        total.checked_add(u32::try_from(count).ok()?)
    })
}

/// Returns the effective capabilities (capabilities(7)) from /proc/PID/status, one bit each.
pub fn effective_capabilities(status: &[u8]) -> Option<u64> {
    hexadecimal(lines(status).find_map(|line| value_after(line, b"CapEff"))?)
}

/// Returns the effective and the supplementary groups from /proc/PID/status.
pub fn groups(status: &[u8]) -> Vec<u64> {
    let row = |label: &[u8]| lines(status).find_map(|line| value_after(line, label)).unwrap_or_default();
    // Gid has four numbers: real, effective, saved, and file system.
    let effective = super::fields(row(b"Gid")).nth(1);
    effective.into_iter().chain(super::fields(row(b"Groups"))).filter_map(decimal).collect()
}

/// Returns true if /proc/PID/uid_map maps every id to itself, as only the initial user namespace does.
pub fn is_initial_user_namespace(uid_map: &[u8]) -> bool {
    super::fields(uid_map.trim_ascii()).eq([&b"0"[..], b"0", b"4294967295"])
}

/// Returns the text after `label` and a colon.
fn value_after<'line>(line: &'line [u8], label: &[u8]) -> Option<&'line [u8]> {
    Some(line.strip_prefix(label)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_in_a_name() {
        assert_eq!(named_clock_hz("Intel(R) Xeon(R) CPU E5-2690 v3 @ 2.60GHz"), Some(2_600_000_000));
        assert_eq!(named_clock_hz("Example @ 3.1 GHz"), Some(3_100_000_000));
        for text in ["AMD EPYC", "X @ ", "X @ GHz", "X @ 2600MHz", "X @ -1GHz", "X @ nanGHz", "X @ infGHz"] {
            assert_eq!(named_clock_hz(text), None, "{text}");
        }
    }

    #[test]
    fn models_of_cpus() {
        let x86 = b"processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n";
        assert_eq!(cpu_model(x86).as_deref(), Some("AMD EPYC"));
        let arm = b"processor\t: 0\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("Raspberry Pi 4"));
        let server =
            b"processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\nCPU revision\t: 1\n";
        assert_eq!(cpu_model(server).as_deref(), Some("ARM Neoverse-N1"));
        let unknown = b"CPU implementer\t: 0x99\nCPU part\t: 0x001\n";
        assert_eq!(cpu_model(unknown).as_deref(), Some("ARM processor, implementer 0x99, part 0x001"));
        assert_eq!(cpu_model(b"processor : 0\n"), None);
    }

    #[test]
    fn names_of_distributions() {
        assert_eq!(distribution(b"ID=debian\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
        assert_eq!(distribution(b"PRETTY_NAME=Plain\n").as_deref(), Some("Plain"));
        assert_eq!(distribution(b"PRETTY_NAME=\"\n").as_deref(), Some("\""));
        assert_eq!(distribution(b"PRETTY_NAME=\"\"\n"), None);
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(allowed_cpus(b"Cpus_allowed:\tf\nCpus_allowed_list:\t0-3,8\n"), Some(5));
        assert_eq!(allowed_cpus(b"Cpus_allowed_list:\t0\n"), Some(1));
        for wrong in
            [&b"Cpus_allowed_list:\t3-0\n"[..], b"Cpus_allowed_list:\t\n", b"Cpus_allowed_list: 0-4294967295\n"]
        {
            assert_eq!(allowed_cpus(wrong), None);
        }
    }

    #[test]
    fn rights() {
        assert_eq!(effective_capabilities(b"CapPrm:\t0\nCapEff:\t0000000000200000\n"), Some(1 << 21));
        assert_eq!(groups(b"Gid:\t1\t2\t3\t4\nGroups:\t20 30 \n"), [2, 20, 30]);
        assert!(groups(b"Groups:\t \n").is_empty());
        assert!(is_initial_user_namespace(b"         0          0 4294967295\n"));
        assert!(!is_initial_user_namespace(b"         0       1000          1\n"));
    }
}
