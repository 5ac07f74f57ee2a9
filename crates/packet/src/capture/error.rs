//! Why a capture cannot be replayed: one line that says what is wrong, and where.

use std::io;

/// What is wrong with a capture. Positions are bytes from its beginning.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The system's error.
    #[error("the capture cannot be read: {0}")]
    Input(#[from] io::Error),
    /// It is something else.
    #[error("not a capture: it begins with {0:02x?}, not as pcap or pcapng does")]
    NotACapture([u8; 4]),
    /// It is a capture within something else, or of a variant that is not read.
    #[error("{what}; {instead}")]
    Unsupported {
        /// What it is.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// It ends too early.
    #[error("the capture ends at byte {at}, within {within}; it is cut, or still being written")]
    Ends {
        /// Where.
        at: u64,
        /// Within what.
        within: &'static str,
    },
    /// Its frames are of a link that is not read.
    #[error("the capture has frames of link type {number} ({name}); only {wanted} can be replayed")]
    LinkType {
        /// The number of the link type.
        number: u32,
        /// Its name.
        name: &'static str,
        /// What is read.
        wanted: &'static str,
    },
    /// A frame is longer than any that is read.
    #[error("a frame of {bytes} bytes at byte {at} of the capture; the maximum is {max}")]
    FrameTooLong {
        /// Where it is.
        at: u64,
        /// Its length.
        bytes: u32,
        /// The maximum.
        max: u32,
    },
    /// A number in it is none that the format allows.
    #[error("{what} at byte {at} of the capture: {value}")]
    Malformed {
        /// Where it is.
        at: u64,
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}
