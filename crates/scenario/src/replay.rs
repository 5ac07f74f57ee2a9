//! Recorded traffic sent again. A reader elsewhere makes [`ReplayRequest`]s of a source and passes them on in the order
//! in which they are due; `sessions` is the machine that lets each session of the source be a user of its own, with its
//! cookies and connections (`session`). `correlate` replaces values that new answers give otherwise, `compare` finds what differs between two
//! answers, `differences` counts that. The machine opens no socket and reads no clock.

mod compare;
mod correlate;
mod counts;
mod differences;
mod pattern;
mod program;
mod request;
mod session;
mod sessions;
#[cfg(test)]
mod tests;

pub use self::counts::ReplayCounts;
pub use self::differences::{Differences, Part};
pub use self::pattern::{label_of, Pattern};
pub use self::program::{replay_program, LabelNames, LABEL_LIMIT};
pub use self::request::{Answer, AnswerUse, ReplayRequest, Role};
pub use self::sessions::Replayed;
