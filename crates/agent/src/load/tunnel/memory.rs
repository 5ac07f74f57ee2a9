//! How much memory a fleet takes: the peak of the agent's resident memory less what it held before.

/// What the agent held before the fleet was made.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    resident_bytes: u64,
}

impl Before {
    /// Now. The peak is counted from here on, where the kernel lets us (proc(5), `clear_refs`).
    pub fn now() -> Option<Self> {
        let resident_bytes = status("VmRSS:")?;
        // Without the reset a peak of before would be taken for the fleet's, so that no figure is better.
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        Some(Self { resident_bytes })
    }

    /// The peak since then, less what was held.
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

    #[test]
    fn what_is_touched_is_seen() {
        let before = Before::now().unwrap();
        let block = vec![1u8; 32 << 20];
        assert!(before.peak_since().unwrap() >= 30 << 20, "{}", block.len());
    }
}
