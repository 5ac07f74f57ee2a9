//! How often a thread looks for packets while many come: not for each, but for those of a tenth of a millisecond at once, in
//! one wake-up and fewer calls. Owns when that pays; that no time is measured wrongly for it is the kernel's stamps' doing, so
//! that only what is stamped may be let wait.

/// How long packets are left in the sockets before the next read, ns.
pub const COALESCE_NS: u64 = 100_000;
/// Looks that are no further apart than this find packets each time, ns: a sleep ends some time after its instant.
const DENSE_NS: u64 = COALESCE_NS + COALESCE_NS / 2;

/// See the file's head.
#[derive(Debug, Default)]
pub struct ReceiveCoalescing {
    looked_ns: u64,
    is_dense: bool,
}

impl ReceiveCoalescing {
    /// When to look next, ns: a while after the last look, while each finds something.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.is_dense.then_some(self.looked_ns + COALESCE_NS)
    }

    /// The thread has looked, and waited where there was nothing yet.
    #[inline]
    pub fn looked(&mut self, now_ns: u64, has_found: bool) {
        self.is_dense = has_found && now_ns < self.looked_ns + DENSE_NS;
        self.looked_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many looks there are at packets that come every `gap_ns` for 10 ms; a look takes 1 µs.
    fn looks(gap_ns: u64) -> u64 {
        let (mut coalescing, mut now_ns, mut taken, mut looks) = (ReceiveCoalescing::default(), 1_000_000, 0, 0);
        loop {
            now_ns = now_ns.max(coalescing.next_ns().unwrap_or(0)).max(1_000_000 + taken * gap_ns);
            if now_ns >= 11_000_000 {
                return looks;
            }
            taken = (now_ns - 1_000_000) / gap_ns + 1;
            coalescing.looked(now_ns, true);
            looks += 1;
            now_ns += 1_000;
        }
    }

    #[test]
    fn dense_packets_are_polled_ten_times_per_millisecond() {
        assert!((98..=104).contains(&looks(4_000)), "{}", looks(4_000));
        assert!((90..=104).contains(&looks(40_000)), "{}", looks(40_000));
    }

    #[test]
    fn sparse_packets_are_received_without_delay() {
        assert_eq!(looks(200_000), 50);
        assert_eq!(looks(1_000_000), 10);
    }

    #[test]
    fn empty_poll_ends_coalescing() {
        let mut coalescing = ReceiveCoalescing::default();
        coalescing.looked(1_000_000, true);
        coalescing.looked(1_010_000, true);
        assert_eq!(coalescing.next_ns(), Some(1_010_000 + COALESCE_NS));
        coalescing.looked(1_110_000, false);
        assert_eq!(coalescing.next_ns(), None);
    }
}
