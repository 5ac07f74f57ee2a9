//! The time limits of connections, the earliest first. Owns which slots a passed instant concerns; the caller knows whether
//! a slot's limit has passed, moved or become void. A limit that moves to a later instant costs nothing before
//! the earlier one has passed, so that a connection that is used again and again has one entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No limit is queued.
const NONE: u64 = u64::MAX;

/// The limits of slots.
#[derive(Debug)]
pub(super) struct Deadlines {
    /// Instants in ns and their slots; those that differ from the slot's in `queued` are void.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// By slot: the earliest instant in the queue, ns.
    queued: Vec<u64>,
    /// Entries that were taken from the queue.
    #[cfg(test)]
    pub(super) taken: usize,
}

impl Deadlines {
    /// Returns no limits.
    pub fn new(slots: usize) -> Self {
        Self {
            queue: BinaryHeap::new(),
            queued: vec![NONE; slots],
            #[cfg(test)]
            taken: 0,
        }
    }

    /// When the next limit may pass, ns, if there is one.
    pub fn next_ns(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Notes that a slot has a limit at this instant, ns.
    pub fn set(&mut self, slot: u32, at_ns: u64) {
        let queued = &mut self.queued[slot as usize];
        if at_ns < *queued {
            *queued = at_ns;
            self.queue.push(Reverse((at_ns, slot)));
        }
    }

    /// Returns a slot whose limit may have passed by now; a limit that is later has to be set again.
    pub fn take(&mut self, now_ns: u64) -> Option<u32> {
        while self.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            let Some(Reverse((at_ns, slot))) = self.queue.pop() else { break };
            #[cfg(test)]
            {
                self.taken += 1;
            }
            let queued = &mut self.queued[slot as usize];
            if *queued == at_ns {
                *queued = NONE;
                return Some(slot);
            }
        }
        None
    }
}
