//! The newer format: blocks in sections, each with its byte order and its interfaces, each of which has a link type and a
//! resolution of its times.

use std::io::Read;

use super::error::CaptureError;
use super::link_type::{Accepted, LinkType};
use super::source::{ByteOrder, Source};

/// The type of a section's header: the same in both byte orders.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Type, length, and the length again at the end.
const FRAME_OF_BLOCK_BYTES: u32 = 12;
const MAX_INTERFACES: usize = 4096;
/// More of an interface's options is passed over.
const MAX_OPTIONS_BYTES: usize = 4096;
const WITHIN: &str = "a block";

/// Options of an interface.
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FCS: u16 = 13;
const OPTION_OFFSET: u16 = 14;
/// Of a resolution: a power of two, not of ten.
const IS_BINARY: u8 = 0x80;
const MICROSECONDS: u8 = 6;

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    snapshot_bytes: u32,
    resolution: u8,
    offset_s: i64,
    fcs_bytes: u32,
}

/// The section that is read.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    accepted: Accepted,
}

/// A frame that follows in the stream. `padding_bytes` lie between it and the next block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) captured_bytes: u32,
    pub(super) original_bytes: u32,
    pub(super) at_ns: Option<u64>,
    pub(super) fcs_bytes: u32,
    pub(super) link: LinkType,
    rest_bytes: u32,
    length: u32,
}

impl Pcapng {
    /// Reads the header of the first section behind its type.
    pub(super) fn read_header<R: Read>(source: &mut Source<R>, accepted: Accepted) -> Result<Self, CaptureError> {
        let mut this = Self { order: ByteOrder::Little, interfaces: Vec::new(), accepted };
        let mut length = [0; 4];
        source.read(&mut length, "its header")?;
        this.begin_section(source, length)?;
        Ok(this)
    }

    /// Reads blocks until a frame; `None` at the end.
    pub(super) fn read_head<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Head>, CaptureError> {
        loop {
            let at = source.at();
            let mut head = [0; 8];
            if !source.read_head(&mut head, "the head of a block")? {
                return Ok(None);
            }
            let (kind, length) = head.split_at(4);
            if kind == SECTION {
                self.begin_section(source, [length[0], length[1], length[2], length[3]])?;
                continue;
            }
            let (kind, length) = (self.order.u32(kind, 0), self.order.u32(length, 0));
            let body_bytes = body_bytes_of(length, at)?;
            match kind {
                INTERFACE => self.read_interface(source, body_bytes, at)?,
                ENHANCED_PACKET | OLD_PACKET => {
                    return self.read_packet(source, kind == OLD_PACKET, length, at).map(Some)
                }
                SIMPLE_PACKET => return self.read_simple_packet(source, length, at).map(Some),
                _ => source.skip(body_bytes.into(), WITHIN)?,
            }
            self.check_end(source, length)?;
        }
    }

    /// Passes over what follows a frame within its block.
    pub(super) fn end_packet<R: Read>(&self, source: &mut Source<R>, head: Head) -> Result<(), CaptureError> {
        source.skip(head.rest_bytes.into(), WITHIN)?;
        self.check_end(source, head.length)
    }

    fn begin_section<R: Read>(&mut self, source: &mut Source<R>, length: [u8; 4]) -> Result<(), CaptureError> {
        let at = source.at() - 8;
        let mut fixed = [0; 16];
        source.read(&mut fixed, "the header of a section")?;
        self.order = match fixed[..4] {
            [0x4d, 0x3c, 0x2b, 0x1a] => ByteOrder::Little,
            [0x1a, 0x2b, 0x3c, 0x4d] => ByteOrder::Big,
            _ => {
                let value = ByteOrder::Big.u32(&fixed, 0).into();
                return Err(CaptureError::Malformed { at: at + 8, what: "byte order of pcapng", value });
            }
        };
        let version = self.order.u16(&fixed, 4);
        if version != 1 {
            return Err(CaptureError::Malformed { at: at + 12, what: "version of pcapng", value: version.into() });
        }
        let length = self.order.u32(&length, 0);
        let rest = rest_of(body_bytes_of(length, at)?, 16, at)?;
        self.interfaces.clear();
        source.skip(rest.into(), "the header of a section")?;
        self.check_end(source, length)
    }

    fn read_interface<R: Read>(&mut self, source: &mut Source<R>, bytes: u32, at: u64) -> Result<(), CaptureError> {
        let rest = rest_of(bytes, 8, at)?;
        if self.interfaces.len() == MAX_INTERFACES {
            let value = MAX_INTERFACES as u64 + 1;
            return Err(CaptureError::Malformed { at, what: "number of interfaces", value });
        }
        let mut fixed = [0; 8];
        source.read(&mut fixed, WITHIN)?;
        let mut options = [0; MAX_OPTIONS_BYTES];
        let kept = (rest as usize).min(MAX_OPTIONS_BYTES);
        source.read(&mut options[..kept], WITHIN)?;
        source.skip(u64::from(rest) - kept as u64, WITHIN)?;
        let mut interface = Interface {
            link_type: self.order.u16(&fixed, 0).into(),
            snapshot_bytes: self.order.u32(&fixed, 4),
            resolution: MICROSECONDS,
            offset_s: 0,
            fcs_bytes: 0,
        };
        self.read_options(&options[..kept], &mut interface);
        self.interfaces.push(interface);
        Ok(())
    }

    fn read_options(&self, mut options: &[u8], interface: &mut Interface) {
        while options.len() >= 4 {
            let (code, length) = (self.order.u16(options, 0), usize::from(self.order.u16(options, 2)));
            let Some(value) = options.get(4..4 + length) else { return };
            match (code, length) {
                (0, _) => return,
                (OPTION_RESOLUTION, 1) => interface.resolution = value[0],
                // In bits, as the format says, or in bytes, as its example does.
                (OPTION_FCS, 1) if matches!(value[0], 4 | 32) => interface.fcs_bytes = 4,
                (OPTION_OFFSET, 8) => {
                    let [first, second] = [0, 4].map(|at| u64::from(self.order.u32(value, at)));
                    let (high, low) = if self.order == ByteOrder::Big { (first, second) } else { (second, first) };
                    interface.offset_s = (high << 32 | low) as i64;
                }
                _ => {}
            }
            options = options.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    fn read_packet<R: Read>(
        &self,
        source: &mut Source<R>,
        is_old: bool,
        length: u32,
        at: u64,
    ) -> Result<Head, CaptureError> {
        let rest = rest_of(body_bytes_of(length, at)?, 20, at)?;
        let mut fixed = [0; 20];
        source.read(&mut fixed, WITHIN)?;
        let [high, low, captured_bytes, original_bytes] = [4, 8, 12, 16].map(|at| self.order.u32(&fixed, at));
        let number = if is_old { self.order.u16(&fixed, 0).into() } else { self.order.u32(&fixed, 0) };
        let (interface, link) = self.interface(number, at)?;
        let ticks = u64::from(high) << 32 | u64::from(low);
        let Some(at_ns) = instant_ns(ticks, interface.resolution, interface.offset_s) else {
            return Err(CaptureError::Malformed { at, what: "a time out of range", value: ticks });
        };
        let Some(rest_bytes) = rest.checked_sub(captured_bytes) else {
            let what = "a frame that is longer than its block";
            return Err(CaptureError::Malformed { at, what, value: captured_bytes.into() });
        };
        let fcs_bytes = interface.fcs_bytes;
        Ok(Head { captured_bytes, original_bytes, at_ns: Some(at_ns), fcs_bytes, link, rest_bytes, length })
    }

    /// Such a block says neither a time nor how much was captured.
    fn read_simple_packet<R: Read>(&self, source: &mut Source<R>, length: u32, at: u64) -> Result<Head, CaptureError> {
        let rest = rest_of(body_bytes_of(length, at)?, 4, at)?;
        let mut fixed = [0; 4];
        source.read(&mut fixed, WITHIN)?;
        let (interface, link) = self.interface(0, at)?;
        let original_bytes = self.order.u32(&fixed, 0);
        let limit = if interface.snapshot_bytes == 0 { u32::MAX } else { interface.snapshot_bytes };
        let captured_bytes = rest.min(original_bytes).min(limit);
        let (fcs_bytes, rest_bytes) = (interface.fcs_bytes, rest - captured_bytes);
        Ok(Head { captured_bytes, original_bytes, at_ns: None, fcs_bytes, link, rest_bytes, length })
    }

    fn interface(&self, number: u32, at: u64) -> Result<(&Interface, LinkType), CaptureError> {
        let Some(interface) = self.interfaces.get(number as usize) else {
            let what = "a frame of an interface that was not described";
            return Err(CaptureError::Malformed { at, what, value: number.into() });
        };
        Ok((interface, self.accepted.check(interface.link_type)?))
    }

    fn check_end<R: Read>(&self, source: &mut Source<R>, length: u32) -> Result<(), CaptureError> {
        let at = source.at();
        let mut end = [0; 4];
        source.read(&mut end, WITHIN)?;
        let value = self.order.u32(&end, 0);
        if value != length {
            let what = "a block whose two lengths differ";
            return Err(CaptureError::Malformed { at, what, value: value.into() });
        }
        Ok(())
    }
}

fn body_bytes_of(length: u32, at: u64) -> Result<u32, CaptureError> {
    match length.checked_sub(FRAME_OF_BLOCK_BYTES) {
        Some(body) if length % 4 == 0 => Ok(body),
        _ => Err(CaptureError::Malformed { at, what: "length of a block", value: length.into() }),
    }
}

fn rest_of(body_bytes: u32, fixed_bytes: u32, at: u64) -> Result<u32, CaptureError> {
    body_bytes.checked_sub(fixed_bytes).ok_or(CaptureError::Malformed {
        at,
        what: "a block that is too short, bytes of its body",
        value: body_bytes.into(),
    })
}

/// Returns ns since 1970; `None` beyond the range of 64 bits.
fn instant_ns(ticks: u64, resolution: u8, offset_s: i64) -> Option<u64> {
    let exponent = u32::from(resolution & !IS_BINARY);
    let ticks = u128::from(ticks);
    let ns = if resolution & IS_BINARY != 0 {
        (ticks * 1_000_000_000) >> exponent
    } else if exponent <= 9 {
        ticks * 10u128.pow(9 - exponent)
    } else {
        10u128.checked_pow(exponent - 9).map_or(0, |divisor| ticks / divisor)
    };
    u64::try_from(i128::try_from(ns).ok()?.checked_add(i128::from(offset_s) * 1_000_000_000)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions_of_both_bases_are_exact() {
        assert_eq!(instant_ns(1_500_000, 6, 0), Some(1_500_000_000));
        assert_eq!(instant_ns(u64::MAX, 9, 0), Some(u64::MAX));
        assert_eq!(instant_ns(7, 0, 0), Some(7_000_000_000));
        assert_eq!(instant_ns(1_999, 12, 0), Some(1));
        assert_eq!(instant_ns(3, IS_BINARY | 1, 0), Some(1_500_000_000));
        assert_eq!(instant_ns(u64::MAX, 127, 0), Some(0));
        assert_eq!(instant_ns(u64::MAX, 255, 0), Some(0));
    }

    #[test]
    fn time_out_of_range_is_none() {
        assert_eq!(instant_ns(u64::MAX, 6, 0), None);
        assert_eq!(instant_ns(0, 6, -1), None);
        assert_eq!(instant_ns(2_000_000, 6, -1), Some(1_000_000_000));
        assert_eq!(instant_ns(0, 6, i64::MAX), None);
    }
}
