//! The data that a ring's sockets send: pieces of one constant payload, and copies that each slot keeps until the
//! kernel has accepted them. Owns that memory: a copy that may be in flight is neither moved, changed nor freed.

use std::ops::Range;

use super::operation::{COPY, SEND};

/// The send of a slot that is in flight.
#[derive(Clone, Copy, Default)]
pub(super) enum Flight {
    #[default]
    None,
    /// A short piece of the payload, of this length.
    Assumed { bytes: usize },
    /// A long piece of the payload, up to this offset.
    Payload { to: usize },
    /// The slot's own bytes.
    Copy,
}

impl Flight {
    /// Returns the kind of its operation, if there is one.
    pub(super) fn kind(self) -> Option<u64> {
        match self {
            Flight::None => None,
            Flight::Assumed { .. } | Flight::Payload { .. } => Some(SEND),
            Flight::Copy => Some(COPY),
        }
    }
}

/// A completed copy's memory is kept for the next one unless it is larger than this, bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// The copies of a slot.
#[derive(Default)]
struct Own {
    /// The bytes that the kernel was given, and how many of them are done.
    flying: Vec<u8>,
    done: usize,
    /// The bytes after them.
    pending: Vec<u8>,
}

/// The outgoing memory of a ring; see the file's head.
pub(super) struct Outgoing {
    payload: Box<[u8]>,
    /// The progress of each slot's long piece; allocated with the first one.
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

    /// Returns the location of a piece of the payload.
    #[inline]
    pub(super) fn payload(&mut self, piece: Range<usize>) -> (*const u8, usize) {
        let bytes = &self.payload[piece];
        (bytes.as_ptr(), bytes.len())
    }

    /// Records the beginning of a long piece.
    pub(super) fn begin_payload(&mut self, slot: usize, from: usize) {
        if self.payload_from.is_empty() {
            self.payload_from = vec![0; self.slots];
        }
        self.payload_from[slot] = from;
    }

    /// Returns the rest of a long piece after this many more bytes; `None` if it is complete.
    pub(super) fn payload_rest(&mut self, slot: usize, taken: usize, to: usize) -> Option<(*const u8, usize)> {
        let from = (self.payload_from[slot] + taken).min(to);
        self.payload_from[slot] = from;
        (from < to).then(|| self.payload(from..to))
    }

    /// Stores bytes for a slot; returns their location if they can be sent at once.
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

    /// Returns the rest of a slot's copies after this many more bytes; `None` if they are complete.
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

    /// Drops a slot's unsent bytes; none of them is in flight.
    pub(super) fn drop_all(&mut self, slot: usize) {
        if let Some(own) = self.own.get_mut(slot).and_then(Option::as_mut) {
            own.flying.clear();
            own.pending.clear();
            own.done = 0;
        }
    }

    /// Retires a slot's copies; bytes in flight under `token` stay until that send has completed.
    pub(super) fn retire(&mut self, slot: usize, token: Option<u64>) {
        if let Some(own) = self.own.get_mut(slot).and_then(Option::as_mut) {
            if let Some(token) = token {
                self.retired.push((token, std::mem::take(&mut own.flying)));
            }
        }
        self.drop_all(slot);
    }

    /// Frees the copies of a retired slot whose send has completed.
    pub(super) fn forget(&mut self, token: u64) {
        self.retired.retain(|(retired, _)| *retired != token);
    }
}
