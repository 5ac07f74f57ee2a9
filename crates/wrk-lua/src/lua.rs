//! A Lua state with wrk's API that runs a script, and calls of its functions. Owns the native functions of the
//! prelude; the API's objects are written in Lua (`prelude/api.lua`).

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, Table, Value};

use crate::error::OWN_CHUNK;
use crate::program::{Network, Origin, Output, Program};
use crate::ScriptError;

const API: &str = include_str!("prelude/api.lua");
const STREAMS: &str = include_str!("prelude/streams.lua");

/// A state that has run the script's file.
pub(crate) struct State {
    pub(crate) lua: Lua,
    /// The prelude's functions.
    entries: Table,
    chunk: String,
    /// Why the script stopped the load; empty until it does.
    ended: Arc<OnceLock<String>>,
}

impl State {
    /// Creates a state with the API and runs the script in it.
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
            .map_err(|error| ScriptError::from_lua(&error, &chunk, "Leadline's prelude"))?;
        let state = Self { lua, entries, chunk, ended };
        let file = state.lua.load(&program.source).set_name(format!("@{}", state.chunk)).into_function();
        let file = file.map_err(|error| ScriptError::from_lua(&error, &state.chunk, ""))?;
        state.call::<()>(&file, (), "")?;
        Ok(state)
    }

    /// Returns a function of the prelude.
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

    /// Calls a function of the prelude by its name.
    pub(crate) fn enter<R: FromLuaMulti>(
        &self,
        name: &str,
        args: impl IntoLuaMulti,
        during: &str,
    ) -> Result<R, ScriptError> {
        self.call(&self.entry(name)?, args, during)
    }

    /// Whether the script defines a global function with this name.
    pub(crate) fn defines(&self, name: &str) -> Result<bool, ScriptError> {
        self.enter("defines", name, name)
    }

    /// Creates an error that this crate detected.
    pub(crate) fn problem(&self, problem: &str) -> ScriptError {
        ScriptError::detected(&self.chunk, problem)
    }

    /// Converts an error of Lua outside the script's functions.
    pub(crate) fn failed(&self, error: &mlua::Error) -> ScriptError {
        ScriptError::from_lua(error, &self.chunk, "")
    }

    #[cold]
    fn end(&self) -> ScriptError {
        self.problem(self.ended.get().map_or("the script ended the load", String::as_str))
    }
}

/// Lua's name of the script. Lua shortens names of 60 bytes and more, but errors are recognised by the whole name.
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
            // Only the first reason is reported.
            let _ = ended.set(why.clone());
            Ok(why)
        })?,
    )?;
    addresses(lua, &native, origin, network)?;
    let own = format!("={OWN_CHUNK}");
    lua.load(STREAMS).set_name(&own).call::<()>(&native)?;
    lua.load(API).set_name(&own).call(&native)
}

/// Creates the `wrk` table from the command line.
fn fields(lua: &Lua, origin: &Origin) -> mlua::Result<Table> {
    let wrk = lua.create_table()?;
    wrk.set("scheme", origin.scheme.as_str())?;
    wrk.set("host", origin.host.as_str())?;
    // A string, as written in the URL.
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

/// Adds the address functions. An address is identified by its text, including an interface number (`%2`), and the
/// text can be parsed again.
fn addresses(lua: &Lua, native: &Table, origin: &Origin, network: &Arc<dyn Network>) -> mlua::Result<()> {
    native.set("shown", lua.create_function(|_, text: String| Ok(parse(&text).map(shown)))?)?;
    let known: Vec<String> = origin.addresses.iter().map(SocketAddr::to_string).collect();
    let (host, service) = (origin.host.clone(), origin.service());
    let ours = lua.create_function(move |_, arguments: (Value, Value)| {
        let is_origin = text(&arguments.0).as_ref() == Some(&host) && text(&arguments.1).as_ref() == Some(&service);
        Ok(is_origin.then(|| known.clone()))
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
                Ok(detected) => {
                    let detected = detected.iter().map(SocketAddr::to_string);
                    Ok((Value::Table(lua.create_sequence_from(detected)?), None))
                }
                Err(cause) => Ok((Value::Nil, Some(format!("unable to resolve {host}:{service}: {cause}")))),
            }
        })?,
    )
}

/// Returns the text of a string or a number.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.to_string_lossy()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Parses an address from the text that `SocketAddr` prints.
pub(crate) fn parse(text: &str) -> Option<SocketAddr> {
    text.parse().ok()
}

/// Formats an address as wrk does: without brackets.
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
