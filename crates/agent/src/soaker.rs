//! The soaker's process: one thread per CPU that this agent may run on, pinned to it, which runs only while nothing
//! else does. What they count is in `leadline_observe::soaker`.
//!
//! It is a process of its own because kernels may schedule processes by session: threads that use all that is left
//! need a session of the least weight, and with this weight the agent itself would not answer on a busy machine.

use std::env;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::thread;

use leadline_observe::soaker::{Counter, NUMBERS};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::{lower_session_weight, restore_session_weight, run_only_when_idle};
use leadline_sys::process::spawn_bound_session;
use leadline_sys::reason::reason;
use leadline_sys::shared::SharedNumbers;
use leadline_sys::usage::{allowed_cpus, pin_to, thread_cpu_s};
use leadline_wire::SoakerSample;
use tracing::{info, warn};

/// The running process; it ends when this is dropped.
pub struct Soaker {
    process: Option<Child>,
    shared: SharedNumbers,
    cpus: Vec<u32>,
}

impl Soaker {
    /// Starts the process; `None` if it cannot be started.
    pub fn start() -> Option<Self> {
        let started = start_process();
        match &started {
            Ok(soaker) => info!(cpus = soaker.cpus.len(), "soaker started"),
            Err(error) => warn!(reason = reason(error), "CPUs are not soaked"),
        }
        started.ok()
    }

    /// Returns the counts so far of each CPU; none if the process has ended.
    pub fn sample(&mut self) -> Vec<SoakerSample> {
        if !matches!(self.process.as_mut().map(Child::try_wait), Some(Ok(None))) {
            return Vec::new();
        }
        counters(&self.shared, &self.cpus).filter_map(|(cpu, counter)| counter.sample(cpu)).collect()
    }
}

impl Drop for Soaker {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        restore_session_weight(process.id());
        let _ = process.kill();
        // On a busy CPU its threads may not end for some time: this thread has samples to send.
        thread::spawn(move || process.wait());
    }
}

/// Counts on each CPU until this process is killed; stdin is the memory of the counters.
///
/// # Errors
/// `InvalidInput` if stdin is something else, otherwise the system's.
pub fn run() -> io::Result<()> {
    let shared = SharedNumbers::from_stdin()?;
    let cpus = allowed_cpus();
    io::stdout().write_all(READY)?;
    lower_session_weight();
    thread::scope(|scope| {
        for (cpu, counter) in counters(&shared, &cpus) {
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, move || soak(cpu, counter)) {
                fail(cpu, counter, &error);
            }
        }
    });
    Ok(())
}

const READY: &[u8] = b"\n";

fn start_process() -> io::Result<Soaker> {
    let cpus = allowed_cpus();
    let shared = SharedNumbers::create(cpus.len() * NUMBERS)?;
    let mut command = Command::new(env::current_exe()?);
    command.arg("soaker").stdin(shared.as_stdin()?).stdout(Stdio::piped());
    let mut process = spawn_bound_session(&mut command)?;
    let ready = process.stdout.take().map(|mut output| output.read_exact(&mut [0; READY.len()]));
    let soaker = Soaker { process: Some(process), shared, cpus };
    ready.unwrap_or(Ok(())).map(|()| soaker)
}

fn counters<'a>(shared: &'a SharedNumbers, cpus: &'a [u32]) -> impl Iterator<Item = (u32, Counter<'a>)> {
    let of_cpus =
        shared.numbers().chunks_exact(NUMBERS).filter_map(|of_cpu| <&[AtomicU64; NUMBERS]>::try_from(of_cpu).ok());
    cpus.iter().copied().zip(of_cpus.map(Counter::over))
}

fn soak(cpu: u32, counter: Counter<'_>) {
    // A thread that is not pinned, or that takes CPU from others, would count something else.
    if let Err(error) = pin_to(cpu).and_then(|()| run_only_when_idle()) {
        return fail(cpu, counter, &error);
    }
    counter.run(monotonic_ns, || (thread_cpu_s() * 1e9) as u64, || false);
}

fn fail(cpu: u32, counter: Counter<'_>, error: &io::Error) {
    warn!(cpu, reason = reason(error), "CPU is not soaked");
    counter.fail();
}
