//! Frames of a capture one after another, in one buffer that grows to the longest frame and no further.

use std::io::Read;

use super::error::CaptureError;
use super::link_type::{Accepted, LinkType};
use super::pcap::Pcap;
use super::pcapng::{Pcapng, SECTION};
use super::source::Source;

/// libpcap's longest frame.
pub const MAX_FRAME_BYTES: u32 = 262_144;

/// A frame as it was captured, without its FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedFrame<'a> {
    /// What was kept of it.
    pub bytes: &'a [u8],
    /// How long it was on the wire; more than `bytes` has if the capture kept only its beginning.
    pub original_bytes: u32,
    /// When it was captured, ns since 1970; `None` where the format keeps no time.
    pub at_ns: Option<u64>,
    /// What it begins with.
    pub link: LinkType,
}

impl CapturedFrame<'_> {
    /// Whether the capture kept only the beginning of it.
    pub fn is_cut(&self) -> bool {
        (self.bytes.len() as u64) < u64::from(self.original_bytes)
    }
}

/// Reads a capture in order.
#[derive(Debug)]
pub struct CaptureReader<R> {
    source: Source<R>,
    format: Format,
    frame: Vec<u8>,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl<R: Read> CaptureReader<R> {
    /// Reads the header of a capture of Ethernet frames from its beginning.
    ///
    /// # Errors
    /// What makes it no capture of Ethernet frames.
    pub fn open(input: R) -> Result<Self, CaptureError> {
        Self::open_accepting(input, Accepted::Ethernet)
    }

    /// Reads the header of a capture of any [`LinkType`] from its beginning; its interfaces may have several.
    ///
    /// # Errors
    /// What makes it no capture of frames that are read.
    pub fn open_any_link(input: R) -> Result<Self, CaptureError> {
        Self::open_accepting(input, Accepted::WithIp)
    }

    fn open_accepting(input: R, accepted: Accepted) -> Result<Self, CaptureError> {
        let mut source = Source::new(input);
        let mut magic = [0; 4];
        source.read(&mut magic, "its first number")?;
        let format = if magic == SECTION {
            Format::Pcapng(Pcapng::read_header(&mut source, accepted)?)
        } else if let Some(recognised) = Pcap::recognise(magic) {
            Format::Pcap(Pcap::read_header(&mut source, recognised, accepted)?)
        } else {
            return Err(refusal(magic));
        };
        Ok(Self { source, format, frame: Vec::new() })
    }

    /// Reads the next frame; `None` at the end.
    ///
    /// # Errors
    /// What is wrong with the capture. Nothing more can be read of it then.
    pub fn next_frame(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        let (at_ns, original_bytes, fcs_bytes, link) = match &mut self.format {
            Format::Pcap(pcap) => {
                let Some(head) = pcap.read_head(&mut self.source)? else { return Ok(None) };
                read_frame(&mut self.source, &mut self.frame, head.captured_bytes)?;
                (Some(head.at_ns), head.original_bytes, pcap.fcs_bytes, pcap.link)
            }
            Format::Pcapng(pcapng) => {
                let Some(head) = pcapng.read_head(&mut self.source)? else { return Ok(None) };
                read_frame(&mut self.source, &mut self.frame, head.captured_bytes)?;
                pcapng.end_packet(&mut self.source, head)?;
                (head.at_ns, head.original_bytes, head.fcs_bytes, head.link)
            }
        };
        // Some writers say less than they kept.
        let original_bytes = original_bytes.max(self.frame.len() as u32).saturating_sub(fcs_bytes);
        let kept = self.frame.len().min(original_bytes as usize);
        Ok(Some(CapturedFrame { bytes: &self.frame[..kept], original_bytes, at_ns, link }))
    }

    /// Returns the input, for a file that is read again from its beginning.
    pub fn into_inner(self) -> R {
        self.source.into_inner()
    }
}

fn read_frame<R: Read>(source: &mut Source<R>, frame: &mut Vec<u8>, bytes: u32) -> Result<(), CaptureError> {
    if bytes > MAX_FRAME_BYTES {
        return Err(CaptureError::FrameTooLong { at: source.at(), bytes, max: MAX_FRAME_BYTES });
    }
    frame.resize(bytes as usize, 0);
    source.read(frame, "a frame")
}

fn refusal(magic: [u8; 4]) -> CaptureError {
    let unsupported = |what, instead| CaptureError::Unsupported { what, instead };
    match magic {
        [0x1f, 0x8b, ..] => unsupported("the capture is compressed (gzip)", "decompress it first, with gunzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => unsupported("the capture is compressed (zstd)", "decompress it first, with unzstd"),
        [0xfd, b'7', b'z', b'X'] => unsupported("the capture is compressed (xz)", "decompress it first, with unxz"),
        [0xa1, 0xb2, 0xcd, 0x34] | [0x34, 0xcd, 0xb2, 0xa1] => {
            unsupported("a capture of a patched libpcap (magic a1b2cd34)", "convert it: editcap -F pcap IN OUT")
        }
        other => CaptureError::NotACapture(other),
    }
}
