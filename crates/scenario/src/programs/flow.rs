//! The flows of users as programs: [`Flows::resume`] carries out the instructions of a user until it has to wait, and takes
//! the ends of its exchanges. Owns what requests and transactions come to. Knows no timer, no population's time and no
//! other user: `execute` carries out instructions, `exchange` takes responses, `pages` fetches resources.

mod exchange;
pub mod execute;
mod loops;
mod pages;
mod records;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::evaluate::{Context, Tools};
use crate::figures::Figures;
use crate::masking::mask;
use crate::outgoing::Outgoing;
use crate::program::{Instruction, Program};
use crate::samples::{Opening, Samples};
use crate::scripts::Scripts;
use crate::shared::{Shared, Stop};
use crate::user::{Frame, Stage, User};

/// What the caller has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a request on a connection of the user.
    Send(Box<Send>),
    /// Forget the outstanding exchanges of the user, and close their connections.
    Cancel {
        /// The user.
        user: u32,
    },
    /// Close the idle connections of the user.
    CloseConnections {
        /// The user.
        user: u32,
    },
}

/// A request to send.
#[derive(Debug, PartialEq, Eq)]
pub struct Send {
    /// The user.
    pub user: u32,
    /// Number of the exchange, to be repeated at its end.
    pub exchange: u32,
    /// The request.
    pub outgoing: Outgoing,
    /// When it was wanted, ns.
    pub due_ns: u64,
    /// The label that it counts for; none for a resource, which is part of its page.
    pub label: Option<u32>,
    /// Time limit of connecting, ns, if it has its own.
    pub connect_timeout_ns: Option<u64>,
    /// Time limit of the response, ns, if it has its own.
    pub response_timeout_ns: Option<u64>,
    /// Whether the response's header fields are to be kept.
    pub keeps_head: bool,
    /// Whether the response's body is to be kept.
    pub keeps_body: bool,
}

/// A complete response.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeEnd<'r> {
    /// The status code.
    pub status: u16,
    /// The reason phrase, if header fields were to be kept.
    pub reason: &'r str,
    /// The header fields as lines `Name: value`, if they were to be kept.
    pub head: &'r str,
    /// The body, if it was to be kept.
    pub body: &'r [u8],
    /// The size of the body, bytes.
    pub body_bytes: u64,
    /// When the request was sent, ns.
    pub sent_ns: u64,
    /// When the response began, ns.
    pub first_ns: u64,
    /// When it was complete, ns.
    pub done_ns: u64,
    /// Bytes of the request.
    pub sent_bytes: u64,
    /// Bytes of the response.
    pub received_bytes: u64,
    /// What opening its connection took, if that was done for it.
    pub opening: Option<Opening>,
}

/// An exchange without a response.
#[derive(Clone, Debug)]
pub struct ExchangeFailure {
    /// The name of the cause.
    pub cause: Cow<'static, str>,
    /// What is wrong, in words.
    pub detail: String,
    /// Whether it was the response's time limit.
    pub timed_out: bool,
    /// When it was sent, ns, if it was.
    pub sent_ns: Option<u64>,
    /// Bytes of the request that were sent.
    pub sent_bytes: u64,
    /// Bytes that were received.
    pub received_bytes: u64,
    /// What opening its connection took, if that was done for it.
    pub opening: Option<Opening>,
}

/// The end of an exchange, which its user waits for.
pub enum Response<'r> {
    /// Its number, and the response.
    Answer(u32, &'r ExchangeEnd<'r>),
    /// Its number, and why there is no response.
    Failure(u32, ExchangeFailure),
}

/// Why a user does not go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// It awaits responses.
    Requesting,
    /// It waits until an instant, ns; for good if there is none.
    Wait(Option<u64>),
    /// It waits for others at a rendezvous.
    Meet(Rendezvous),
    /// Its part of life is over.
    Over {
        /// Whether it was interrupted.
        interrupted: bool,
    },
}

/// A rendezvous that a user joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rendezvous {
    /// Its number.
    pub at: u32,
    /// How many users meet; 0: all of the population.
    pub users: usize,
    /// How long the user waits for them, ms; without limit if 0.
    pub timeout_ms: f64,
}

/// The flows of one thread's users.
pub struct Flows {
    pub program: Arc<Program>,
    pub shared: Arc<Shared>,
    pub tools: Tools,
    pub scripts: Scripts,
    /// What the caller has to do.
    pub effects: VecDeque<Effect>,
    pub figures: Figures,
    pub samples: Option<Samples>,
    /// How many rows of its block of a feeder each user of a closed model has taken, by population, feeder and the user's
    /// index.
    pub positions: HashMap<(u32, u32, u32), u64>,
    next_exchange: u32,
}

impl Flows {
    /// Returns flows that have not begun.
    pub fn new(program: Arc<Program>, shared: Arc<Shared>, tools: Tools) -> Self {
        Self {
            figures: Figures::new(&program),
            program,
            shared,
            tools,
            scripts: Scripts::default(),
            effects: VecDeque::new(),
            samples: None,
            positions: HashMap::new(),
            next_exchange: 0,
        }
    }

    /// Carries out the instructions of a user until it has to wait, after the end of an exchange if there is one. `left`
    /// is how many instructions it may execute before the others have their turn.
    pub fn resume(
        &mut self,
        slot: u32,
        user: &mut User,
        response: Option<Response<'_>>,
        left: &mut u32,
        now_ns: u64,
    ) -> Step {
        let mut step = match response {
            None => None,
            Some(Response::Answer(exchange, end)) => self.answered(slot, user, exchange, end, now_ns),
            Some(Response::Failure(exchange, failure)) => self.failed(slot, user, exchange, failure, now_ns),
        };
        let program = Arc::clone(&self.program);
        loop {
            if let Some(step) = step {
                return step;
            }
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Step::Wait(Some(now_ns + 1));
            }
            step = match self.step(slot, &program, user, now_ns) {
                Ok(step) => step,
                Err(fault) => Some(self.on_fault(user, fault)),
            };
        }
    }

    /// Lets a user begin a part of its life.
    pub fn enter(&self, user: &mut User, stage: Stage) {
        let population = &self.program.populations[user.population as usize];
        user.pc = match stage {
            Stage::Before => population.before,
            Stage::Iteration => population.flow,
            Stage::Afterwards => population.afterwards,
        };
        user.stage = stage;
        user.frames.clear();
    }

    /// Whether the users of a population have something to do before their first iteration.
    pub fn has_beginning(&self, population: usize) -> bool {
        let before = self.program.populations[population].before;
        !matches!(self.program.code[before as usize], Instruction::End)
    }

    /// Computes the variables that each user has.
    pub fn initialize(&mut self, user: &mut User, now_ns: u64) {
        let program = Arc::clone(&self.program);
        for (variable, template) in &program.populations[user.population as usize].variables {
            let mut context = context(&program, &self.shared, &mut self.tools, user, now_ns);
            match context.text(template) {
                Ok(text) => user.registers[*variable as usize] = text.into(),
                Err(fault) => {
                    let detail = self.mask(user, fault.detail);
                    self.figures.fault(fault.cause, detail);
                }
            }
        }
    }

    /// Ends what a user does in its iteration: outstanding requests, and what is open around them.
    pub fn leave(&mut self, slot: u32, user: &mut User, interrupted: bool, now_ns: u64) {
        self.cancel(slot, user, now_ns);
        user.parallel = None;
        if interrupted {
            self.drop_frames(user, now_ns);
        } else {
            while !user.frames.is_empty() {
                self.end_frame(user, now_ns);
            }
        }
    }

    /// Forgets the outstanding requests of a user.
    pub fn cancel(&mut self, slot: u32, user: &mut User, now_ns: u64) {
        if !user.lanes.is_empty() {
            self.count_interrupted(user, now_ns);
            self.effects.push_back(Effect::Cancel { user: slot });
        }
    }

    /// How a population was stopped.
    pub fn stopped(&self, population: u32) -> Stop {
        self.shared.stopped(self.program.populations[population as usize].phase)
    }

    /// Returns a message without the values of the user's masked variables.
    pub fn mask(&self, user: &User, message: String) -> String {
        mask(&self.program, &self.shared, user, message)
    }

    /// Returns a number for an exchange.
    pub fn exchange_number(&mut self) -> u32 {
        let number = self.next_exchange;
        self.next_exchange = number.wrapping_add(1);
        number
    }
}

/// Adds a wait to the open transactions of a user.
pub fn add_wait(user: &mut User, ns: u64) {
    for frame in &mut user.frames {
        if let Frame::Transaction { waited_ns, .. } = frame {
            *waited_ns += ns;
        }
    }
}

/// Returns the evaluation's view of a user.
pub fn context<'m>(
    program: &'m Program,
    shared: &'m Shared,
    tools: &'m mut Tools,
    user: &'m mut User,
    now_ns: u64,
) -> Context<'m> {
    Context { program, shared, user, tools, now_ns }
}
