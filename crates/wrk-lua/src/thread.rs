//! The script state of one thread: its requests, its view of responses, and whether it has stopped. Owns the calls
//! per request, so nothing here allocates once buffers have grown.

use std::borrow::Borrow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mlua::{Function, Lua, LuaString, Table, Value, WeakLua};

use crate::answer::Answer;
use crate::lua::{parse, State};
use crate::transfer::transfer;
use crate::ScriptError;

/// The script state of one thread. It moves to the thread that uses it.
pub struct ThreadScript {
    state: State,
    shared: Arc<Shared>,
    request: Function,
    response: Function,
    delay: Function,
    answer: Answer,
    constant: Option<Vec<u8>>,
    has_response: bool,
    has_delay: bool,
    batch: u32,
}

/// The data of a thread that both its state and the main state access.
#[derive(Default)]
pub(crate) struct Shared {
    stopped: AtomicBool,
    address: Mutex<Option<SocketAddr>>,
}

/// The kind of script, which thread 1 determines for all threads, as in wrk.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Whether `request` is called for each request.
    pub(crate) dynamic: bool,
    pub(crate) has_response: bool,
    pub(crate) has_delay: bool,
    /// Requests per string.
    pub(crate) batch: u32,
}

impl ThreadScript {
    /// Creates the state after `init`. Calls `request` once if the request is constant.
    pub(crate) fn new(state: State, shared: Arc<Shared>, kind: Kind) -> Result<Self, ScriptError> {
        let mut script = Self {
            request: state.entry("request")?,
            response: state.entry("response")?,
            delay: state.entry("delay")?,
            answer: Answer::new(&state)?,
            constant: None,
            has_response: kind.has_response,
            has_delay: kind.has_delay,
            batch: kind.batch,
            state,
            shared,
        };
        if !kind.dynamic {
            let mut bytes = Vec::new();
            script.request(&mut bytes)?;
            script.constant = Some(bytes);
        }
        Ok(script)
    }

    /// The request, if it is constant: the script defines no `request` function. `request` need not be called then;
    /// `response` and `delay` are independent of it.
    #[must_use]
    pub fn constant(&self) -> Option<&[u8]> {
        self.constant.as_deref()
    }

    /// Whether the script defines `response`.
    #[must_use]
    pub fn has_response(&self) -> bool {
        self.has_response
    }

    /// Whether the script defines `delay`.
    #[must_use]
    pub fn has_delay(&self) -> bool {
        self.has_delay
    }

    /// The address of this thread's connections (`thread.addr`); `None` if the load uses no address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        *self.shared.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests per call of `request`, and so responses per call; at least 1.
    #[must_use]
    pub fn batch(&self) -> u32 {
        self.batch
    }

    /// Makes the next request: clears `out` and fills it.
    ///
    /// # Errors
    /// The script's error, or that it returned no string.
    #[inline]
    pub fn request(&mut self, out: &mut Vec<u8>) -> Result<(), ScriptError> {
        request_into(&self.state, &self.request, out)
    }

    /// Returns the delay before the next request, ms. A value that is not a number, or negative, counts as 0. At most
    /// 49 days, so that the caller can compute in ns.
    ///
    /// # Errors
    /// The script's error.
    pub fn delay_ms(&mut self) -> Result<u64, ScriptError> {
        let delay = self.state.call::<Value>(&self.delay, (), "delay()")?;
        // A cast from `f64` saturates; Lua also accepts a string as a number.
        let ms = match delay {
            Value::Integer(number) => u64::try_from(number).unwrap_or(0),
            Value::Number(number) => number as u64,
            Value::String(text) => text.to_string_lossy().trim().parse::<f64>().map_or(0, |number| number as u64),
            _ => 0,
        };
        Ok(ms.min(u64::from(u32::MAX)))
    }

    /// Passes a response to the script, with names as they were sent; if a name repeats, the last value counts.
    ///
    /// # Errors
    /// The script's error.
    #[inline]
    pub fn response<'a>(
        &mut self,
        status: u16,
        headers: impl IntoIterator<Item = impl Borrow<(&'a [u8], &'a [u8])>>,
        body: &[u8],
    ) -> Result<(), ScriptError> {
        let content = self.answer.update(&self.state, headers, body)?;
        self.state.call(&self.response, (status, content), "response()")
    }

    /// Whether the script has called `wrk.thread:stop()`.
    #[inline]
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    /// Returns a handle that keeps the state readable for the main state.
    pub(crate) fn lua(&self) -> Lua {
        self.state.lua.clone()
    }
}

/// Calls `request` of a state and writes its result to `out`.
#[inline]
pub(crate) fn request_into(state: &State, request: &Function, out: &mut Vec<u8>) -> Result<(), ScriptError> {
    out.clear();
    match state.call::<Value>(request, (), "request()")? {
        Value::String(text) => out.extend_from_slice(&text.as_bytes()),
        Value::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        other => return Err(no_request(state, other.type_name())),
    }
    if out.is_empty() {
        return Err(no_request(state, "an empty string"));
    }
    Ok(())
}

#[cold]
fn no_request(state: &State, got: &str) -> ScriptError {
    state.problem(&format!("request() has to return a request as a string, got {got}"))
}

impl Shared {
    /// Ignores an earlier `stop`, as wrk does when a thread's loop begins.
    pub(crate) fn start(&self) {
        self.stopped.store(false, Ordering::Relaxed);
    }
}

/// Creates the functions with which a `thread` object in the state `home` accesses the thread whose state is
/// `target`.
pub(crate) fn thread_calls(home: &Lua, target: WeakLua, shared: &Arc<Shared>) -> mlua::Result<Table> {
    let calls = home.create_table()?;
    let from = target.clone();
    calls.set("get", home.create_function(move |lua, name: LuaString| Ok(got(lua, &from, &name)))?)?;
    calls.set(
        "set",
        home.create_function(move |_, (name, value): (LuaString, Value)| Ok(set(&target, &name, &value).err()))?,
    )?;
    let thread = Arc::clone(shared);
    let stop = home.create_function(move |_, ()| {
        thread.stopped.store(true, Ordering::Relaxed);
        Ok(())
    });
    calls.set("stop", stop?)?;
    let thread = Arc::clone(shared);
    let address = home.create_function(move |_, ()| {
        let address = *thread.address.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(address.map(|address| address.to_string()))
    });
    calls.set("address", address?)?;
    let thread = Arc::clone(shared);
    let set_address = home.create_function(move |_, text: String| {
        *thread.address.lock().unwrap_or_else(PoisonError::into_inner) = parse(&text);
        Ok(())
    });
    calls.set("set_address", set_address?)?;
    Ok(calls)
}

fn got(to: &Lua, from: &WeakLua, name: &LuaString) -> (Value, Option<String>) {
    let copied = from.try_upgrade().ok_or_else(gone).and_then(|from| {
        // A string of one state cannot be used in another.
        let name = from.create_string(name.as_bytes()).map_err(|error| error.to_string())?;
        let value: Value = from.globals().get(name).map_err(|error| error.to_string())?;
        transfer(&value, to)
    });
    match copied {
        Ok(value) => (value, None),
        Err(problem) => (Value::Nil, Some(problem)),
    }
}

fn set(target: &WeakLua, name: &LuaString, value: &Value) -> Result<(), String> {
    let to = target.try_upgrade().ok_or_else(gone)?;
    let name = to.create_string(name.as_bytes()).map_err(|error| error.to_string())?;
    to.globals().set(name, transfer(value, &to)?).map_err(|error| error.to_string())
}

fn gone() -> String {
    "the thread is gone".to_owned()
}
