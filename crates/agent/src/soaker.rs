//! The soaker's threads: one per CPU that this agent may run on, pinned to it, which runs only while nothing else does.
//! What they count is in `leadline_observe::soaker`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use leadline_observe::soaker::Counter;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::{lower_session, run_only_when_idle};
use leadline_sys::usage::{allowed_cpus, pin_to, ThreadClock};
use leadline_wire::SoakerSample;
use tracing::{info, warn};

/// Running threads; they end when it is dropped.
pub struct Soaker {
    cpus: Vec<Soaked>,
    stopped: Arc<AtomicBool>,
}

struct Soaked {
    cpu: u32,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    counter: Counter,
    clock: OnceLock<ThreadClock>,
}

impl Soaker {
    /// Starts a thread on each CPU; one that cannot be started is left out of the samples.
    pub fn start() -> Self {
        lower_session();
        let stopped = Arc::new(AtomicBool::new(false));
        let begin = |cpu| match soak(cpu, &stopped) {
            Ok(soaked) => Some(soaked),
            Err(error) => {
                warn!(cpu, %error, "CPU is not soaked");
                None
            }
        };
        let cpus: Vec<Soaked> = allowed_cpus().into_iter().filter_map(begin).collect();
        info!(cpus = cpus.len(), "soaker started");
        Self { cpus, stopped }
    }

    /// Returns the counts so far of each CPU.
    pub fn sample(&self) -> Vec<SoakerSample> {
        let running = self.cpus.iter().filter(|soaked| !soaked.thread.is_finished());
        running
            .map(|Soaked { cpu, shared, .. }| {
                shared.counter.sample(*cpu, shared.clock.get().and_then(|clock| clock.read_s()))
            })
            .collect()
    }
}

impl Drop for Soaker {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        for soaked in self.cpus.drain(..) {
            // On a busy CPU its thread may not run for a long time: it ends when it does.
            if soaked.thread.is_finished() {
                let _ = soaked.thread.join();
            }
        }
    }
}

fn soak(cpu: u32, stopped: &Arc<AtomicBool>) -> io::Result<Soaked> {
    let shared = Arc::new(Shared::default());
    let (of_thread, stopped) = (Arc::clone(&shared), Arc::clone(stopped));
    let thread = thread::Builder::new().name(format!("soaker-{cpu}")).spawn(move || {
        // A thread that is not pinned, or that takes CPU from others, would count something else.
        if let Err(error) = pin_to(cpu).and_then(|()| run_only_when_idle()) {
            return warn!(cpu, %error, "CPU is not soaked");
        }
        if let Some(clock) = ThreadClock::of_this_thread() {
            let _ = of_thread.clock.set(clock);
        }
        of_thread.counter.run(monotonic_ns, || stopped.load(Ordering::Relaxed));
    })?;
    Ok(Soaked { cpu, shared, thread })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_allowed_cpu_is_counted() {
        let soaker = Soaker::start();
        let deadline = Instant::now() + Duration::from_secs(60);
        let counted = loop {
            let samples = soaker.sample();
            let all = samples.len() == allowed_cpus().len() && samples.iter().all(|sample| sample.slices > 0);
            if all || Instant::now() > deadline {
                break samples;
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(counted.iter().map(|sample| sample.cpu).collect::<Vec<_>>(), allowed_cpus());
        assert!(counted.iter().all(|sample| sample.slices > 0 && sample.cpu_s.is_some()), "{counted:?}");
    }
}
