//! Looks a name up for each connection, on a thread of its own, since the system's resolver blocks. Owns the thread and
//! the order of questions; the time that an answer took is measured where it is waited for.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};

use leadline_sys::clock::monotonic_ns;

use super::plan::{Destination, Name};

/// How often answers are looked for while some are awaited, ns.
const LOOK_NS: u64 = 500_000;

/// An answer.
pub struct Resolved {
    /// For which connection, and in which of its lives.
    pub index: usize,
    pub epoch: u32,
    /// The address, or why there is none.
    pub address: Result<SocketAddr, String>,
    /// How long it took, ns.
    pub took_ns: u64,
}

/// One worker's resolver; its thread ends with it.
pub struct Resolver {
    questions: Sender<(usize, u32, u64)>,
    answers: Receiver<Resolved>,
    awaited: usize,
}

impl Resolver {
    /// Where connections go to a name that is asked for each time.
    pub fn of(destination: &Destination) -> Option<Self> {
        let Destination::Asked(name) = destination else { return None };
        let name: Name = name.clone();
        let (questions, asked) = mpsc::channel::<(usize, u32, u64)>();
        let (tell, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for (index, epoch, until_ns) in asked {
                let began_ns = monotonic_ns();
                // Whoever asked has given up by then; looking up all the same would keep those waiting who have not.
                let address = if began_ns < until_ns {
                    name.look_up().map_err(|error| error.message)
                } else {
                    Err("it was asked for too late".to_owned())
                };
                let took_ns = monotonic_ns() - began_ns;
                if tell.send(Resolved { index, epoch, address, took_ns }).is_err() {
                    return;
                }
            }
        });
        Some(Self { questions, answers, awaited: 0 })
    }

    /// Ask for a connection; the answer is of no use after `until_ns`.
    pub fn ask(&mut self, index: usize, epoch: u32, until_ns: u64) {
        // The thread ends only when this does.
        if self.questions.send((index, epoch, until_ns)).is_ok() {
            self.awaited += 1;
        }
    }

    /// The next answer that is there.
    pub fn answer(&mut self) -> Option<Resolved> {
        let answer = self.answers.try_recv().ok()?;
        self.awaited -= 1;
        Some(answer)
    }

    /// When to look for answers again, ns.
    pub fn look_again_ns(&self, now_ns: u64) -> u64 {
        if self.awaited > 0 {
            now_ns + LOOK_NS
        } else {
            u64::MAX
        }
    }
}
