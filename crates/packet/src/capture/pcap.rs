//! The classic format: a header, then a short head before each frame.

use std::io::Read;

use super::error::CaptureError;
use super::link_type::{Accepted, LinkType};
use super::source::{ByteOrder, Source};

const HEADER_BYTES: usize = 24;
const HEAD_BYTES: usize = 16;
const VERSION: u16 = 2;
/// Of the field of the link type: frames end with their FCS, whose length in words of 16 bits is in the uppermost 4 bits.
const HAS_FCS: u32 = 1 << 26;
/// The link type itself. The bits above it are those of the FCS, and reserved ones.
const LINK_TYPE_BITS: u32 = 0xffff;

/// What the header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pcap {
    order: ByteOrder,
    fraction_ns: u32,
    pub(super) fcs_bytes: u32,
    pub(super) link: LinkType,
}

/// What the head of a frame says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) captured_bytes: u32,
    pub(super) original_bytes: u32,
    pub(super) at_ns: u64,
}

impl Pcap {
    /// Returns the byte order and the unit of fractions of a second, ns, if a file begins so.
    pub(super) fn recognise(magic: [u8; 4]) -> Option<(ByteOrder, u32)> {
        match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => Some((ByteOrder::Big, 1000)),
            [0xd4, 0xc3, 0xb2, 0xa1] => Some((ByteOrder::Little, 1000)),
            [0xa1, 0xb2, 0x3c, 0x4d] => Some((ByteOrder::Big, 1)),
            [0x4d, 0x3c, 0xb2, 0xa1] => Some((ByteOrder::Little, 1)),
            _ => None,
        }
    }

    /// Reads the header behind the magic number.
    pub(super) fn read_header<R: Read>(
        source: &mut Source<R>,
        (order, fraction_ns): (ByteOrder, u32),
        accepted: Accepted,
    ) -> Result<Self, CaptureError> {
        let mut header = [0; HEADER_BYTES - 4];
        source.read(&mut header, "its header")?;
        let version = order.u16(&header, 0);
        if version != VERSION {
            return Err(CaptureError::Malformed { at: 4, what: "version of pcap", value: version.into() });
        }
        let number = order.u32(&header, 16);
        let link = accepted.check(number & LINK_TYPE_BITS)?;
        let fcs_bytes = if number & HAS_FCS != 0 { (number >> 28) * 2 } else { 0 };
        Ok(Self { order, fraction_ns, fcs_bytes, link })
    }

    /// Reads the head of the next frame; `None` at the end.
    pub(super) fn read_head<R: Read>(&self, source: &mut Source<R>) -> Result<Option<Head>, CaptureError> {
        let at = source.at();
        let mut head = [0; HEAD_BYTES];
        if !source.read_head(&mut head, "the head of a frame")? {
            return Ok(None);
        }
        let [seconds, fraction, captured_bytes, original_bytes] = [0, 4, 8, 12].map(|at| self.order.u32(&head, at));
        let fraction_ns = u64::from(fraction) * u64::from(self.fraction_ns);
        if fraction_ns >= 1_000_000_000 {
            let what = "a fraction of a second that is none";
            return Err(CaptureError::Malformed { at, what, value: fraction.into() });
        }
        let at_ns = u64::from(seconds) * 1_000_000_000 + fraction_ns;
        Ok(Some(Head { captured_bytes, original_bytes, at_ns }))
    }
}
