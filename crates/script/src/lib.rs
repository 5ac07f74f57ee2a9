//! wrk's Lua API on LuaJIT: the requests of a load, made by a script. One state per thread and a main state, as in wrk.
//! Owns the `wrk` table, what a script may call and what it is called for, and how its errors read.
//! Refuses: sockets and names (the caller's [`Network`] has them), the process's standard output, and deciding when.
//! A script is its user's own and trusted like wrk's: an endless loop in it holds its thread up, because a hook that
//! could break it is not looked at by compiled code.

mod answer;
mod error;
mod lua;
mod main_state;
mod pipeline;
mod program;
mod start;
mod statistics;
mod thread;
mod transfer;

pub use error::ScriptError;
pub use main_state::{Main, Summary};
pub use program::{Network, Origin, Output, Program};
pub use start::load;
pub use thread::ThreadScript;
