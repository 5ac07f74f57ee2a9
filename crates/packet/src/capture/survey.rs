//! Which frames of a capture are sent, and what it has in all: known before the first frame leaves, so that a replay is
//! refused for a cut frame, or one that the interface cannot take, before it begins.

use std::io::Read;

use super::error::CaptureError;
use super::layers::{self, Network, ETHERNET_BYTES};
use super::reader::{CaptureReader, CapturedFrame, MAX_FRAME_BYTES};
use super::rewrite::compute_whole;

/// What becomes of frames of which the capture kept only the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CutFrames {
    /// No frame is sent at all: the load is another one than was captured.
    #[default]
    Refuse,
    /// They are left out, and counted.
    Skip,
    /// Zeros make up their length, and their checksums are computed for those.
    Pad,
}

/// Which frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Those that are cut.
    pub cut: CutFrames,
    /// The longest that the interface takes: its MTU, Ethernet's header and tags.
    pub max_frame_bytes: u32,
}

/// What becomes of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// It was copied, and is sent.
    Whole,
    /// It was copied with zeros at its end, and is sent.
    Padded,
    /// It is cut, and not sent.
    Cut,
    /// It is too long for the interface, or for any.
    TooLong,
    /// It is shorter than an Ethernet header.
    TooShort,
}

impl Selected {
    /// Whether the frame is sent.
    pub fn is_sent(self) -> bool {
        matches!(self, Self::Whole | Self::Padded)
    }
}

impl Selection {
    /// Decides what becomes of a frame.
    pub fn judge(&self, frame: &CapturedFrame<'_>) -> Selected {
        let is_padded = frame.is_cut() && self.cut == CutFrames::Pad;
        let bytes = if is_padded { frame.original_bytes } else { frame.bytes.len() as u32 };
        if frame.is_cut() && !is_padded {
            Selected::Cut
        } else if frame.bytes.len() < ETHERNET_BYTES {
            Selected::TooShort
        } else if bytes > self.max_frame_bytes.min(MAX_FRAME_BYTES) {
            Selected::TooLong
        } else if is_padded {
            Selected::Padded
        } else {
            Selected::Whole
        }
    }

    /// Copies a frame that is sent into `into`, which keeps its memory from frame to frame.
    pub fn copy(&self, frame: &CapturedFrame<'_>, into: &mut Vec<u8>) -> Selected {
        let selected = self.judge(frame);
        if !selected.is_sent() {
            return selected;
        }
        into.clear();
        into.extend_from_slice(frame.bytes);
        if selected == Selected::Padded {
            into.resize(frame.original_bytes as usize, 0);
            match layers::parse(into) {
                Network::V4(ip) => compute_whole(into, &ip, true),
                Network::V6(ip) => compute_whole(into, &ip, false),
                Network::Arp { .. } | Network::Other => {}
            }
        }
        selected
    }
}

/// What a capture has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Frames that are sent, and their bytes.
    pub frames: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Of those, the ones that are padded.
    pub padded: u64,
    /// Frames that are left out because they are cut.
    pub cut: u64,
    /// Frames that are left out because they are too long; the longest of them.
    pub too_long: u64,
    /// The longest frame of all.
    pub longest_bytes: u32,
    /// Frames that are left out because they are shorter than an Ethernet header.
    pub too_short: u64,
    /// Frames without a time.
    pub untimed: u64,
    /// From the first time to the last, ns.
    pub span_ns: u64,
}

impl Survey {
    /// Reads a capture to its end, and leaves its input to be read again.
    ///
    /// # Errors
    /// What is wrong with the capture, wherever that is.
    pub fn take<R: Read>(mut reader: CaptureReader<R>, selection: &Selection) -> Result<(Self, R), CaptureError> {
        let mut this = Self::default();
        let mut times: Option<(u64, u64)> = None;
        while let Some(frame) = reader.next_frame()? {
            this.count(selection.judge(&frame), &frame);
            match frame.at_ns {
                None => this.untimed += 1,
                Some(at_ns) => {
                    times = Some(times.map_or((at_ns, at_ns), |(low, high)| (low.min(at_ns), high.max(at_ns))));
                }
            }
        }
        this.span_ns = times.map_or(0, |(low, high)| high - low);
        Ok((this, reader.into_inner()))
    }

    fn count(&mut self, selected: Selected, frame: &CapturedFrame<'_>) {
        self.longest_bytes = self.longest_bytes.max(frame.original_bytes);
        let bytes = match selected {
            Selected::Whole => frame.bytes.len() as u64,
            Selected::Padded => frame.original_bytes.into(),
            Selected::Cut => return self.cut += 1,
            Selected::TooLong => return self.too_long += 1,
            Selected::TooShort => return self.too_short += 1,
        };
        self.frames += 1;
        self.bytes += bytes;
        self.padded += u64::from(selected == Selected::Padded);
    }
}
