//! wrk's Lua API on LuaJIT: a script makes the requests of a load. As in wrk, there is one state per thread and a main
//! state. Owns the `wrk` table, the functions that a script can call, its callbacks, and its error messages.
//! Opens no socket and resolves no name (the caller's [`Network`] does), does not write to standard output, and does
//! not decide when requests are sent. A script is trusted, as in wrk: an endless loop blocks its thread, because
//! compiled code does not run the hook that could stop it.

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
