//! Sockets of requests that were given up before their answers. Each stays open for a while, so that both sides count the
//! same requests: closing a socket with an unread answer resets the connection, and the server may not have read the whole
//! request. Owns how long that is. Reads no clock.

use std::collections::VecDeque;

/// How long a socket stays open, ns: as long as at the end of a load. A server that has not answered by then can still read
/// the request, because a connection without an unread answer ends in order.
const KEPT_NS: u64 = 1_000_000_000;

/// The sockets, the oldest first.
#[derive(Debug)]
pub struct KeptSockets<S> {
    /// When each was given up, ns, and the socket.
    sockets: VecDeque<(u64, S)>,
    /// The time, ns, as the last turn began.
    now_ns: u64,
}

impl<S> KeptSockets<S> {
    /// Returns no sockets.
    pub fn new() -> Self {
        Self { sockets: VecDeque::new(), now_ns: 0 }
    }

    /// Begins a turn: closes the sockets whose time is over.
    pub fn begin_turn(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let is_over = |(since_ns, _): &(u64, S)| now_ns.saturating_sub(*since_ns) >= KEPT_NS;
        while self.sockets.front().is_some_and(is_over) {
            self.sockets.pop_front();
        }
    }

    /// Keeps a socket open.
    pub fn keep(&mut self, socket: S) {
        self.sockets.push_back((self.now_ns, socket));
    }

    /// The number of open sockets.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Closes the oldest sockets until there are at most this many.
    pub fn shrink_to(&mut self, most: usize) {
        self.sockets.drain(..self.sockets.len().saturating_sub(most));
    }

    /// Returns the sockets that are still open.
    pub fn take(&mut self) -> Vec<S> {
        self.sockets.drain(..).map(|(_, socket)| socket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn sockets_are_kept_for_a_second() {
        let mut kept = KeptSockets::new();
        let mut most = 0;
        // Ten users are interrupted every 10 ms, for a minute.
        for turn in 0..6_000 {
            kept.begin_turn(turn * 10 * MS);
            (0..10).for_each(|user| kept.keep((turn, user)));
            most = most.max(kept.count());
        }
        assert_eq!(most, 1_000, "100 turns of 10");
        assert_eq!(kept.sockets.front(), Some(&(59_000 * MS, (5_900, 0))));
        kept.begin_turn(59_990 * MS + KEPT_NS - 1);
        assert_eq!(kept.count(), 10, "those of the last turn");
        kept.begin_turn(59_990 * MS + KEPT_NS);
        assert_eq!(kept.count(), 0);
    }

    #[test]
    fn oldest_sockets_make_room() {
        let mut kept = KeptSockets::new();
        (0..5).for_each(|socket| kept.keep(socket));
        kept.shrink_to(9);
        kept.shrink_to(3);
        assert_eq!((kept.take(), kept.count()), (vec![2, 3, 4], 0));
    }
}
