//! Undoes what was changed on the host, when the agent ends: by commands that were registered before each change and not
//! taken back.
//!
//! They are run by a process of their own, `leadline-agent undo`, which outlives the agent: the kernel kills an agent
//! whose parent ends, and so does a user or a host without memory. It reads registrations from a pipe, whose end is the
//! agent's. It is started for the first registration; an agent that changes nothing has none.

use std::collections::BTreeSet;
use std::env;
use std::io::{self, BufRead, Write};
use std::os::unix::process::parent_id;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use leadline_sys::process::{ignore_termination, signal_group, spawn_bound, spawn_survivor, Signal};
use leadline_wire::{ErrorReport, UndoSpec};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::events::{input_error, system_error};

/// A trial and a task.
type Key = (String, String);

/// One line from the agent to the process.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    Register(Key, UndoSpec),
    TakeBack(Key),
    /// The agent has ended all that it started.
    Run,
}

/// The maximum number of registered commands.
const MAX_COMMANDS: usize = 4096;
const MAX_WITHIN_MS: u32 = 60_000;
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long the process waits for the end of an agent that did not say `Run`; the kernel kills its children then.
const AGENT_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The registered commands, as the agent knows them.
#[derive(Default)]
pub struct Undo {
    registered: BTreeSet<Key>,
    process: Option<(Child, ChildStdin)>,
}

impl Undo {
    /// Registers a command. Once this returns, it runs when the agent ends.
    pub fn register(&mut self, key: Key, spec: UndoSpec) -> Result<(), ErrorReport> {
        if spec.argv.is_empty() {
            return Err(input_error("bad_spec", format!("{}: no program is named", key.1)));
        }
        if spec.within_ms > MAX_WITHIN_MS {
            let message = format!("{}: {} ms are more than {MAX_WITHIN_MS}", key.1, spec.within_ms);
            return Err(input_error("bad_spec", message));
        }
        if self.registered.contains(&key) || self.registered.len() >= MAX_COMMANDS {
            let message = format!("task {} of trial {} is registered already, or too many are", key.1, key.0);
            return Err(input_error("task_exists", message));
        }
        self.send(&Line::Register(key.clone(), spec))
            .map_err(|error| system_error("registering a command that undoes a change", &error))?;
        info!(trial = key.0, task = key.1, registered = self.registered.len() + 1, "command to undo registered");
        self.registered.insert(key);
        Ok(())
    }

    /// Takes a command back; does nothing if it is not registered.
    pub fn take_back(&mut self, key: Key) {
        if !self.registered.remove(&key) {
            return;
        }
        info!(trial = key.0, task = key.1, "command to undo taken back");
        if let Err(error) = self.send(&Line::TakeBack(key)) {
            warn!(reason = %error, "command to undo cannot be taken back");
        }
    }

    /// Runs what is registered, and waits for its end. Each command's time is limited.
    pub fn run(mut self) {
        if self.process.is_none() {
            return;
        }
        info!(registered = self.registered.len(), "changes are undone");
        let _ = self.send(&Line::Run);
        if let Some((mut process, stdin)) = self.process.take() {
            drop(stdin);
            let _ = process.wait();
        }
    }

    /// Writes to the process, which is started for the first line.
    fn send(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let (_, stdin) = match &mut self.process {
            Some(running) => running,
            none => none.insert(start()?),
        };
        stdin.write_all(&text)
    }
}

fn start() -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("undo").current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = spawn_survivor(&mut command)?;
    let stdin = process.stdin.take().ok_or_else(|| io::Error::other("it has no stdin"))?;
    Ok((process, stdin))
}

/// Reads registrations from stdin until its end, then runs what is left of them, the newest first.
///
/// # Errors
/// Stdin is no such pipe.
pub fn run() -> io::Result<()> {
    let agent = parent_id();
    ignore_termination();
    let mut registered: Vec<(Key, UndoSpec)> = Vec::new();
    let mut ended_in_order = false;
    for line in io::stdin().lock().lines() {
        // The agent may be killed in the middle of a line; what was registered before it counts.
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(Line::Register(key, spec)) => registered.push((key, spec)),
            Ok(Line::TakeBack(key)) => registered.retain(|(of, _)| *of != key),
            Ok(Line::Run) => {
                ended_in_order = true;
                break;
            }
            Err(_) => break,
        }
    }
    if !ended_in_order {
        let deadline = Instant::now() + AGENT_ENDS_WITHIN;
        while parent_id() == agent && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }
    for (_, spec) in registered.iter().rev() {
        // No one receives an error any more; the others are undone all the same.
        let _ = carry_out(spec);
    }
    Ok(())
}

/// Runs one command, at most for its time.
fn carry_out(spec: &UndoSpec) -> io::Result<()> {
    let Some((program, arguments)) = spec.argv.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawn_bound(&mut command)?;
    let deadline = Instant::now() + Duration::from_millis(spec.within_ms.into());
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            signal_group(child.id(), Signal::Kill)?;
            child.wait()?;
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
