//! Requests out of packets: frames of a capture, or of an interface while they come, put together to connections, and those
//! read as HTTP. What the other side acknowledged says what is lost and what is late; no hole is filled
//! with a guess. TLS is counted, not read.

mod answers;
mod connection;
mod counts;
mod exchange;
mod parts;
mod reassembly;
mod source;
mod stream;

pub use counts::PacketCounts;
pub use reassembly::{Reassembly, ReassemblyOptions};
pub use source::PacketSource;
