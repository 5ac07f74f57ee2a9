//! Captures that are replayed: frames out of pcap and pcapng files as a stream, rewritten, on an absolute schedule; and
//! the TCP segments in them. What is sent again is Ethernet alone; segments are found behind a few other links too. Link
//! types that are not read are refused by name. Its memory is bounded whatever a file says of its lengths.
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
mod segment;
mod source;
mod survey;

pub use error::CaptureError;
pub use link_type::LinkType;
pub use reader::{CaptureReader, CapturedFrame, MAX_FRAME_BYTES};
pub use rewrite::{AddressMap, Rewrite, VlanMap};
pub use schedule::{Schedule, Timing};
pub use segment::{find_segment, Found, Segment};
pub use survey::{CutFrames, Selected, Selection, Survey};
