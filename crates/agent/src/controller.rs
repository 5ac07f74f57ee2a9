//! Notices that the controller is out of reach although stdin is open, as when the network is cut between `ssh` and
//! `sshd`: the agent then ends as at the end of its stdin.
//!
//! The controller of a remote agent sends `heartbeat` each second. The first one begins the watch, so an agent that gets
//! its commands from a person waits as long as they do. Silence is counted in ticks, not in time: an agent that was
//! stopped or whose machine slept reads what has come meanwhile before it counts on.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leadline_sys::poll::{Interest, Poll, Waker};
use tracing::warn;

use crate::events::LAST_PATIENCE;
use crate::patience::patience;

/// How often silence is counted.
const TICK: Duration = Duration::from_secs(1);
/// Ticks without a byte from the controller after which the agent ends in order ...
const END_AFTER: u32 = 20;
/// ... and, if that does not succeed, at once: a full pipe of events may hold each of its threads.
const ABORT_AFTER: u32 = 25;

/// What one tick asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Nothing,
    End,
    Abort,
}

/// Counts ticks of silence.
#[derive(Debug, Default)]
struct Silence {
    heard: u64,
    quiet_ticks: u32,
}

impl Silence {
    /// One more tick; `heard` counts the reads from stdin that brought something.
    fn tick(&mut self, heard: u64) -> Demand {
        self.quiet_ticks = if heard == self.heard { self.quiet_ticks + 1 } else { 0 };
        self.heard = heard;
        match self.quiet_ticks {
            END_AFTER => Demand::End,
            ABORT_AFTER.. => Demand::Abort,
            _ => Demand::Nothing,
        }
    }
}

/// Whether the controller is in reach, shared by the reader of its commands and the thread that counts silence.
pub struct Reach {
    /// Reads from stdin that brought something.
    heard: AtomicU64,
    is_watched: AtomicBool,
    is_lost: AtomicBool,
    waker: Waker,
}

impl Reach {
    /// In reach, and not watched.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            heard: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            waker: Waker::new()?,
        }))
    }

    /// Begins to count silence, once.
    pub fn watch(self: &Arc<Self>) {
        if self.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let reach = Arc::clone(self);
        thread::spawn(move || {
            let mut silence = Silence::default();
            loop {
                thread::sleep(patience(TICK));
                match silence.tick(reach.heard.load(Ordering::Relaxed)) {
                    Demand::Nothing => {}
                    Demand::End => reach.lose(),
                    Demand::Abort => {
                        leadline_sys::process::kill_descendants(LAST_PATIENCE);
                        std::process::exit(1);
                    }
                }
            }
        });
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Stdin that ends where the controller is out of reach.
pub struct ReachableInput<R> {
    stdin: R,
    reach: Arc<Reach>,
    /// `None` where epoll takes no stdin: a file is always readable.
    poll: Option<Poll>,
}

impl<R: Read + AsFd> ReachableInput<R> {
    /// The input, which no other reader may have buffered.
    pub fn new(stdin: R, reach: Arc<Reach>) -> io::Result<Self> {
        let poll = Poll::new(2)?;
        poll.add(&reach.waker, WAKER, Interest::Read)?;
        let poll = poll.add(&stdin, STDIN, Interest::Read).is_ok().then_some(poll);
        Ok(Self { stdin, reach, poll })
    }
}

impl<R: Read> Read for ReachableInput<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(poll) = &mut self.poll {
            // A signal ends a wait without any.
            while !poll.wait(None)?.any(|ready| ready.token == STDIN) {
                if self.reach.is_lost.load(Ordering::Acquire) {
                    warn!(ticks = END_AFTER, "the controller is out of reach");
                    return Ok(0);
                }
            }
        }
        let read = self.stdin.read(bytes)?;
        self.reach.heard.fetch_add(1, Ordering::Relaxed);
        Ok(read)
    }
}

const STDIN: u64 = 0;
const WAKER: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn silence_ends_the_agent_and_then_aborts_it() {
        let mut silence = Silence::default();
        let demands: Vec<Demand> = (0..26).map(|_| silence.tick(0)).collect();
        let end = demands.iter().position(|demand| *demand == Demand::End).unwrap() as u32 + 1;
        let abort = demands.iter().position(|demand| *demand == Demand::Abort).unwrap() as u32 + 1;
        assert_eq!((end, abort), (END_AFTER, ABORT_AFTER));
        assert!(TICK * ABORT_AFTER < Duration::from_secs(30), "it has ended within 30 s");
    }

    #[test]
    fn whatever_is_heard_begins_the_count_again() {
        let mut silence = Silence::default();
        // A heartbeat that comes every 19 ticks is late, and not lost.
        let demands = (0..500u64).map(|tick| silence.tick(tick / 19));
        assert!(demands.into_iter().all(|demand| demand == Demand::Nothing));
    }

    #[test]
    fn input_ends_where_the_controller_is_lost_and_not_before() {
        let (mut controller, stdin) = UnixStream::pair().unwrap();
        let reach = Reach::new().unwrap();
        let mut input = ReachableInput::new(stdin, Arc::clone(&reach)).unwrap();
        let mut bytes = [0; 8];
        controller.write_all(b"one").unwrap();
        assert_eq!(input.read(&mut bytes).unwrap(), 3);
        assert_eq!(reach.heard.load(Ordering::Relaxed), 1);
        reach.lose();
        assert_eq!(input.read(&mut bytes).unwrap(), 0, "stdin is open, and the wait for it ends");
    }

    #[test]
    fn file_as_stdin_is_read_without_waiting() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let mut input = ReachableInput::new(file, Reach::new().unwrap()).unwrap();
        assert!(input.read(&mut [0; 8]).unwrap() > 0);
    }
}
