//! The requests that an interface of this host receives and sends, as they come: TCPCopy's way, without its kernel module.

use leadline_http::Url;
use leadline_packet::capture::LinkType;
use leadline_replay::packets::{Reassembly, ReassemblyOptions};
use leadline_replay::{Cause, Causes, Recorded, Source, SourceError};
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
    /// Begins to capture what clients ask a server port; not what goes to these URLs, which would be sent for ever.
    ///
    /// # Errors
    /// Why that is not possible, or that the port is that of a target.
    pub fn open(device: &str, port: u16, targets: &[String], options: ReassemblyOptions) -> Result<Self, String> {
        for target in targets {
            let url = Url::parse(target).map_err(|error| error.to_string())?;
            if url.port == port {
                return Err(format!(
                    "{target} has the port {port} that is captured, so that each copy would be captured again; give the \
                     target another port"
                ));
            }
        }
        let socket = FrameSocket::open_both_ways(device).map_err(|error| error.to_string())?;
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
                    for _ in 0..self.socket.overruns().unwrap_or(0) {
                        self.reassembly.count_cause(Cause::Gap);
                    }
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
