//! Requests that wait for their answers, in the order of the file, and answers that came before their requests. Both in
//! bounded number and size.

use std::collections::{HashMap, VecDeque};

use super::records::Raw;
use crate::recorded::Recorded;

/// Requests that wait, at most, and their bytes.
const MAX_WAITING: usize = 1000;
const MAX_WAITING_BYTES: usize = 32 << 20;
/// Answers that wait, at most, and their bytes.
const MAX_EARLY: usize = 256;
const MAX_EARLY_BYTES: usize = 16 << 20;

/// A request that waits for its answer, or for those before it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: Box<[u8]>,
    pub(super) recorded: Recorded,
    pub(super) done_ns: i64,
    pub(super) is_head: bool,
    pub(super) is_answered: bool,
    pub(super) is_upgraded: bool,
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Join {
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// How many requests were given before the first that waits.
    given: u64,
    /// Numbers of requests without an answer, by ID: requests of a pipeline have the same one.
    unanswered: HashMap<Box<[u8]>, VecDeque<u64>>,
    early: VecDeque<Raw>,
    early_bytes: usize,
}

impl Join {
    /// Takes a request.
    pub(super) fn push(&mut self, waiting: Waiting) {
        if !waiting.is_answered {
            let number = self.given + self.waiting.len() as u64;
            self.unanswered.entry(waiting.id.clone()).or_default().push_back(number);
        }
        self.waiting_bytes += bytes_of(&waiting);
        self.waiting.push_back(waiting);
    }

    /// Takes the request that comes first, if it waits for nothing any more.
    pub(super) fn take_ready(&mut self, is_over: bool) -> Option<Waiting> {
        let is_full = self.waiting.len() > MAX_WAITING || self.waiting_bytes > MAX_WAITING_BYTES;
        self.waiting.front().filter(|first| first.is_answered || is_over || is_full)?;
        let first = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes_of(&first);
        if !first.is_answered {
            self.forget_number(&first.id);
        }
        self.given += 1;
        Some(first)
    }

    /// Takes out the first request without an answer that has this ID, with its number.
    pub(super) fn take_unanswered(&mut self, id: &[u8]) -> Option<(u64, Waiting)> {
        let number = *self.unanswered.get(id)?.front()?;
        self.forget_number(id);
        let place = self.waiting.get_mut(usize::try_from(number - self.given).ok()?)?;
        let nothing = Waiting {
            id: Box::default(),
            recorded: Recorded::default(),
            done_ns: 0,
            is_head: false,
            is_answered: true,
            is_upgraded: false,
        };
        let waiting = std::mem::replace(place, nothing);
        self.waiting_bytes -= bytes_of(&waiting);
        Some((number, waiting))
    }

    /// Puts a request back in its place.
    pub(super) fn put_back(&mut self, number: u64, waiting: Waiting) {
        self.waiting_bytes += bytes_of(&waiting);
        if let Some(place) = self.waiting.get_mut((number - self.given) as usize) {
            *place = waiting;
        }
    }

    /// Takes an answer whose request has not come; returns how many are forgotten.
    pub(super) fn push_early(&mut self, raw: Raw) -> u64 {
        self.early_bytes += raw.payload.len();
        self.early.push_back(raw);
        let mut forgotten = 0;
        while self.early.len() > MAX_EARLY || self.early_bytes > MAX_EARLY_BYTES {
            let Some(first) = self.early.pop_front() else { break };
            self.early_bytes -= first.payload.len();
            forgotten += 1;
        }
        forgotten
    }

    /// Takes the answer that came before the request with this ID.
    pub(super) fn take_early(&mut self, id: &[u8]) -> Option<Raw> {
        let place = self.early.iter().position(|raw| *raw.id == *id)?;
        let raw = self.early.remove(place)?;
        self.early_bytes -= raw.payload.len();
        Some(raw)
    }

    /// Forgets answers whose requests did not come; returns how many.
    pub(super) fn forget_early(&mut self) -> u64 {
        self.early_bytes = 0;
        self.early.drain(..).count() as u64
    }

    fn forget_number(&mut self, id: &[u8]) {
        if let Some(numbers) = self.unanswered.get_mut(id) {
            numbers.pop_front();
            if numbers.is_empty() {
                self.unanswered.remove(id);
            }
        }
    }
}

fn bytes_of(waiting: &Waiting) -> usize {
    let (recorded, answer) = (&waiting.recorded, &waiting.recorded.answer);
    let parts = [&recorded.method, &recorded.target, &recorded.host, &recorded.fields];
    let optional = [&recorded.body, &answer.body, &answer.fields];
    parts.iter().map(|part| part.len()).sum::<usize>()
        + optional.iter().map(|part| part.as_ref().map_or(0, Vec::len)).sum::<usize>()
}
