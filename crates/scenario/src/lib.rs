//! Scenarios: virtual users that execute a flow of requests, waits and decisions
//! ([`leadline_wire::scenario`] is the representation that all formats are translated into). `compile` makes a
//! program of a plan; `executors` begin, wake and end the users of one thread, whose `programs` say what they do;
//! `connections` carries their requests, and `browser` keeps what a browser keeps between them; `shared` is what threads
//! share; `figures` are their counts. `replay` has the users of recorded traffic in place of programs and executors; both
//! kinds are [`Users`]. The machines open no socket and read no clock.

mod arrivals;
mod browser;
mod calendar;
mod compile;
mod compressed;
pub mod connections;
mod encoding;
mod evaluate;
mod executors;
mod fault;
pub mod figures;
mod judge;
mod label;
mod masking;
mod numbers;
mod outgoing;
mod program;
mod programs;
mod random;
mod render;
pub mod replay;
mod samples;
mod scripts;
mod search;
mod shared;
mod throughput;
mod user;
mod users;
mod value;

pub use self::compile::{compile, CompileError};
pub use self::evaluate::Tools;
pub use self::executors::{Limits, ThreadShare, VirtualUsers};
pub use self::outgoing::Outgoing;
pub use self::program::{Label, Program};
pub use self::programs::flow::{Effect, ExchangeEnd, ExchangeFailure, Send};
pub use self::samples::{Opening, Samples};
pub use self::shared::{Shared, Stop};
pub use self::users::Users;
