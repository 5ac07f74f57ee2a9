//! The memory of a fleet: the peak of the agent's resident memory minus the memory before.

use leadline_sys::memory;

/// The agent's resident memory before the fleet is created.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBaseline {
    resident_bytes: u64,
}

impl MemoryBaseline {
    /// Reads the memory now, and resets the peak, if the kernel permits it (proc(5), `clear_refs`).
    pub fn now() -> Option<Self> {
        // Freed memory of an earlier fleet that the allocator holds would count as used before, and make this fleet's
        // figure too small.
        if !memory::trim_heap() {
            return None;
        }
        let resident_bytes = status("VmRSS:")?;
        // Without the reset, an earlier peak would count as the fleet's; then no figure is better than a wrong one.
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        Some(Self { resident_bytes })
    }

    /// Returns the peak since then minus the memory before.
    pub fn peak_since(self) -> Option<u64> {
        Some(status("VmHWM:")?.saturating_sub(self.resident_bytes))
    }
}

fn status(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test in a separate process: it measures the whole process, in which no other test may allocate or free
    /// memory.
    fn passes_in_own_process(name: &str) {
        let executable = std::env::current_exe().unwrap();
        let path = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
        let child = std::process::Command::new(executable).args(["--ignored", "--exact", &path]).output().unwrap();
        let stdout = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && stdout.contains("1 passed"),
            "{stdout}{}",
            String::from_utf8_lossy(&child.stderr)
        );
    }

    #[test]
    fn memory_peak_counts_from_the_start() {
        passes_in_own_process("memory_left_by_an_earlier_fleet_is_not_counted");
        passes_in_own_process("touched_memory_is_counted");
    }

    #[test]
    #[ignore = "runs in a separate process, started by the test above"]
    fn memory_left_by_an_earlier_fleet_is_not_counted() {
        let blocks = || (0..6000).map(|_| vec![1u8; 16 << 10]).collect::<Vec<_>>();
        let mut first = blocks();
        // The remaining blocks keep the allocator from shrinking by itself.
        first.retain({
            let mut number = 0;
            move |_| {
                number += 1;
                number % 500 == 0
            }
        });
        let before = MemoryBaseline::now().unwrap();
        let second = blocks();
        assert!(before.peak_since().unwrap() >= 60 << 20, "{} {}", first.len(), second.len());
    }

    #[test]
    #[ignore = "runs in a separate process, started by the test above"]
    fn touched_memory_is_counted() {
        let before = MemoryBaseline::now().unwrap();
        let block = vec![1u8; 32 << 20];
        assert!(before.peak_since().unwrap() >= 30 << 20, "{}", block.len());
    }
}
