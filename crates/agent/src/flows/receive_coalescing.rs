//! Receive coalescing: while many packets arrive, a thread does not read each one at once, but all of a tenth of a
//! millisecond together, with one wake-up and fewer calls. Owns when that pays. It does not distort a measured time,
//! because packets carry kernel timestamps; only timestamped packets may wait.

/// How long packets stay in the sockets before the next read, ns.
pub const COALESCE_NS: u64 = 100_000;
/// Reads at most this far apart each find packets, ns: a sleep ends some time after its instant.
const DENSE_NS: u64 = COALESCE_NS + COALESCE_NS / 2;

/// The state of one thread's coalescing.
#[derive(Debug, Default)]
pub struct ReceiveCoalescing {
    /// When the last read was, ns.
    looked_ns: Option<u64>,
    /// Whether the last two reads were close together and the last one found packets. Implies `looked_ns`.
    is_dense: bool,
}

impl ReceiveCoalescing {
    /// When to read next, ns: some time after the last read, while each read finds packets.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.looked_ns.filter(|_| self.is_dense).map(|looked_ns| looked_ns + COALESCE_NS)
    }

    /// Records a read, after a wait if no packet had arrived yet.
    #[inline]
    pub fn looked(&mut self, now_ns: u64, has_found: bool) {
        self.is_dense = has_found && self.looked_ns.is_some_and(|looked_ns| now_ns < looked_ns + DENSE_NS);
        self.looked_ns = Some(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of reads for packets that arrive every `gap_ns` for 10 ms; a read takes 1 µs.
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
