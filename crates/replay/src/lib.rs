//! Recorded HTTP traffic as a stream of requests with their times, sessions and, where the source has them, answers.
//! Each kind of source is a module that reads bytes in order with bounded memory; `recorded` is what they all give. Opens
//! no file or socket, reads no clock. Sources are hostile: what cannot be read costs one count of its cause.

pub mod gor;
pub mod har;
mod input;
mod instant;
pub mod jtl;
mod logs;
mod message;
mod order;
pub mod packets;
mod recorded;
mod session;
mod target;

pub use input::open_input;
pub use logs::{Log, LogFormat};
pub use order::{OrderLimits, Ordered};
pub use recorded::{Cause, Causes, Recorded, RecordedAnswer, Source, SourceError};
