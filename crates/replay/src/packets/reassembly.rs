//! Connections out of frames, one frame after another: a file's or a live capture's. Memory is bounded: by a limit per
//! connection and one for all, at which those that were quiet longest are given up. Time is that of the frames.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use leadline_packet::capture::{find_segment, Found, LinkType, Segment};

use super::connection::Connection;
use super::counts::{Out, PacketCounts};
use super::exchange::Exchange;
use crate::recorded::{Cause, Causes, Recorded};
use crate::session::number_session;

/// Time between two looks for connections that are idle.
const SWEEP_NS: u64 = 1_000_000_000;
/// How long a connection that is over is remembered, so that late copies of its segments do not begin another one.
const LINGER_NS: u64 = 2 * SWEEP_NS;
/// What such a memory costs.
const CLOSED_BYTES: usize = 192;

/// What is read of packets, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReassemblyOptions {
    /// Ports of which one has to be an end of a connection; empty for all.
    pub ports: Vec<u16>,
    /// Whether bodies of answers are kept; their sizes are known in any case.
    pub keeps_answer_bodies: bool,
    /// The longest body that is kept, and what may wait for answers on one connection, bytes.
    pub message_bytes: usize,
    /// What all connections may hold, bytes.
    pub total_bytes: usize,
    /// A connection without a frame for this long is over.
    pub idle_ns: u64,
    /// A request without an answer for this long is given without it.
    pub answer_wait_ns: u64,
}

impl Default for ReassemblyOptions {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            keeps_answer_bodies: true,
            message_bytes: 16 << 20,
            total_bytes: 96 << 20,
            idle_ns: 300_000_000_000,
            answer_wait_ns: 60_000_000_000,
        }
    }
}

/// Puts connections together.
#[derive(Debug)]
pub struct Reassembly {
    options: ReassemblyOptions,
    numbers: HashMap<Ends, u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    held_bytes: usize,
    now_ns: u64,
    swept_ns: u64,
    out: Out,
}

/// The two ends of a connection, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ends([(IpAddr, u16); 2]);

#[derive(Debug)]
struct Slot {
    ends: Ends,
    last_ns: u64,
    held_bytes: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(Box<Connection>),
    /// Read to its end.
    Closed,
    /// Its bytes are not read any further.
    Ignored,
}

impl Reassembly {
    /// Creates one without connections.
    #[must_use]
    pub fn new(options: ReassemblyOptions) -> Self {
        Self {
            options,
            numbers: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            held_bytes: 0,
            now_ns: 0,
            swept_ns: 0,
            out: Out::default(),
        }
    }

    /// Takes a frame that had `original_bytes` on the wire.
    pub fn frame(&mut self, at_ns: u64, link: LinkType, bytes: &[u8], original_bytes: u32) {
        self.out.counts.frames += 1;
        self.out.counts.cut_frames += u64::from((bytes.len() as u64) < u64::from(original_bytes));
        self.advance(at_ns);
        match find_segment(link, bytes, original_bytes) {
            Found::Segment(segment) if self.is_wanted(&segment) => self.segment(at_ns, &segment),
            Found::Segment(_) | Found::Other => self.out.counts.other_frames += 1,
            Found::Fragment => self.out.counts.fragments += 1,
            Found::Headless => self.out.counts.headless += 1,
        }
    }

    /// Says that time has passed: ends what is idle and gives what has waited long enough. Frames do so by themselves.
    pub fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.now_ns - self.swept_ns < SWEEP_NS {
            return;
        }
        self.swept_ns = self.now_ns;
        let until_ns = self.now_ns.saturating_sub(self.options.answer_wait_ns);
        for number in 0..self.slots.len() {
            let Some(slot) = &mut self.slots[number] else { continue };
            let patience_ns = if matches!(slot.state, State::Closed) { LINGER_NS } else { self.options.idle_ns };
            if self.now_ns.saturating_sub(slot.last_ns) > patience_ns {
                self.remove(number as u32, Cause::Unfinished);
            } else if let State::Open(connection) = &mut slot.state {
                connection.give_up_waiting(until_ns, &mut self.out);
                self.account(number as u32);
            }
        }
    }

    /// Ends all connections, as the end of a capture does.
    pub fn finish(&mut self) {
        for number in 0..self.slots.len() {
            self.remove(number as u32, Cause::Unfinished);
        }
    }

    /// Returns the next request that is complete, with its answer if that is known.
    #[expect(clippy::should_implement_trait, reason = "more may come after None")]
    pub fn next(&mut self) -> Option<Recorded> {
        self.out.ready.pop_front()
    }

    /// What gave no request so far.
    pub fn causes(&self) -> &Causes {
        &self.out.causes
    }

    /// What was seen so far.
    pub fn counts(&self) -> &PacketCounts {
        &self.out.counts
    }

    /// Memory that connections hold, bytes.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Counts one that the capture itself, not a connection, is the cause of.
    pub fn count_cause(&mut self, cause: Cause) {
        self.out.causes.add(cause);
    }

    fn is_wanted(&self, segment: &Segment<'_>) -> bool {
        let ends = [segment.source, segment.destination];
        let is_asked = |end: &SocketAddr| self.options.ports.contains(&end.port());
        ends[0] != ends[1] && (self.options.ports.is_empty() || ends.iter().any(is_asked))
    }

    fn segment(&mut self, at_ns: u64, segment: &Segment<'_>) {
        let (ends, from) = Ends::of(segment);
        let mut number = self.numbers.get(&ends).copied();
        if let Some(old) = number.filter(|number| self.is_superseded(*number, from, segment)) {
            self.remove(old, Cause::Unfinished);
            number = None;
        }
        let begins = (segment.is_syn() && !segment.is_rst()) || !segment.payload.is_empty();
        let Some(number) = number.or_else(|| begins.then(|| self.add(ends, from, segment, at_ns))) else { return };
        let Some(slot) = &mut self.slots[number as usize] else { return };
        if !matches!(slot.state, State::Closed) {
            slot.last_ns = slot.last_ns.max(at_ns);
        }
        let State::Open(connection) = &mut slot.state else { return };
        connection.take(from, segment, at_ns, &mut self.out);
        if segment.is_rst() {
            connection.close(Cause::Unfinished, &mut self.out);
        }
        if connection.is_over() {
            let is_ended = connection.has_ended() || segment.is_rst();
            connection.close(Cause::Unfinished, &mut self.out);
            slot.state = if is_ended { State::Closed } else { State::Ignored };
        }
        self.account(number);
        if self.held_bytes > self.options.total_bytes {
            self.give_up_quiet();
        }
    }

    fn is_superseded(&self, number: u32, from: usize, segment: &Segment<'_>) -> bool {
        self.slots[number as usize].as_ref().is_none_or(|slot| match &slot.state {
            State::Open(connection) => connection.is_superseded(from, segment),
            State::Closed | State::Ignored => segment.is_syn() && segment.acknowledged.is_none(),
        })
    }

    fn add(&mut self, ends: Ends, from: usize, segment: &Segment<'_>, at_ns: u64) -> u32 {
        self.out.counts.connections += 1;
        let options = &self.options;
        let exchange =
            Exchange::new(ends.session(at_ns), segment.is_syn(), options.message_bytes, options.keeps_answer_bodies);
        let connection = Box::new(Connection::new(exchange, from, segment));
        let slot = Slot { ends, last_ns: at_ns, held_bytes: 0, state: State::Open(connection) };
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[number as usize] = Some(slot);
        self.numbers.insert(ends, number);
        number
    }

    fn remove(&mut self, number: u32, cause: Cause) {
        let Some(slot) = self.slots[number as usize].take() else { return };
        if let State::Open(mut connection) = slot.state {
            connection.close(cause, &mut self.out);
        }
        self.held_bytes -= slot.held_bytes;
        self.numbers.remove(&slot.ends);
        self.free.push(number);
    }

    fn account(&mut self, number: u32) {
        let Some(slot) = &mut self.slots[number as usize] else { return };
        let held_bytes = match &slot.state {
            State::Open(connection) => connection.held_bytes(),
            State::Closed | State::Ignored => CLOSED_BYTES,
        };
        self.held_bytes = self.held_bytes - slot.held_bytes + held_bytes;
        slot.held_bytes = held_bytes;
    }

    /// Gives up the connections that were quiet longest, until an eighth is free again.
    fn give_up_quiet(&mut self) {
        let slots = self.slots.iter().zip(0u32..);
        let mut quiet: Vec<(u64, u32)> =
            slots.filter_map(|(slot, number)| Some((slot.as_ref()?.last_ns, number))).collect();
        quiet.sort_unstable();
        let wanted = self.options.total_bytes / 8 * 7;
        for (_, number) in quiet {
            if self.held_bytes <= wanted {
                return;
            }
            let is_open = matches!(&self.slots[number as usize], Some(Slot { state: State::Open(_), .. }));
            self.out.counts.given_up += u64::from(is_open);
            self.remove(number, Cause::TooLarge);
        }
    }
}

impl Ends {
    /// Returns the ends of a segment's connection, and which of them sent it.
    fn of(segment: &Segment<'_>) -> (Self, usize) {
        let [source, destination] = [segment.source, segment.destination].map(|end| (end.ip(), end.port()));
        if source <= destination {
            (Self([source, destination]), 0)
        } else {
            (Self([destination, source]), 1)
        }
    }

    fn session(&self, at_ns: u64) -> u64 {
        let text = |(address, port): (IpAddr, u16)| format!("{address} {port}");
        let [low, high] = self.0.map(text);
        number_session(&[low.as_bytes(), high.as_bytes(), &at_ns.to_be_bytes()])
    }
}
