//! What a ring's sockets send: pieces of one payload that never changes, and copies that each slot keeps until the kernel
//! has taken them. Owns that memory: a copy that may be in flight is neither moved, changed nor freed.

use std::ops::Range;

/// Which send of a slot is under way.
#[derive(Clone, Copy, Default)]
pub(super) enum Flight {
    #[default]
    None,
    /// A short piece of the payload, so long.
    Assumed { bytes: usize },
    /// A long piece of the payload, up to here.
    Payload { to: usize },
    /// The slot's own bytes.
    Copy,
}

impl Flight {
    /// The kind of its operation, where there is one.
    pub(super) fn kind(self) -> Option<u64> {
        match self {
            Flight::None => None,
            Flight::Assumed { .. } | Flight::Payload { .. } => Some(super::SEND),
            Flight::Copy => Some(super::COPY),
        }
    }
}

/// A copy that is done with is kept for the next one unless it is larger than this, bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// What a slot sends.
#[derive(Default)]
struct Own {
    /// What the kernel has been given, and how much of it is done.
    flying: Vec<u8>,
    done: usize,
    /// What comes after it.
    pending: Vec<u8>,
}

/// See the file's head.
pub(super) struct Outgoing {
    payload: Box<[u8]>,
    /// How far the long piece of each slot's payload has come; allocated with the first.
    payload_from: Vec<usize>,
    own: Vec<Option<Box<Own>>>,
    /// Copies of slots that were given up, until their last send has completed.
    retired: Vec<(u64, Vec<u8>)>,
    slots: usize,
}

impl Outgoing {
    pub(super) fn new(payload: Box<[u8]>, slots: usize) -> Self {
        Self { payload, payload_from: Vec::new(), own: Vec::new(), retired: Vec::new(), slots }
    }

    /// Where a piece of the payload lies.
    #[inline]
    pub(super) fn payload(&mut self, piece: Range<usize>) -> (*const u8, usize) {
        let bytes = &self.payload[piece];
        (bytes.as_ptr(), bytes.len())
    }

    /// Note where a long piece begins.
    pub(super) fn begin_payload(&mut self, slot: usize, from: usize) {
        if self.payload_from.is_empty() {
            self.payload_from = vec![0; self.slots];
        }
        self.payload_from[slot] = from;
    }

    /// What is left of a long piece after so many more bytes; `None` where that is all.
    pub(super) fn payload_rest(&mut self, slot: usize, taken: usize, to: usize) -> Option<(*const u8, usize)> {
        let from = (self.payload_from[slot] + taken).min(to);
        self.payload_from[slot] = from;
        (from < to).then(|| self.payload(from..to))
    }

    /// Keep bytes for a slot; says where they lie if they may go at once.
    pub(super) fn give(&mut self, slot: usize, bytes: &[u8], is_free: bool) -> Option<(*const u8, usize)> {
        if self.own.is_empty() {
            self.own.resize_with(self.slots, || None);
        }
        let own = self.own[slot].get_or_insert_default();
        if !is_free {
            own.pending.extend_from_slice(bytes);
            return None;
        }
        own.flying.clear();
        own.flying.extend_from_slice(bytes);
        own.done = 0;
        (!bytes.is_empty()).then_some((own.flying.as_ptr(), own.flying.len()))
    }

    /// What is left of a slot's copies after so many more bytes; `None` where that is all.
    pub(super) fn copy_rest(&mut self, slot: usize, taken: usize) -> Option<(*const u8, usize)> {
        let own = self.own.get_mut(slot)?.as_mut()?;
        own.done += taken;
        if own.done >= own.flying.len() {
            own.flying.clear();
            own.flying.shrink_to(KEPT_BYTES);
            own.done = 0;
            std::mem::swap(&mut own.flying, &mut own.pending);
        }
        let rest = &own.flying[own.done..];
        (!rest.is_empty()).then_some((rest.as_ptr(), rest.len()))
    }

    /// Drop what a slot still had to send; nothing of it is in flight.
    pub(super) fn drop_all(&mut self, slot: usize) {
        if let Some(own) = self.own.get_mut(slot).and_then(Option::as_mut) {
            own.flying.clear();
            own.pending.clear();
            own.done = 0;
        }
    }

    /// Give a slot's copies up; what is in flight under `token` lives on until that has completed.
    pub(super) fn retire(&mut self, slot: usize, token: Option<u64>) {
        if let Some(own) = self.own.get_mut(slot).and_then(Option::as_mut) {
            if let Some(token) = token {
                self.retired.push((token, std::mem::take(&mut own.flying)));
            }
        }
        self.drop_all(slot);
    }

    /// The send of a slot that was given up has completed.
    pub(super) fn forget(&mut self, token: u64) {
        self.retired.retain(|(retired, _)| *retired != token);
    }
}
