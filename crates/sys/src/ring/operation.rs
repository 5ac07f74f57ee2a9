//! The `user_data` of an operation identifies its owner: kind, slot, and the slot's generation, which increases each
//! time the slot is given up. A late completion of one socket is therefore never taken for its successor's.

/// Kinds of operations, the lowest byte of `user_data`.
pub(super) const RECEIVE: u64 = 0;
pub(super) const SEND: u64 = 1;
pub(super) const WATCH: u64 = 2;
pub(super) const CANCEL: u64 = 3;
pub(super) const CANCEL_SEND: u64 = 4;
pub(super) const COPY: u64 = 5;
pub(super) const ACCEPT: u64 = 6;
/// The largest generation.
pub(super) const GENERATIONS: u32 = (1 << 24) - 1;

#[inline]
pub(super) fn token(kind: u64, slot: usize, generation: u32) -> u64 {
    (slot as u64) << 32 | u64::from(generation) << 8 | kind
}

#[inline]
pub(super) fn slot_of(user_data: u64) -> usize {
    (user_data >> 32) as usize
}

#[inline]
pub(super) fn generation_of(user_data: u64) -> u32 {
    (user_data >> 8) as u32 & GENERATIONS
}
