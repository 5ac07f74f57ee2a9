//! The bytes of one direction of a connection, in order: numbers of segments, what waits for a hole to be filled, and when
//! a hole is lost. Positions are offsets from the connection's first byte that is known, so that 32 bits may wrap. Keeps no
//! byte that was passed on.

use std::collections::{BTreeMap, VecDeque};

use super::counts::PacketCounts;

/// More than this waits for no hole, bytes.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// What a piece costs beside its bytes.
const PIECE_BYTES: usize = 112;
/// A segment further away than this is of another connection, or what lies between was not captured.
const MAX_DISTANCE: i64 = 64 << 20;
/// Frames of a connection after which a hole is lost: capturing may put a few frames out of order.
const PATIENCE: u32 = 4;
/// Segments that are remembered, so that a copy can be compared.
const MAX_RECENT: usize = 16;

/// Bytes in order, or a part that has to wait.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) at_ns: u64,
    /// How far its sender had received the other direction.
    pub(super) acknowledged: Option<i64>,
}

/// What becomes of a segment's payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// The rest from this byte on follows what was passed on.
    Next(usize),
    /// It was kept, or was there before.
    Done,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The number of the byte at `offset`; `None` until it is known.
    next: Option<u32>,
    offset: i64,
    waiting: BTreeMap<i64, Piece>,
    waiting_bytes: usize,
    /// How far the other side has received it.
    acknowledged: i64,
    end: Option<i64>,
    is_ended: bool,
    /// When the last byte was there that was passed on.
    last_ns: u64,
    /// Frames since the other side has received what is not here.
    impatience: u32,
    /// Segments in a row that lay too far away.
    strays: u32,
    recent: VecDeque<Seen>,
}

/// A payload that was passed on.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from: i64,
    bytes: u32,
    hash: u32,
}

impl Stream {
    /// The position of the next byte that is passed on.
    pub(super) fn offset(&self) -> i64 {
        self.offset
    }

    /// Whether the number of its next byte is known.
    pub(super) fn is_started(&self) -> bool {
        self.next.is_some()
    }

    /// Whether its sender has ended it, and all of it was passed on.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Memory that it holds, bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Whether no more may wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes > MAX_WAITING_BYTES
    }

    /// Says that the next byte has this number.
    pub(super) fn start(&mut self, number: u32) {
        self.next = Some(number);
        self.acknowledged = self.acknowledged.max(self.offset);
    }

    /// Whether a SYN with this number began it.
    pub(super) fn has_begun_with(&self, syn: u32) -> bool {
        self.next.is_some_and(|next| next.wrapping_sub(self.offset as u32) == syn.wrapping_add(1))
    }

    /// Returns the position of a number; `None` if it is not known, or further away than a connection's bytes can be.
    pub(super) fn position(&self, number: u32) -> Option<i64> {
        let distance = i64::from(number.wrapping_sub(self.next?) as i32);
        (distance.abs() <= MAX_DISTANCE).then_some(self.offset + distance)
    }

    /// Notes how far the other side has received it.
    pub(super) fn acknowledge(&mut self, number: u32) {
        if let Some(position) = self.position(number) {
            self.acknowledged = self.acknowledged.max(position);
        }
    }

    /// Notes where its sender ends it.
    pub(super) fn set_end(&mut self, number: u32) {
        if self.end.is_none() {
            self.end = self.position(number);
        }
    }

    /// Puts the payload of a segment in its place.
    pub(super) fn place(&mut self, number: u32, payload: &[u8], piece: &Piece, counts: &mut PacketCounts) -> Placed {
        let Some(from) = self.position(number) else {
            self.strays += 1;
            return Placed::Done;
        };
        self.strays = 0;
        let to = from + payload.len() as i64;
        if to <= self.offset {
            self.count_copy(from, payload, counts);
            return Placed::Done;
        }
        let is_clear = self.waiting.first_key_value().is_none_or(|(first, _)| *first >= to);
        if from <= self.offset && is_clear {
            counts.retransmitted += u64::from(from < self.offset);
            return Placed::Next((self.offset - from) as usize);
        }
        counts.out_of_order += u64::from(from > self.offset);
        self.keep(from, payload, piece, counts);
        Placed::Done
    }

    /// Keeps a payload until what is before it has been passed on.
    pub(super) fn keep(&mut self, from: i64, payload: &[u8], piece: &Piece, counts: &mut PacketCounts) {
        let (mut at, to) = (from.max(self.offset), from + payload.len() as i64);
        let part = |from_: i64, to_: i64| &payload[(from_ - from) as usize..(to_ - from) as usize];
        while at < to {
            let before = self.waiting.range(..=at).next_back().map(|(from, kept)| (*from, kept));
            if let Some((kept_from, kept)) = before.filter(|(from, kept)| from + kept.bytes.len() as i64 > at) {
                // The first copy stays.
                let until = to.min(kept_from + kept.bytes.len() as i64);
                let same = kept.bytes[(at - kept_from) as usize..(until - kept_from) as usize] == *part(at, until);
                counts.retransmitted += 1;
                counts.differing += u64::from(!same);
                at = until;
                continue;
            }
            let until = self.waiting.range(at..).next().map_or(to, |(next, _)| to.min(*next));
            let bytes = part(at, until).to_vec();
            self.waiting_bytes += bytes.len() + PIECE_BYTES;
            self.waiting.insert(at, Piece { bytes, ..*piece });
            at = until;
        }
    }

    /// Returns when bytes that came at `at_ns` were there for who reads them in order: not before those that they follow.
    pub(super) fn arrive(&mut self, at_ns: u64) -> u64 {
        self.last_ns = self.last_ns.max(at_ns);
        self.last_ns
    }

    /// Notes that bytes were passed on.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Seen { from: self.offset, bytes: bytes.len() as u32, hash: hash_of(bytes) });
        self.advance(bytes.len() as i64);
    }

    /// Takes the piece that follows, if `may_pass` allows it.
    pub(super) fn take_next(&mut self, may_pass: impl Fn(&Piece) -> bool) -> Option<Piece> {
        let entry = self.waiting.first_entry()?;
        if *entry.key() > self.offset || !may_pass(entry.get()) {
            return None;
        }
        let (from, mut piece) = entry.remove_entry();
        self.waiting_bytes -= piece.bytes.len() + PIECE_BYTES;
        let known = usize::try_from(self.offset - from).unwrap_or(0).min(piece.bytes.len());
        piece.bytes.drain(..known);
        Some(piece)
    }

    /// Takes its end, once, if all before it was passed on.
    pub(super) fn take_end(&mut self) -> bool {
        if self.is_ended || self.end.is_none_or(|end| end > self.offset) {
            return false;
        }
        // Its number is followed by that of the end itself.
        self.advance(1);
        self.is_ended = true;
        true
    }

    /// Returns how many bytes are lost, if there is a hole that nothing fills any more. `is_over` says that nothing more
    /// of the connection comes.
    pub(super) fn find_loss(&mut self, is_over: bool) -> Option<u64> {
        let first = self.waiting.first_key_value().map(|(first, _)| *first);
        let known = first.or(self.end.filter(|_| !self.is_ended));
        let is_hole = first.is_none_or(|first| first > self.offset) && !self.is_ended;
        let is_acknowledged = self.acknowledged > self.offset;
        if !is_hole || !(is_acknowledged || known.is_some()) {
            return None;
        }
        let is_lost = is_over || self.is_full() || (is_acknowledged && self.impatience > PATIENCE);
        let acknowledged = Some(self.acknowledged).filter(|_| is_acknowledged);
        let to = known.into_iter().chain(acknowledged).min()?;
        (is_lost && to > self.offset).then_some((to - self.offset) as u64)
    }

    /// Counts a frame while the other side has received what is not here.
    pub(super) fn count_frame(&mut self) {
        if self.acknowledged > self.offset && !self.is_ended {
            self.impatience += 1;
        }
    }

    /// Passes over what is lost.
    pub(super) fn lose(&mut self, bytes: u64) {
        self.advance(bytes as i64);
        self.recent.clear();
    }

    /// Whether segments in a row lay too far away, so that the connection must have gone on without being captured.
    pub(super) fn has_left(&self, number: u32) -> bool {
        self.strays > PATIENCE && self.position(number).is_none()
    }

    /// Forgets what waits, and goes on with a byte that does not follow.
    pub(super) fn restart(&mut self, number: u32) {
        *self = Self { next: Some(number), offset: self.offset, acknowledged: self.offset, ..Self::default() };
    }

    fn advance(&mut self, bytes: i64) {
        self.next = self.next.map(|next| next.wrapping_add(bytes as u32));
        self.offset += bytes;
        self.impatience = 0;
    }

    fn count_copy(&self, from: i64, payload: &[u8], counts: &mut PacketCounts) {
        // A probe that the connection still lives has one byte of any value.
        if payload.len() <= 1 {
            return;
        }
        counts.retransmitted += 1;
        let seen = self.recent.iter().find(|seen| seen.from == from && seen.bytes as usize == payload.len());
        counts.differing += u64::from(seen.is_some_and(|seen| seen.hash != hash_of(payload)));
    }
}

/// A quick hash, to compare a copy with what was passed on.
fn hash_of(bytes: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    let step = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    let hash = words.filter_map(|word| word.try_into().ok()).fold(0, |hash, word| step(hash, u64::from_le_bytes(word)));
    (step(hash, u64::from_le_bytes(last)) >> 32) as u32
}
