//! One Lua state with wrk's API in it, ready to run a script, and how its functions are called.
//! Owns what the prelude may ask of this side; the objects that the API gives out are made in Lua (`prelude/api.lua`).

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, Table, Value};

use crate::error::OWN_CHUNK;
use crate::program::{Network, Origin, Output, Program};
use crate::ScriptError;

const API: &str = include_str!("prelude/api.lua");
const STREAMS: &str = include_str!("prelude/streams.lua");

/// A state in which the script has run.
pub(crate) struct State {
    pub(crate) lua: Lua,
    /// The prelude's entry points.
    entries: Table,
    chunk: String,
    /// Why the script ended the load, once it has.
    ended: Arc<OnceLock<String>>,
}

impl State {
    /// A new state with the API, and the script run in it.
    pub(crate) fn run(
        program: &Program,
        origin: &Origin,
        output: &Output,
        network: &Arc<dyn Network>,
    ) -> Result<Self, ScriptError> {
        #[expect(clippy::disallowed_methods, reason = "the script is a program that its user starts")]
        let lua = leadline_sys::lua::lua_state();
        let chunk = chunk_name(&program.name);
        let ended = Arc::new(OnceLock::new());
        let entries = prepare(&lua, origin, output, network, &ended)
            .map_err(|error| ScriptError::from_lua(&error, &chunk, "Leadline's own part"))?;
        let state = Self { lua, entries, chunk, ended };
        let file = state.lua.load(&program.source).set_name(format!("@{}", state.chunk)).into_function();
        let file = file.map_err(|error| ScriptError::from_lua(&error, &state.chunk, ""))?;
        state.call::<()>(&file, (), "")?;
        Ok(state)
    }

    /// One of the prelude's entry points.
    pub(crate) fn entry(&self, name: &str) -> Result<Function, ScriptError> {
        self.entries.get(name).map_err(|error| ScriptError::from_lua(&error, &self.chunk, name))
    }

    /// Calls a function; `during` names it in the error.
    #[inline]
    pub(crate) fn call<R: FromLuaMulti>(
        &self,
        function: &Function,
        args: impl IntoLuaMulti,
        during: &str,
    ) -> Result<R, ScriptError> {
        match function.call(args) {
            Ok(_) if self.ended.get().is_some() => Err(self.end()),
            Ok(result) => Ok(result),
            Err(error) => Err(ScriptError::from_lua(&error, &self.chunk, during)),
        }
    }

    /// Calls the entry point of this name.
    pub(crate) fn enter<R: FromLuaMulti>(
        &self,
        name: &str,
        args: impl IntoLuaMulti,
        during: &str,
    ) -> Result<R, ScriptError> {
        self.call(&self.entry(name)?, args, during)
    }

    /// Whether the script has a global function of this name.
    pub(crate) fn defines(&self, name: &str) -> Result<bool, ScriptError> {
        self.enter("defines", name, name)
    }

    /// An error that this side found.
    pub(crate) fn problem(&self, problem: &str) -> ScriptError {
        ScriptError::found(&self.chunk, problem)
    }

    /// An error of Lua's own functions, outside any of the script's.
    pub(crate) fn failed(&self, error: &mlua::Error) -> ScriptError {
        ScriptError::from_lua(error, &self.chunk, "")
    }

    #[cold]
    fn end(&self) -> ScriptError {
        self.problem(self.ended.get().map_or("the script ended the load", String::as_str))
    }
}

/// What Lua shall call the script. It abbreviates names of 60 bytes and more itself, but errors are recognised by this.
fn chunk_name(name: &str) -> String {
    const LONGEST: usize = 50;
    let clean: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match clean.char_indices().rev().map(|(at, _)| at).take_while(|at| clean.len() - at <= LONGEST).last() {
        Some(at) if at > 0 => format!("...{}", &clean[at..]),
        Some(_) => clean,
        None => "script".to_owned(),
    }
}

fn prepare(
    lua: &Lua,
    origin: &Origin,
    output: &Output,
    network: &Arc<dyn Network>,
    ended: &Arc<OnceLock<String>>,
) -> mlua::Result<Table> {
    let native = lua.create_table()?;
    native.set("fields", fields(lua, origin)?)?;
    let emit = Arc::clone(output);
    native.set(
        "emit",
        lua.create_function(move |_, text: LuaString| {
            emit(&text.to_string_lossy());
            Ok(())
        })?,
    )?;
    let ended = Arc::clone(ended);
    native.set(
        "exit",
        lua.create_function(move |_, why: String| {
            // The first reason is the one that is told.
            let _ = ended.set(why.clone());
            Ok(why)
        })?,
    )?;
    addresses(lua, &native, origin, network)?;
    let own = format!("={OWN_CHUNK}");
    lua.load(STREAMS).set_name(&own).call::<()>(&native)?;
    lua.load(API).set_name(&own).call(&native)
}

/// The `wrk` table as the command line has it.
fn fields(lua: &Lua, origin: &Origin) -> mlua::Result<Table> {
    let wrk = lua.create_table()?;
    wrk.set("scheme", origin.scheme.as_str())?;
    wrk.set("host", origin.host.as_str())?;
    // A string, as it stands in the URL.
    wrk.set("port", origin.port.map(|port| port.to_string()))?;
    wrk.set("method", origin.method.as_str())?;
    wrk.set("path", origin.path.as_str())?;
    if let Some(body) = &origin.body {
        wrk.set("body", lua.create_string(body)?)?;
    }
    let headers = lua.create_table()?;
    for (name, value) in &origin.headers {
        headers.set(name.as_str(), value.as_str())?;
    }
    wrk.set("headers", headers)?;
    Ok(wrk)
}

/// Addresses are told apart by their text, which this side can read back; an interface's number (`%2`) is part of it.
fn addresses(lua: &Lua, native: &Table, origin: &Origin, network: &Arc<dyn Network>) -> mlua::Result<()> {
    native.set("shown", lua.create_function(|_, text: String| Ok(parse(&text).map(shown)))?)?;
    let known: Vec<String> = origin.addresses.iter().map(SocketAddr::to_string).collect();
    let (host, service) = (origin.host.clone(), origin.service());
    let ours = lua.create_function(move |_, asked: (Value, Value)| {
        let asked_for_ours = text(&asked.0).as_ref() == Some(&host) && text(&asked.1).as_ref() == Some(&service);
        Ok(asked_for_ours.then(|| known.clone()))
    });
    native.set("origin_addresses", ours?)?;
    let connects = Arc::clone(network);
    native.set(
        "connect",
        lua.create_function(move |_, text: String| Ok(parse(&text).is_some_and(|address| connects.connect(address))))?,
    )?;
    let lookups = Arc::clone(network);
    native.set(
        "lookup",
        lua.create_function(move |lua, (host, service): (Value, Value)| {
            let (Some(host), service) = (text(&host), text(&service).unwrap_or_else(|| "0".to_owned())) else {
                return Ok((Value::Nil, Some(format!("lookup: a host name expected, got {}", host.type_name()))));
            };
            match lookups.lookup(&host, &service) {
                Ok(found) => {
                    let found = found.iter().map(SocketAddr::to_string);
                    Ok((Value::Table(lua.create_sequence_from(found)?), None))
                }
                Err(cause) => Ok((Value::Nil, Some(format!("unable to resolve {host}:{service}: {cause}")))),
            }
        })?,
    )
}

/// The text of a string or a number.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.to_string_lossy()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// An address from the text that `SocketAddr` gives itself.
pub(crate) fn parse(text: &str) -> Option<SocketAddr> {
    text.parse().ok()
}

/// As wrk shows an address: without brackets.
fn shown(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(six) if six.scope_id() != 0 => format!("{}%{}:{}", six.ip(), six.scope_id(), six.port()),
        _ => format!("{}:{}", address.ip(), address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(chunk_name("load.lua"), "load.lua");
        let long = format!("{}/load.lua", "directory/".repeat(20));
        let short = chunk_name(&long);
        assert!(short.starts_with("...") && short.ends_with("/load.lua") && short.len() < 60, "{short}");
        assert_eq!(chunk_name(&"é".repeat(100)), format!("...{}", "é".repeat(25)));
        assert_eq!(chunk_name(""), "script");
        assert_eq!(chunk_name("a\nb"), "a?b");
    }

    #[test]
    fn addresses_are_shown_without_brackets() {
        assert_eq!(shown("127.0.0.1:80".parse().unwrap()), "127.0.0.1:80");
        assert_eq!(shown("[::1]:80".parse().unwrap()), "::1:80");
        assert_eq!(shown("[fe80::1%3]:80".parse().unwrap()), "fe80::1%3:80");
    }
}
