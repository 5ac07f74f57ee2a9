//! A Lua state with every library, as wrk's scripts have it. Owns that one call; the API is in `script`.
#![allow(unsafe_code)]

use mlua::{Lua, LuaOptions, StdLib};

/// A new state with all of LuaJIT's libraries, `debug` and `ffi` among them. What runs in it can break every promise of this
/// language, so that `clippy.toml` refuses each use that does not say whose program it runs.
#[must_use]
pub fn lua_state() -> Lua {
    // SAFETY: with these two libraries a script can do to this process what C can. It is the user's own program, given
    // by its user to run here, as any that a command line names.
    unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::default()) }
}
