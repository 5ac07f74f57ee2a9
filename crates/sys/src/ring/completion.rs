//! The reports of a ring: its events, how the result of a send is reported, and the state of a send whose slot is given
//! up.

use std::io;
use std::os::fd::OwnedFd;

/// An event of a ring.
#[derive(Debug)]
pub enum Completion {
    /// Bytes arrived: [`super::Ring::received`] returns them until the next completion is requested.
    Received,
    /// The peer has ended its direction, or receiving failed; no more data will arrive.
    Ended(io::Result<()>),
    /// The socket accepted this many bytes of a [`Sending::Reported`] send; the ring continues with the rest by itself.
    Sent(usize),
    /// A send failed, and the rest of it is dropped. The socket did not accept this many bytes of
    /// [`Sending::Assumed`] sends.
    NotSent(usize, io::Error),
    /// A watched socket is writable, or has failed.
    Writable,
    /// A listener accepted a connection.
    Accepted(OwnedFd),
}

/// How the result of a send is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The send is assumed to be accepted whole; [`Completion::NotSent`] follows in the rare case that it was not.
    Assumed,
    /// [`Completion::Sent`] reports it, in pieces.
    Reported,
}

/// The state of a slot's last send when the slot was given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Bytes of a [`Sending::Assumed`] send that the socket did not accept.
    pub unsent_bytes: usize,
    /// Bytes of a [`Sending::Reported`] send that the socket accepted, not reported by any completion.
    pub taken_bytes: usize,
}
