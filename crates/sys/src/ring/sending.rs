//! Sends of a ring's sockets: short pieces of the payload that are assumed to be accepted whole, long pieces and
//! copies whose completions are reported; and the state of a send whose slot is given up.

use std::io;
use std::ops::Range;

use io_uring::types::Fixed;
use io_uring::{opcode, squeue};

use super::completion::{Completion, Left, Sending};
use super::operation::{token, CANCEL_SEND, COPY, SEND};
use super::outgoing::Flight;
use super::Ring;

/// A send of at most this size, bytes, is assumed to be accepted at once: the smallest send buffer has more room.
const ASSUMED_BYTES: usize = 4096;
/// How often the kernel is asked for the result of a cancelled send. The first or second call returns it.
const LOOKS: u32 = 8;

impl Ring {
    /// Sends a piece of the payload. At most one such send per slot may be in flight, and no copy.
    #[inline]
    pub fn send(&mut self, slot: usize, piece: Range<usize>) -> io::Result<Sending> {
        let is_short = piece.len() <= ASSUMED_BYTES;
        self.slots[slot].flight =
            if is_short { Flight::Assumed { bytes: piece.len() } } else { Flight::Payload { to: piece.end } };
        if !is_short {
            self.outgoing.begin_payload(slot, piece.start);
        }
        let place = self.outgoing.payload(piece);
        self.push_send(SEND, slot, place, is_short)?;
        if self.queued >= self.batch {
            self.enter(0, None)?;
        }
        Ok(if is_short { Sending::Assumed } else { Sending::Reported })
    }

    /// Sends a copy of these bytes, after all bytes given for this slot before; always [`Sending::Reported`]. A slot
    /// holds any amount: a caller that can send more than the peer reads has to limit it.
    pub fn send_copy(&mut self, slot: usize, bytes: &[u8]) -> io::Result<()> {
        // The assumed send is over: the peer's response precedes any further send.
        let is_free = matches!(self.slots[slot].flight, Flight::None | Flight::Assumed { .. });
        if let Some(flying) = self.outgoing.give(slot, bytes, is_free) {
            self.slots[slot].flight = Flight::Copy;
            self.push_send(COPY, slot, flying, false)?;
            if self.queued >= self.batch {
                self.enter(0, None)?;
            }
        }
        Ok(())
    }

    /// Queues a send. With MSG_WAITALL, as for assumed sends, the kernel continues a send that the socket accepted in
    /// part; a send that still falls short counts as failed, and failures complete even if successes do not.
    #[inline]
    fn push_send(
        &mut self,
        kind: u64,
        slot: usize,
        (address, length): (*const u8, usize),
        assumed: bool,
    ) -> io::Result<()> {
        let (flags, skip) = if assumed {
            (libc::MSG_NOSIGNAL | libc::MSG_WAITALL, squeue::Flags::SKIP_SUCCESS)
        } else {
            (libc::MSG_NOSIGNAL, squeue::Flags::empty())
        };
        let length = length.min(i32::MAX as usize) as u32;
        let entry = opcode::Send::new(Fixed(slot as u32), address, length).flags(flags).build();
        let token = token(kind, slot, self.slots[slot].generation);
        self.push(entry.flags(skip).user_data(token))
    }

    /// Handles the end of a send, and continues with the rest of it.
    pub(super) fn take_sent(&mut self, kind: u64, slot: usize, result: i32) -> io::Result<Completion> {
        let taken = result.max(0) as usize;
        if kind == SEND && matches!(self.slots[slot].flight, Flight::Copy) {
            // An assumed piece has failed; the copy after it reports its own result.
            return Ok(Completion::NotSent(0, io::Error::from_raw_os_error(-result.min(-1))));
        }
        let flight = std::mem::take(&mut self.slots[slot].flight);
        if result < 0 {
            self.outgoing.drop_all(slot);
        }
        let rest = match flight {
            _ if result < 0 => None,
            Flight::Payload { to } => match self.outgoing.payload_rest(slot, taken, to) {
                Some(rest) => Some((flight, rest)),
                // Bytes given after it wait for its end.
                None => self.outgoing.copy_rest(slot, 0).map(|rest| (Flight::Copy, rest)),
            },
            Flight::Copy => self.outgoing.copy_rest(slot, taken).map(|rest| (flight, rest)),
            Flight::None | Flight::Assumed { .. } => None,
        };
        if let Some((next, rest)) = rest {
            self.slots[slot].flight = next;
            self.push_send(next.kind().unwrap_or(kind), slot, rest, false)?;
        }
        let missing = if let Flight::Assumed { bytes } = flight { bytes.saturating_sub(taken) } else { 0 };
        Ok(match (result, flight) {
            (0.., Flight::Assumed { .. }) => Completion::NotSent(missing, io::ErrorKind::WriteZero.into()),
            (0.., _) => Completion::Sent(taken),
            _ => Completion::NotSent(missing, io::Error::from_raw_os_error(-result)),
        })
    }

    /// Returns the state of the send that was in flight when its slot was given up. Its cancellation has been
    /// submitted.
    pub(super) fn left_of(&mut self, slot: usize, generation: u32, flight: Flight) -> io::Result<Left> {
        let Some(kind) = flight.kind() else { return Ok(Left::default()) };
        let (send, cancel) = (token(kind, slot, generation), token(CANCEL_SEND, slot, generation));
        let mut was_cancelled = false;
        for _ in 0..LOOKS {
            self.reap();
            let result_of = |user_data| {
                let completed = self.reaped[self.next..].iter().find(|reaped| reaped.user_data == user_data);
                completed.map(|reaped| reaped.result)
            };
            let cancelled = result_of(cancel);
            was_cancelled = cancelled.is_some_and(|result| result >= 0);
            match (flight, result_of(send)) {
                (Flight::Assumed { bytes }, Some(result)) => {
                    let unsent_bytes = bytes.saturating_sub(result.max(0) as usize);
                    return Ok(Left { unsent_bytes, taken_bytes: 0 });
                }
                // If only failures complete, it had ended without failure.
                (Flight::Assumed { .. }, None) if cancelled == Some(-libc::ENOENT) => return Ok(Left::default()),
                (_, Some(result)) => return Ok(Left { unsent_bytes: 0, taken_bytes: result.max(0) as usize }),
                // The kernel delivers its completion when it is entered.
                _ => self.enter(0, Some(0))?,
            }
        }
        let Flight::Assumed { bytes } = flight else { return Ok(Left::default()) };
        Ok(Left { unsent_bytes: if was_cancelled { bytes } else { 0 }, taken_bytes: 0 })
    }
}
