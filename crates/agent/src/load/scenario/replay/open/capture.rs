//! The requests that an interface of this host receives and sends, as they come: TCPCopy's way, without its kernel module.

use std::io;

use leadline_packet::capture::LinkType;
use leadline_replay::packets::{Reassembly, ReassemblyOptions};
use leadline_replay::{Causes, Recorded, Source, SourceError};
use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_sys::frames::{FrameBatch, FrameSocket};

/// Frames that one call receives.
const FRAMES: usize = 64;

/// A live capture.
pub struct LiveCapture {
    socket: FrameSocket,
    batch: FrameBatch,
    reassembly: Reassembly,
}

impl LiveCapture {
    /// Begins to capture.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn open(device: &str, options: ReassemblyOptions) -> io::Result<Self> {
        let socket = FrameSocket::open_both_ways(device)?;
        Ok(Self { socket, batch: FrameBatch::new(FRAMES), reassembly: Reassembly::new(options) })
    }
}

impl Source for LiveCapture {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        loop {
            if let Some(recorded) = self.reassembly.next() {
                return Ok(Some(recorded));
            }
            let ahead_ns = realtime_ns().wrapping_sub(monotonic_ns());
            match self.batch.receive(&self.socket) {
                Ok(count) => {
                    for frame in (0..count).filter_map(|index| self.batch.frame(index)) {
                        let at_ns = frame.arrived_ns.wrapping_add(ahead_ns);
                        let length = frame.bytes.len() as u32;
                        self.reassembly.frame(at_ns, LinkType::Ethernet, frame.bytes, length);
                    }
                }
                Err(error) => {
                    self.reassembly.advance(realtime_ns());
                    return self.reassembly.next().map_or_else(|| Err(error.into()), |recorded| Ok(Some(recorded)));
                }
            }
        }
    }

    fn causes(&self) -> &Causes {
        self.reassembly.causes()
    }
}
