//! The main state, in which `setup` runs before the load and `done` after it.

use leadline_stats::Histogram;
use mlua::{Lua, Table};

use crate::lua::State;
use crate::statistics::Statistics;
use crate::ScriptError;

/// The results of a load, counted as in wrk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Duration, µs.
    pub duration_us: u64,
    /// Complete responses.
    pub requests: u64,
    /// Received bytes.
    pub bytes: u64,
    /// Connections that could not be opened.
    pub connect: u64,
    /// Read errors, including malformed responses.
    pub read: u64,
    /// Write errors.
    pub write: u64,
    /// Responses with a status above 399.
    pub status: u64,
    /// Responses that timed out.
    pub timeout: u64,
}

/// A script's main state, with handles that keep the threads' states readable.
pub struct Main {
    state: State,
    _threads: Vec<Lua>,
    has_done: bool,
}

impl Main {
    pub(crate) fn new(state: State, threads: Vec<Lua>) -> Result<Self, ScriptError> {
        let has_done = state.defines("done")?;
        Ok(Self { state, _threads: threads, has_done })
    }

    /// Whether the script defines `done`.
    #[must_use]
    pub fn has_done(&self) -> bool {
        self.has_done
    }

    /// Calls `done`, if the script defines it, after the threads' loops have ended: `latency` in ns, `requests` as
    /// the threads' rates over short intervals, requests per second.
    ///
    /// # Errors
    /// The script's error.
    pub fn done(&mut self, summary: &Summary, latency: &Histogram, requests: &Histogram) -> Result<(), ScriptError> {
        if !self.has_done {
            return Ok(());
        }
        let latency = self.stats(Statistics::new(latency, 1000))?;
        let requests = self.stats(Statistics::new(requests, 1))?;
        let summary = summary_table(&self.state.lua, summary).map_err(|error| self.state.failed(&error))?;
        self.state.enter("done", (summary, latency, requests), "done()")
    }
    fn stats(&self, statistics: Statistics) -> Result<mlua::Value, ScriptError> {
        let (figures, calls) = statistics.into_lua(&self.state.lua).map_err(|error| self.state.failed(&error))?;
        self.state.enter("stats", (figures, calls), "done()")
    }
}

fn summary_table(lua: &Lua, summary: &Summary) -> mlua::Result<Table> {
    let errors = lua.create_table()?;
    errors.set("connect", summary.connect)?;
    errors.set("read", summary.read)?;
    errors.set("write", summary.write)?;
    errors.set("status", summary.status)?;
    errors.set("timeout", summary.timeout)?;
    let table = lua.create_table()?;
    table.set("duration", summary.duration_us)?;
    table.set("requests", summary.requests)?;
    table.set("bytes", summary.bytes)?;
    table.set("errors", errors)?;
    Ok(table)
}
