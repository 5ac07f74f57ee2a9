//! Loads a script into its states, in wrk's order: the main state; then for each thread its state, `setup` in the
//! main state, and `init` in the thread's state. Thread 1 determines the kind of script.

use std::sync::Arc;

use mlua::Lua;

use crate::lua::State;
use crate::main_state::Main;
use crate::pipeline;
use crate::program::{Network, Origin, Output, Program};
use crate::thread::{request_into, thread_calls, Kind, Shared, ThreadScript};
use crate::ScriptError;

/// Runs the file in `threads` + 1 states, and `setup` and `init` for each thread.
///
/// # Errors
/// The script's error: its syntax, an error that it raised, or an invalid request.
pub fn load(
    program: &Program,
    origin: &Origin,
    threads: usize,
    output: Output,
    network: Arc<dyn Network>,
) -> Result<(Main, Vec<ThreadScript>), ScriptError> {
    let new_state = || State::run(program, origin, &output, &network);
    let main = new_state()?;
    main.enter::<()>("resolve", (origin.host.as_str(), origin.service()), "wrk.resolve()")?;
    let mut scripts: Vec<ThreadScript> = Vec::with_capacity(threads);
    let mut kind = None;
    for _ in 0..threads {
        let state = new_state()?;
        let shared = Arc::new(Shared::default());
        set_up(&main, &state, &shared)?;
        state.enter::<()>("init", arguments(&state, program, origin)?, "init()")?;
        let kind = match kind {
            Some(kind) => kind,
            None => *kind.insert(kind_of(&state)?),
        };
        let script = ThreadScript::new(state, Arc::clone(&shared), kind)?;
        shared.start();
        scripts.push(script);
    }
    let states: Vec<Lua> = scripts.iter().map(ThreadScript::lua).collect();
    Ok((Main::new(main, states)?, scripts))
}

/// Sets `wrk.thread` in the thread's state, then calls `setup(thread)` in the main state.
fn set_up(main: &State, thread: &State, shared: &Arc<Shared>) -> Result<(), ScriptError> {
    let own = thread_calls(&thread.lua, thread.lua.weak(), shared).map_err(|error| thread.failed(&error))?;
    thread.enter::<()>("own_thread", own, "")?;
    let handle = thread_calls(&main.lua, thread.lua.weak(), shared).map_err(|error| main.failed(&error))?;
    main.enter("setup", handle, "setup()")
}

/// Creates `args` of `init`: the URL at 0, then the arguments after `--`.
fn arguments(state: &State, program: &Program, origin: &Origin) -> Result<mlua::Table, ScriptError> {
    let table = || {
        let args = state.lua.create_sequence_from(program.args.iter().map(String::as_str))?;
        args.raw_set(0, origin.url.as_str())?;
        Ok(args)
    };
    table().map_err(|error: mlua::Error| state.failed(&error))
}

/// Determines the kind of script: calls `request` of thread 1 once more than requests are sent, to count the requests
/// in its string.
fn kind_of(state: &State) -> Result<Kind, ScriptError> {
    let mut sample = Vec::new();
    request_into(state, &state.entry("request")?, &mut sample)?;
    let batch = pipeline::count(&sample).map_err(|wrong| {
        state.problem(&format!(
            "request() has to return HTTP requests: {} at line {}, column {} of its string",
            wrong.what, wrong.line, wrong.column
        ))
    })?;
    Ok(Kind {
        dynamic: state.defines("request")?,
        has_response: state.defines("response")?,
        has_delay: state.defines("delay")?,
        batch,
    })
}
