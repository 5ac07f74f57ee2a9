//! Scenarios: virtual users that execute a flow of requests, waits and decisions
//! ([`leadline_wire::scenario`] is the representation that all formats are translated into). `compile` makes a
//! program of a plan; `machine` executes the users of one thread, and `connections` carries their requests; `shared` is what
//! threads share; `figures` are their counts. The machines open no socket and read no clock.

mod arrivals;
mod cache;
mod calendar;
mod compile;
mod compressed;
pub mod connections;
mod cookies;
mod encoding;
mod evaluate;
mod fault;
pub mod figures;
mod html;
mod judge;
mod machine;
mod masking;
mod numbers;
mod outgoing;
mod program;
mod random;
mod render;
mod samples;
mod scripts;
mod search;
mod shared;
mod throughput;
mod user;
mod value;

pub use self::compile::{compile, CompileError};
pub use self::evaluate::Tools;
pub use self::machine::{Effect, ExchangeEnd, ExchangeFailure, Limits, Machine, Send, ThreadShare};
pub use self::outgoing::Outgoing;
pub use self::program::{Label, Program};
pub use self::samples::{Opening, Samples};

pub use self::shared::{Shared, Stop};
