//! A Lua state with every library, as wrk's scripts expect it. Owns that one call; the API is in `script`.
#![allow(unsafe_code)]

use mlua::{Lua, LuaOptions, StdLib};

/// Creates a state with all of LuaJIT's libraries, including `debug` and `ffi`. Code in it can break every guarantee
/// of Rust, so `clippy.toml` refuses each use that does not state whose program it runs.
#[must_use]
pub fn lua_state() -> Lua {
    // SAFETY: with these two libraries a script can do to this process what C can. It is the user's own program, given
    // by its user to run here, as any that a command line names.
    unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::default()) }
}
