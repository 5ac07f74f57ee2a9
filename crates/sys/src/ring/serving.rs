//! The server side of a ring: listeners with multishot accept, and sockets that pause receiving.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::types::{CancelBuilder, Fixed};
use io_uring::{cqueue, opcode, squeue};

use super::completion::Completion;
use super::operation::{token, ACCEPT, CANCEL, RECEIVE};
use super::{accepted_socket, Ring};

impl Ring {
    /// Accepts connections of a listener from now on; each is reported as [`Completion::Accepted`], in blocking mode.
    /// After [`Completion::Ended`], which reports an error, accepting has to be requested again; before that, a
    /// request changes nothing.
    pub fn accept(&mut self, slot: usize, listener: impl AsFd) -> io::Result<()> {
        if self.slots[slot].is_accepting {
            return Ok(());
        }
        self.uring.submitter().register_files_update(slot as u32, &[listener.as_fd().as_raw_fd()])?;
        self.slots[slot].is_registered = true;
        self.accept_on(slot)
    }

    /// Stops receiving from a slot's socket until [`Ring::resume`]. Data received before is still reported.
    pub fn pause(&mut self, slot: usize) -> io::Result<()> {
        let place = &mut self.slots[slot];
        place.is_paused = true;
        if !place.is_receiving {
            return Ok(());
        }
        let generation = place.generation;
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::user_data(token(RECEIVE, slot, generation))).build();
        self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS).user_data(token(CANCEL, slot, generation)))
    }

    /// Resumes receiving.
    pub fn resume(&mut self, slot: usize) -> io::Result<()> {
        let place = &mut self.slots[slot];
        place.is_paused = false;
        // If the pause ends before it has taken effect, receiving continues when the kernel reports its beginning.
        if place.is_receiving || !place.is_registered {
            return Ok(());
        }
        self.receive(slot)
    }

    fn accept_on(&mut self, slot: usize) -> io::Result<()> {
        self.slots[slot].is_accepting = true;
        let entry = opcode::AcceptMulti::new(Fixed(slot as u32)).flags(libc::SOCK_CLOEXEC).build();
        let token = token(ACCEPT, slot, self.slots[slot].generation);
        self.push(entry.user_data(token))
    }

    pub(super) fn take_accepted(&mut self, slot: usize, result: i32, flags: u32) -> io::Result<Completion> {
        self.slots[slot].is_accepting = cqueue::more(flags);
        let Some(socket) = accepted_socket(result) else {
            return Ok(Completion::Ended(Err(io::Error::from_raw_os_error(-result))));
        };
        if !cqueue::more(flags) {
            self.accept_on(slot)?;
        }
        Ok(Completion::Accepted(socket))
    }
}
