//! What the loop of a thread asks of its users, whether a flow or a recording tells them what to do.

use super::figures::Figures;
use super::programs::flow::{Effect, ExchangeEnd, ExchangeFailure};
use super::samples::Samples;

/// The users of one thread: time and the ends of exchanges in, requests out. All times are of one monotonic clock, ns.
pub trait Users: Send {
    /// Begins and ends what is due; returns when to call again at the latest, or that only the end of an exchange leads
    /// on.
    fn run(&mut self, now_ns: u64) -> Option<u64>;

    /// Takes the response of an exchange.
    fn answered(&mut self, slot: u32, exchange: u32, end: &ExchangeEnd<'_>, now_ns: u64);

    /// Takes the failure of an exchange.
    fn failed(&mut self, slot: u32, exchange: u32, failure: ExchangeFailure, now_ns: u64);

    /// Returns the next effect.
    fn effect(&mut self) -> Option<Effect>;

    /// The samples of requests and transactions, if they are wanted.
    fn samples(&mut self) -> Option<&mut Samples>;

    /// Whether nothing is left to do.
    fn is_done(&self) -> bool;

    /// Stops as if a user had asked for it: nothing begins any more.
    fn stop(&mut self);

    /// Ends everything at once and counts what was outstanding.
    fn finish(&mut self, now_ns: u64);

    /// Until when the users tried, ns, if their time or a stop ended them.
    fn tried_until_ns(&self) -> Option<u64>;

    /// The figures so far.
    fn figures(&mut self) -> &mut Figures;

    /// Returns the memory of the users, bytes, and their number.
    fn memory(&self) -> (usize, usize);
}
