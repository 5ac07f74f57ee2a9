//! Parsers of what tells about the hardware: clock speeds in /proc/cpuinfo, disks in /proc/diskstats.

use leadline_wire::DiskSample;

use super::{decimal, fields, lines};

/// The sector of /proc/diskstats, whatever the disk's own is.
const SECTOR_BYTES: u64 = 512;

/// Returns each CPU and its `cpu MHz` of /proc/cpuinfo; other architectures than x86 have no such line.
pub fn clocks_mhz(cpuinfo: &[u8]) -> Vec<(u32, f64)> {
    let mut found = Vec::new();
    let mut cpu = None;
    for line in lines(cpuinfo) {
        if let Some(number) = value(line, b"processor") {
            cpu = number.parse().ok();
        } else if let (Some(cpu), Some(mhz)) = (cpu, value(line, b"cpu MHz").and_then(|text| text.parse().ok())) {
            found.push((cpu, mhz));
        }
    }
    found
}

fn value<'line>(line: &'line [u8], label: &[u8]) -> Option<&'line str> {
    let rest = line.strip_prefix(label)?.trim_ascii_start().strip_prefix(b":")?;
    std::str::from_utf8(rest.trim_ascii()).ok()
}

/// Returns the disks of /proc/diskstats that have been used. Partitions, loop devices and memory disks are omitted:
/// a partition's work is its disk's.
pub fn disks(diskstats: &[u8]) -> Vec<DiskSample> {
    let mut found: Vec<DiskSample> = Vec::new();
    for disk in lines(diskstats).filter_map(disk) {
        let is_part = found.iter().any(|whole| is_partition(&disk.name, &whole.name));
        if disk.reads + disk.writes > 0 && !is_part {
            found.push(disk);
        }
    }
    found
}

fn disk(line: &[u8]) -> Option<DiskSample> {
    let mut columns = fields(line).skip(2);
    let name = String::from_utf8_lossy(columns.next()?).into_owned();
    if ["loop", "ram", "zram", "dm-", "md"].iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let mut next = || decimal(columns.next()?);
    // Columns of Documentation/admin-guide/iostats.rst: reads, merged, sectors, ms; the same of writes; in flight, ms.
    let (reads, _, read_sectors, _) = (next()?, next()?, next()?, next()?);
    let (writes, _, written_sectors, _) = (next()?, next()?, next()?, next()?);
    let (_, busy_ms) = (next()?, next()?);
    Some(DiskSample {
        name,
        reads,
        read_bytes: read_sectors.checked_mul(SECTOR_BYTES)?,
        writes,
        written_bytes: written_sectors.checked_mul(SECTOR_BYTES)?,
        busy_ms,
    })
}

/// `sda1` is a partition of `sda`, and `nvme0n1p2` of `nvme0n1`.
fn is_partition(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let number = if disk.ends_with(|last: char| last.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) };
    number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_clock() {
        let text = b"processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: 2596.142\n\nprocessor\t: 7\ncpu MHz\t\t: 1200.5\n";
        assert_eq!(clocks_mhz(text), [(0, 2596.142), (7, 1200.5)]);
        assert_eq!(clocks_mhz(b"processor\t: 0\nBogoMIPS\t: 50.00\n"), []);
    }

    #[test]
    fn disks_are_listed_without_their_partitions_and_unused_ones() {
        let text = b"   7       0 loop0 1 0 1 0 1 0 1 0 0 0 0\n\
            8 0 sda 10 1 80 5 20 2 160 7 0 9 12 0 0 0 0\n   8 1 sda1 10 1 80 5 20 2 160 7 0 9 12\n\
            259 0 nvme0n1 1 0 8 0 0 0 0 0 0 3 0\n 259 1 nvme0n1p1 1 0 8 0 0 0 0 0 0 3 0\n\
            8 16 sdb 0 0 0 0 0 0 0 0 0 0 0\n  8 32 sdc 1 2\n";
        let found = disks(text);
        assert_eq!(found.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["sda", "nvme0n1"]);
        let sda = &found[0];
        assert_eq!((sda.reads, sda.read_bytes, sda.writes, sda.written_bytes, sda.busy_ms), (10, 40960, 20, 81920, 9));
    }
}
