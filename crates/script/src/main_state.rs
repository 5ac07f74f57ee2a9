//! The main state: the one that `setup` ran in, and that `done` runs in once the load is over.

use leadline_stats::Histogram;
use mlua::{Lua, Table};

use crate::lua::State;
use crate::statistics::Statistics;
use crate::ScriptError;

/// What the load comes to, as wrk counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How long it took, µs.
    pub duration_us: u64,
    /// Responses that arrived whole.
    pub requests: u64,
    /// Bytes that were received.
    pub bytes: u64,
    /// Connections that could not be opened.
    pub connect: u64,
    /// Failures to read, malformed responses included.
    pub read: u64,
    /// Failures to write.
    pub write: u64,
    /// Responses with a status above 399.
    pub status: u64,
    /// Responses that took too long.
    pub timeout: u64,
}

/// The main state of a script, and what keeps the threads' states readable for it.
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

    /// Whether the script has something to say at the end.
    #[must_use]
    pub fn has_done(&self) -> bool {
        self.has_done
    }

    /// Calls `done`, if the script has it, after the threads' loops have ended: `latency` in ns, `requests` the threads'
    /// rates over short stretches, requests per second.
    ///
    /// # Errors
    /// The script's.
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
