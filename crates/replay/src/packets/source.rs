//! A capture as a source of requests.

use std::io::Read;

use leadline_packet::capture::{CaptureError, CaptureReader};

use super::counts::PacketCounts;
use super::reassembly::{Reassembly, ReassemblyOptions};
use crate::recorded::{Cause, Causes, Recorded, Source, SourceError};

/// Requests of a pcap or pcapng file.
#[derive(Debug)]
pub struct PacketSource<R> {
    reader: CaptureReader<R>,
    reassembly: Reassembly,
    last_ns: u64,
    is_over: bool,
}

impl<R: Read> PacketSource<R> {
    /// Reads the header of a capture from its beginning.
    ///
    /// # Errors
    /// What makes it no capture that is read.
    pub fn open(input: R, options: ReassemblyOptions) -> Result<Self, SourceError> {
        let reader = CaptureReader::open_any_link(input).map_err(describe)?;
        Ok(Self { reader, reassembly: Reassembly::new(options), last_ns: 0, is_over: false })
    }

    /// What was seen of packets so far.
    pub fn counts(&self) -> &PacketCounts {
        self.reassembly.counts()
    }

    fn read_frame(&mut self) -> Result<(), SourceError> {
        match self.reader.next_frame() {
            Ok(Some(frame)) => {
                // Some formats keep no time.
                self.last_ns = frame.at_ns.unwrap_or(self.last_ns);
                self.reassembly.frame(self.last_ns, frame.link, frame.bytes, frame.original_bytes);
                return Ok(());
            }
            Ok(None) => {}
            // Its writer was stopped, or still writes.
            Err(CaptureError::Ends { .. }) => self.reassembly.count_cause(Cause::CutOff),
            Err(error) => return Err(describe(error)),
        }
        self.is_over = true;
        self.reassembly.finish();
        Ok(())
    }
}

impl<R: Read + Send> Source for PacketSource<R> {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        loop {
            if let Some(recorded) = self.reassembly.next() {
                return Ok(Some(recorded));
            }
            if self.is_over {
                return Ok(None);
            }
            self.read_frame()?;
        }
    }

    fn causes(&self) -> &Causes {
        self.reassembly.causes()
    }
}

fn describe(error: CaptureError) -> SourceError {
    match error {
        CaptureError::Input(error) => SourceError::Io(error),
        other => SourceError::Format(other.to_string()),
    }
}
