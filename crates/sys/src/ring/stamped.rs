//! Receiving with the kernel's timestamp (SO_TIMESTAMPING): parses the buffer that a multishot `recvmsg` fills.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::ops::Range;

use io_uring::types::RecvMsgOut;

/// Room for one control message with three `timespec`s, and some to spare.
pub(crate) const CONTROL_BYTES: usize = 128;

/// The message header of all stamped receives of a ring; the kernel may read it while one is in flight.
pub(super) struct Stamped {
    header: Box<libc::msghdr>,
}

// SAFETY: the header's pointers are null; only its lengths are used.
unsafe impl Send for Stamped {}

impl Stamped {
    pub(super) fn new() -> Self {
        // SAFETY: an all-zero msghdr is valid: no name, no vectors, no control data.
        let mut header: Box<libc::msghdr> = Box::new(unsafe { zeroed() });
        header.msg_controllen = CONTROL_BYTES;
        Self { header }
    }

    pub(super) fn header(&self) -> *const libc::msghdr {
        &raw const *self.header
    }

    /// Returns the range of the received bytes in a filled buffer, and their timestamp, ns on the real-time clock.
    pub(super) fn read(&self, filled: &[u8]) -> io::Result<(Range<usize>, Option<u64>)> {
        let parsed =
            RecvMsgOut::parse(filled, &self.header).map_err(|()| io::Error::from(io::ErrorKind::InvalidData))?;
        let payload = parsed.payload_data();
        let from = payload.as_ptr() as usize - filled.as_ptr() as usize;
        Ok((from..from + payload.len(), stamp_ns(parsed.control_data())))
    }
}

/// Returns the software timestamp from control messages (the first of SCM_TIMESTAMPING's three), ns on the real-time
/// clock.
pub(crate) fn stamp_ns(control: &[u8]) -> Option<u64> {
    // `cmsghdr`: length (8 bytes), level (4), type (4); then the data, two 8-byte words per timespec.
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let word = |at: usize| Some(u64::from_ne_bytes(control.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(i32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    let mut at = 0;
    while let Some(length) = word(at) {
        if half(at + 8)? == libc::SOL_SOCKET && half(at + 12)? == libc::SCM_TIMESTAMPING {
            let (seconds, nanoseconds) = (word(at + HEADER)?, word(at + HEADER + 8)?);
            return seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds).filter(|stamp| *stamp > 0);
        }
        at += usize::try_from(length).ok()?.max(HEADER).next_multiple_of(8);
    }
    None
}
