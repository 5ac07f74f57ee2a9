//! Captures that are replayed: frames out of pcap and pcapng files as a stream, rewritten, on an absolute schedule. Knows
//! Ethernet alone; other link types are refused by name. Its memory is bounded whatever a file says of its lengths.
//!
//! The reader is our own: pcap-parser allocates a list of options for each pcapng packet and wants a buffer as long as
//! the longest block, which a file may say is 4 GiB.

mod error;
mod layers;
mod link_type;
mod pcap;
mod pcapng;
mod reader;
mod rewrite;
mod schedule;
mod source;
mod survey;

pub use error::CaptureError;
pub use reader::{CaptureReader, CapturedFrame, MAX_FRAME_BYTES};
pub use rewrite::{AddressMap, Rewrite, VlanMap};
pub use schedule::{Schedule, Timing};
pub use survey::{CutFrames, Selected, Selection, Survey};
