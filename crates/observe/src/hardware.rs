//! Clock speeds, thermal throttling and disks. Owns their open files: cpufreq's where the kernel has them, else
//! /proc/cpuinfo, which is long.

use std::fs;

use leadline_wire::{ClockSample, DiskSample};

use crate::parse;
use crate::reread::{Buffer, Reread};

const CPUS: &str = "/sys/devices/system/cpu";

#[derive(Debug)]
pub struct Hardware {
    cpus: Vec<Cpu>,
    cpuinfo: Option<Reread>,
    diskstats: Option<Reread>,
}

#[derive(Debug)]
struct Cpu {
    number: u32,
    /// kHz.
    speed: Option<Reread>,
    core_throttles: Option<Reread>,
    package_throttles: Option<Reread>,
}

impl Hardware {
    pub fn open() -> Self {
        let mut cpus: Vec<Cpu> = fs::read_dir(CPUS)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let number = entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?;
                Some(Cpu::open(number))
            })
            .collect();
        cpus.sort_by_key(|cpu| cpu.number);
        let reads_cpuinfo = cpus.iter().all(|cpu| cpu.speed.is_none());
        Self {
            cpus,
            cpuinfo: if reads_cpuinfo { Reread::open("/proc/cpuinfo").ok() } else { None },
            diskstats: Reread::open("/proc/diskstats").ok(),
        }
    }

    /// Returns a row per CPU of which anything is known; `None` if nothing is known of any.
    pub fn clocks(&self, buffer: &mut Buffer) -> Option<Vec<ClockSample>> {
        let listed = self.cpuinfo.as_ref().and_then(|file| file.read(buffer).ok().map(parse::hardware::clocks_mhz));
        let listed = listed.unwrap_or_default();
        let rows: Vec<ClockSample> = self.cpus.iter().filter_map(|cpu| cpu.sample(&listed, buffer)).collect();
        (!rows.is_empty()).then_some(rows)
    }

    pub fn disks(&self, buffer: &mut Buffer) -> Option<Vec<DiskSample>> {
        self.diskstats.as_ref()?.read(buffer).ok().map(parse::hardware::disks)
    }
}

impl Cpu {
    fn open(number: u32) -> Self {
        let open = |name: &str| Reread::open(format!("{CPUS}/cpu{number}/{name}")).ok();
        Self {
            number,
            speed: open("cpufreq/scaling_cur_freq"),
            core_throttles: open("thermal_throttle/core_throttle_count"),
            package_throttles: open("thermal_throttle/package_throttle_count"),
        }
    }

    fn sample(&self, listed: &[(u32, f64)], buffer: &mut Buffer) -> Option<ClockSample> {
        let mut number = |file: &Option<Reread>| parse::cgroup::bytes(file.as_ref()?.read(buffer).ok()?);
        let of_cpuinfo = || listed.iter().find(|(cpu, _)| *cpu == self.number).map(|(_, mhz)| *mhz);
        let sample = ClockSample {
            cpu: self.number,
            mhz: number(&self.speed).map(|khz| khz as f64 / 1000.0).or_else(of_cpuinfo),
            core_throttles: number(&self.core_throttles),
            package_throttles: number(&self.package_throttles),
        };
        let known = sample.mhz.is_some() || sample.core_throttles.is_some() || sample.package_throttles.is_some();
        known.then_some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_of_cpus_that_say_something() {
        let hardware = Hardware::open();
        let mut buffer = Buffer::default();
        for row in hardware.clocks(&mut buffer).unwrap_or_default() {
            assert!(row.mhz.is_none_or(|mhz| mhz > 1.0) && (row.mhz.is_some() || row.core_throttles.is_some()));
        }
        assert!(hardware.disks(&mut buffer).is_none_or(|disks| disks.iter().all(|disk| !disk.name.is_empty())));
    }
}
