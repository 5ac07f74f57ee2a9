//! The CPU time of the whole machine while a load runs, and what its flows moved in the same time: system-wide service
//! demand, with soft interrupts, which no thread's own account has. Also what a CPU quota kept from this agent meanwhile.

use std::fs;

use leadline_observe::parse::machine;
use leadline_observe::{boot_id, Quota};
use leadline_wire::{CpuSample, MachineUse, QuotaSample, QuotaUse};

/// What flows have moved on this side so far: bytes sent and received, units sent and received.
pub type Moved = [u64; 4];

/// Readings at a load's start and end. The thread that supervises the load reads, now and then: a reading takes longer than a
/// measuring thread may be late. What the flows moved is read with it, so that both cover the same time.
#[derive(Debug, Default)]
pub struct MachineMeter {
    first: Option<Reading>,
    last: Option<Reading>,
    quota: Option<Quota>,
}

#[derive(Debug)]
struct Reading {
    t_ns: u64,
    cpus: u32,
    busy_s: f64,
    softirq_s: f64,
    moved: Moved,
    quota: Option<QuotaSample>,
}

impl MachineMeter {
    /// Reads once after the load has begun and once after it has ended; the other calls do nothing.
    pub fn poll(&mut self, now_ns: u64, begins_ns: u64, is_over: bool, moved: impl FnOnce() -> Moved) {
        if self.first.is_none() && now_ns >= begins_ns {
            self.quota = Quota::find(None);
            self.first = Reading::now(now_ns, moved(), self.quota.as_ref());
        } else if self.last.is_none() && is_over {
            self.last = Reading::now(now_ns, moved(), self.quota.as_ref());
        }
    }

    /// Returns the growth between both readings; `None` without two.
    pub fn used(&self) -> Option<MachineUse> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let moved = |which: usize| last.moved[which].saturating_sub(first.moved[which]);
        Some(MachineUse {
            boot_id: boot_id(),
            wall_s: last.t_ns.saturating_sub(first.t_ns) as f64 / 1e9,
            cpus: last.cpus,
            busy_s: last.busy_s - first.busy_s,
            softirq_s: last.softirq_s - first.softirq_s,
            sent_bytes: moved(0),
            received_bytes: moved(1),
            sent_units: moved(2),
            received_units: moved(3),
        })
    }

    /// Returns what a quota kept from this agent between both readings; `None` without a quota.
    pub fn held_back(&self) -> Option<QuotaUse> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let (before, after) = (first.quota.as_ref()?, last.quota.as_ref()?);
        Some(QuotaUse {
            group: after.group.clone(),
            cpus: after.cpus,
            wall_s: last.t_ns.saturating_sub(first.t_ns) as f64 / 1e9,
            throttled_s: (after.throttled_s - before.throttled_s).max(0.0),
        })
    }
}

impl Reading {
    fn now(t_ns: u64, moved: Moved, quota: Option<&Quota>) -> Option<Self> {
        let rows = machine::cpus(&fs::read("/proc/stat").ok()?);
        let busy = |row: &CpuSample| row.user_s + row.system_s + row.irq_s + row.softirq_s;
        (!rows.is_empty()).then(|| Self {
            t_ns,
            cpus: rows.len() as u32,
            busy_s: rows.iter().map(busy).sum(),
            softirq_s: rows.iter().map(|row| row.softirq_s).sum(),
            moved,
            quota: quota.and_then(Quota::read),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_covers_the_time_between_start_and_end() {
        let mut meter = MachineMeter::default();
        meter.poll(5, 10, false, || [100; 4]);
        assert!(meter.first.is_none());
        meter.poll(1_000_000_010, 10, false, || [1, 2, 3, 4]);
        meter.poll(2_000_000_000, 10, false, || [9; 4]);
        assert_eq!(meter.used(), None);
        meter.poll(3_000_000_010, 10, true, || [11, 22, 33, 44]);
        meter.poll(9_000_000_010, 10, true, || [99; 4]);
        let used = meter.used().unwrap();
        assert_eq!((used.wall_s, used.sent_bytes, used.received_units), (2.0, 10, 40));
        assert_eq!(used.boot_id, boot_id());
        assert!(used.cpus >= 1 && used.busy_s >= used.softirq_s && used.softirq_s >= 0.0, "{used:?}");
    }
}
