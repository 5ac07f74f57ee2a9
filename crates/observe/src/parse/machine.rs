//! Parsers of counters that all hosts on a machine share: /proc/stat, /proc/meminfo, /proc/pressure/*,
//! /proc/net/softnet_stat.

use leadline_wire::{CpuSample, MemorySample, PressureSample, SoftnetSample};

use super::{decimal, fields, hexadecimal, labelled, lines, seconds};

/// Returns the rows `cpuN` of /proc/stat. A row without all of user, nice, system, idle, iowait, irq, softirq and
/// steal is omitted. The kernel's user time already includes guest time.
pub fn cpus(stat: &[u8]) -> Vec<CpuSample> {
    // The rows of CPUs come first; the rest (a figure for every interrupt) is long on large machines.
    lines(stat).take_while(|line| line.starts_with(b"cpu")).filter_map(cpu).collect()
}

fn cpu(line: &[u8]) -> Option<CpuSample> {
    let mut columns = fields(line);
    let cpu = u32::try_from(decimal(columns.next()?.strip_prefix(b"cpu")?)?).ok()?;
    let mut next = || decimal(columns.next()?).map(seconds);
    let (user_s, nice_s) = (next()?, next()?);
    Some(CpuSample {
        cpu,
        user_s: user_s + nice_s,
        system_s: next()?,
        idle_s: next()?,
        iowait_s: next()?,
        irq_s: next()?,
        softirq_s: next()?,
        steal_s: next()?,
        nice_s,
    })
}

/// Returns the context switches and the hardware interrupts of all CPUs, from /proc/stat.
pub fn switches_and_interrupts(stat: &[u8]) -> (Option<u64>, Option<u64>) {
    (labelled(stat, b"ctxt"), labelled(stat, b"intr"))
}

/// Returns MemTotal and MemAvailable of /proc/meminfo, converted from KiB to bytes.
pub fn memory(meminfo: &[u8]) -> Option<MemorySample> {
    Some(MemorySample {
        total_bytes: labelled(meminfo, b"MemTotal:")?.checked_mul(1024)?,
        available_bytes: labelled(meminfo, b"MemAvailable:")?.checked_mul(1024)?,
    })
}

/// Returns the `total=` figures of a file under /proc/pressure, µs; `None` if the file has neither row.
pub fn pressure(file: &[u8]) -> Option<PressureSample> {
    let total = |row: &[u8]| {
        let line = lines(file).find(|line| fields(line).next() == Some(row))?;
        decimal(fields(line).find_map(|field| field.strip_prefix(b"total="))?)
    };
    let sample = PressureSample { some_us: total(b"some"), full_us: total(b"full") };
    (sample.some_us.is_some() || sample.full_us.is_some()).then_some(sample)
}

/// Returns the rows of /proc/net/softnet_stat: processed, dropped, squeezed, each a 32-bit count that wraps. Since
/// Linux 5.10 the 13th column is the CPU; before that only the order of the rows identifies it.
pub fn softnet(file: &[u8]) -> Vec<SoftnetSample> {
    lines(file).enumerate().filter_map(|(row, line)| softnet_row(row, line)).collect()
}

fn softnet_row(row: usize, line: &[u8]) -> Option<SoftnetSample> {
    let mut columns = fields(line);
    let mut next = || hexadecimal(columns.next()?);
    let (processed, dropped, squeezed) = (next()?, next()?, next()?);
    let cpu = match columns.nth(9) {
        Some(column) => hexadecimal(column)?,
        None => row as u64,
    };
    Some(SoftnetSample { cpu: u32::try_from(cpu).ok()?, processed, dropped, squeezed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &[u8] = b"cpu  4769 10 3010 225334 1151 1 57 90 5 0\n\
        cpu0 1485 10 1078 114525 60 0 9 36 5 0\n\
        cpu3 3284 0 1931 110808 1091 1 47 53 0 0\n\
        intr 1 2 3\nctxt 99\n";

    #[test]
    fn a_row_per_online_cpu_and_no_row_for_the_sum() {
        let samples = cpus(STAT);
        assert_eq!(samples.len(), 2);
        let expected = CpuSample {
            cpu: 0,
            user_s: 14.95,
            system_s: 10.78,
            idle_s: 1145.25,
            iowait_s: 0.6,
            irq_s: 0.0,
            softirq_s: 0.09,
            steal_s: 0.36,
            nice_s: 0.1,
        };
        assert!((samples[0].user_s - expected.user_s).abs() < 1e-9);
        assert_eq!(CpuSample { user_s: expected.user_s, ..samples[0] }, expected);
        assert_eq!((samples[1].cpu, samples[1].irq_s, samples[1].steal_s), (3, 0.01, 0.53));
    }

    #[test]
    fn switches_and_interrupts_are_those_of_all_cpus() {
        assert_eq!(switches_and_interrupts(STAT), (Some(99), Some(1)));
        assert_eq!(switches_and_interrupts(b"cpu0 1\n"), (None, None));
    }

    #[test]
    fn a_short_row_is_left_out_rather_than_zero() {
        assert_eq!(cpus(b"cpu0 1 2 3 4 5 6 7\ncpu1 1 2 3 4 5 6 7 8\n").len(), 1);
    }

    #[test]
    fn memory_is_in_bytes_or_absent() {
        let text = b"MemTotal:       24617240 kB\nMemFree:        1 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(
            memory(text),
            Some(MemorySample { total_bytes: 24_617_240 * 1024, available_bytes: 20_480_000_000 })
        );
        assert_eq!(memory(b"MemTotal: 1 kB\n"), None);
        assert_eq!(memory(b"MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n"), None);
    }

    #[test]
    fn pressure_keeps_a_missing_row_missing() {
        let both =
            b"some avg10=2.05 avg60=1.31 avg300=0.55 total=8283174\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(pressure(both), Some(PressureSample { some_us: Some(8_283_174), full_us: Some(0) }));
        let irq = b"full avg10=0.00 avg60=0.00 avg300=0.00 total=42\n";
        assert_eq!(pressure(irq), Some(PressureSample { some_us: None, full_us: Some(42) }));
        assert_eq!(pressure(b""), None);
    }

    #[test]
    fn softnet_takes_the_cpu_from_its_column_where_there_is_one() {
        let new = b"00000012 00000001 00000002 0 0 0 0 0 0 0 0 0 00000000 0 0\n\
            00003da9 00000000 00000000 0 0 0 0 0 0 0 0 0 00000005 0 0\n";
        assert_eq!(
            softnet(new),
            [
                SoftnetSample { cpu: 0, processed: 18, dropped: 1, squeezed: 2 },
                SoftnetSample { cpu: 5, processed: 0x3da9, dropped: 0, squeezed: 0 },
            ]
        );
        let old = b"00000012 00000001 00000002 0 0 0 0 0 0 0 0\n00000001 0 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(softnet(old).iter().map(|row| row.cpu).collect::<Vec<_>>(), [0, 1]);
    }
}
