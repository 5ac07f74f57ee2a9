//! When a connection may send, if what this host sends to its peer is limited: it books turns of the peer's rate, and
//! waits until they come. Without a limit every question is answered by one comparison.

use std::sync::Arc;

use crate::serve::peer_rate::{PeerRate, Turn};

/// The turns of one connection.
#[derive(Debug, Default)]
pub struct Pacing {
    limit: Option<Box<Paced>>,
}

#[derive(Debug)]
struct Paced {
    rate: Arc<PeerRate>,
    /// The turn that was booked last, with the bytes that it has left.
    turn: Turn,
    is_waiting: bool,
}

impl Pacing {
    /// Returns the pacing of a connection that has sent nothing; unlimited without a rate.
    pub fn new(rate: Option<Arc<PeerRate>>) -> Self {
        Self { limit: rate.map(|rate| Box::new(Paced { rate, turn: Turn { bytes: 0, at_ns: 0 }, is_waiting: false })) }
    }

    /// Whether there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns how much of these bytes may be sent now; if that is none, `waits_until_ns` tells when to ask again.
    #[inline]
    pub fn allow(&mut self, now_ns: u64, wanted: usize) -> usize {
        match &mut self.limit {
            None => wanted,
            Some(paced) => paced.allow(now_ns, wanted),
        }
    }

    /// Records that this many of the allowed bytes were passed to the system.
    #[inline]
    pub fn spend(&mut self, bytes: usize) {
        if let Some(paced) = &mut self.limit {
            paced.turn.bytes = paced.turn.bytes.saturating_sub(bytes);
        }
    }

    /// Until when the connection has to wait with what it was not allowed to send, ns.
    #[inline]
    pub fn waits_until_ns(&self) -> Option<u64> {
        self.limit.as_ref().filter(|paced| paced.is_waiting).map(|paced| paced.turn.at_ns)
    }
}

impl Paced {
    fn allow(&mut self, now_ns: u64, wanted: usize) -> usize {
        if self.turn.bytes == 0 && wanted > 0 && now_ns >= self.turn.at_ns {
            self.turn = self.rate.book(now_ns, wanted);
        }
        self.is_waiting = wanted > 0 && (now_ns < self.turn.at_ns || self.turn.bytes == 0);
        if self.is_waiting {
            return 0;
        }
        wanted.min(self.turn.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_everything_may_be_sent() {
        let mut pacing = Pacing::new(None);
        assert_eq!((pacing.allow(0, usize::MAX), pacing.waits_until_ns()), (usize::MAX, None));
    }

    #[test]
    fn connection_sends_its_turns_and_waits_between_them() {
        let mut pacing = Pacing::new(Some(Arc::new(PeerRate::new(8_000_000))));
        let (mut now_ns, mut sent) = (1_000_000_000, 0);
        while now_ns < 3_000_000_000 {
            match pacing.allow(now_ns, 1 << 20) {
                0 => {
                    let until_ns = pacing.waits_until_ns().unwrap();
                    assert!(until_ns > now_ns);
                    assert_eq!(pacing.allow(until_ns - 1, 1 << 20), 0);
                    now_ns = until_ns;
                }
                bytes => {
                    // The system may take less at a time.
                    let part = bytes.min(3000);
                    pacing.spend(part);
                    sent += part;
                    assert_eq!(pacing.waits_until_ns(), None);
                }
            }
        }
        assert!((2_000_000..2_100_000).contains(&sent), "{sent} bytes in 2 s");
    }

    #[test]
    fn connection_without_output_waits_for_nothing() {
        let rate = Arc::new(PeerRate::new(8_000_000));
        rate.reserve(8_000_000);
        let mut pacing = Pacing::new(Some(rate));
        assert_eq!((pacing.allow(5, 10), pacing.waits_until_ns()), (0, Some(100_000_005)));
        assert_eq!((pacing.allow(6, 0), pacing.waits_until_ns()), (0, None));
    }
}
