//! Congestion control of a stream (RFC 5681) outside of smoltcp. smoltcp's own controls either grow by a segment with
//! each acknowledgement or restart ten times a second. smoltcp receives only as many bytes as may be in flight.

/// Assumed segment size, bytes.
const SEGMENT_BYTES: usize = 1400;
/// RFC 6928: initial window, bytes.
const FIRST_BYTES: usize = 10 * SEGMENT_BYTES;

/// A round trip indicates a queue if it is longer than the shortest one by an eighth, within these limits, ns.
const MIN_DELAY_NS: u64 = 2_000_000;
const MAX_DELAY_NS: u64 = 16_000_000;

/// A stream's congestion window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    bytes: usize,
    /// Slow start threshold: below it the window grows by the acknowledged bytes, above it by one segment per window.
    threshold: usize,
    /// Acknowledged bytes towards the next segment.
    credit: usize,
    /// Bytes in flight at the last check.
    under_way: usize,
    losses: u64,
    /// Total bytes that were handed over.
    handed: u64,
    /// When a measured byte was handed over, and which one.
    probe: Option<(u64, u64)>,
    /// The shortest round trip so far, ns; `None` before the first one is measured.
    shortest_ns: Option<u64>,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            bytes: FIRST_BYTES,
            threshold: usize::MAX,
            credit: 0,
            under_way: 0,
            losses: 0,
            handed: 0,
            probe: None,
            shortest_ns: None,
        }
    }
}

impl Window {
    /// Bytes that can be handed over now, from the unacknowledged bytes, the number of detected losses, and the
    /// maximum in flight.
    pub fn room(&mut self, now_ns: u64, under_way: usize, losses: u64, most: usize) -> usize {
        let acknowledged = self.under_way.saturating_sub(under_way);
        self.under_way = under_way;
        self.check_delay(now_ns);
        if losses > self.losses {
            self.losses = losses;
            self.threshold = (self.bytes / 2).max(SEGMENT_BYTES);
            self.bytes = self.threshold;
            self.credit = 0;
        } else if self.bytes < self.threshold {
            self.bytes = self.bytes.saturating_add(acknowledged).min(most);
        } else {
            self.credit += acknowledged;
            if self.credit >= self.bytes {
                self.credit -= self.bytes;
                self.bytes = (self.bytes + SEGMENT_BYTES).min(most);
            }
        }
        self.bytes.saturating_sub(under_way)
    }

    /// Records that this many bytes were handed over, whatever the window.
    pub fn wrote(&mut self, bytes: usize) {
        self.under_way += bytes;
        self.handed += bytes as u64;
    }

    /// Records that this many bytes were handed over at a known time.
    pub fn sent(&mut self, now_ns: u64, bytes: usize) {
        self.wrote(bytes);
        if bytes > 0 {
            self.probe.get_or_insert((now_ns, self.handed));
        }
    }

    /// A simplified RFC 9406: when round trips grow, a queue grows, and slow start ends before it overflows. This
    /// matters because smoltcp retransmits a whole window after the loss of one segment.
    fn check_delay(&mut self, now_ns: u64) {
        let acknowledged = self.handed.saturating_sub(self.under_way as u64);
        let Some((at_ns, _)) = self.probe.filter(|(_, handed)| acknowledged >= *handed) else { return };
        let round_trip_ns = now_ns.saturating_sub(at_ns);
        self.probe = None;
        let shortest_ns = self.shortest_ns.map_or(round_trip_ns, |shortest_ns| shortest_ns.min(round_trip_ns));
        self.shortest_ns = Some(shortest_ns);
        let allowed_ns = shortest_ns + (shortest_ns / 8).clamp(MIN_DELAY_NS, MAX_DELAY_NS);
        if round_trip_ns > allowed_ns {
            self.threshold = self.threshold.min(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_doubles_until_loss_then_grows_linearly() {
        let mut window = Window::default();
        let mut round = |losses| {
            let room = window.room(0, 0, losses, 1 << 20);
            window.sent(0, room);
            room
        };
        let rooms = [round(0), round(0), round(0)];
        assert_eq!(rooms, [FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES]);
        assert_eq!([round(1), round(1), round(2)], [2 * FIRST_BYTES, 2 * FIRST_BYTES + SEGMENT_BYTES, 14_700]);
        for losses in 3..20 {
            round(losses);
        }
        assert_eq!(round(20), SEGMENT_BYTES, "never less");
    }

    #[test]
    fn round_trip_excludes_earlier_writes() {
        let mut window = Window::default();
        window.wrote(32);
        assert_eq!(window.room(0, 32, 0, 1 << 20), FIRST_BYTES - 32);
        window.sent(0, 1000);
        // Neither the first 32 bytes alone, nor all but one.
        window.room(1_000_000, 1000, 0, 1 << 20);
        window.room(2_000_000, 1, 0, 1 << 20);
        assert_eq!((window.probe, window.shortest_ns), (Some((0, 1032)), None));
        window.room(3_000_000, 0, 0, 1 << 20);
        assert_eq!((window.probe, window.shortest_ns), (None, Some(3_000_000)));
    }

    #[test]
    fn slow_start_ends_when_round_trips_grow() {
        let mut window = Window::default();
        let mut now_ns = 0;
        let mut rooms = Vec::new();
        for round_trip_ns in [10_000_000, 10_000_000, 20_000_000, 20_000_000] {
            let room = window.room(now_ns, 0, 0, 1 << 20);
            window.sent(now_ns, room);
            rooms.push(room);
            now_ns += round_trip_ns;
        }
        rooms.push(window.room(now_ns, 0, 0, 1 << 20));
        let last = 4 * FIRST_BYTES;
        assert_eq!(rooms, [FIRST_BYTES, 2 * FIRST_BYTES, last, last + SEGMENT_BYTES, last + 2 * SEGMENT_BYTES]);
    }
}
