//! The common part of a responder's thread, whatever its engine: its listeners, its slot in the balancer, its
//! connections, and its clock, which excludes stalls.

use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use leadline_http::Responder;
use leadline_sys::clock::monotonic_ns;
use leadline_tls::ServerTls;

use super::balancer::{AcceptedConnection, Balancer};
use super::limits::{Limits, MODEST_BYTES};
use super::peer::Peer;
use super::table::{Connection, Table};
use crate::control_signal::ControlSignal;
use crate::flows::TURN_NS;

/// Pause between accepts when the host has no descriptors or memory left, ns.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// A listener.
pub struct Listener {
    pub socket: TcpListener,
    /// Whether its connections use TLS.
    pub over_tls: bool,
}

/// The parts of which a thread's worker is made.
pub struct WorkerContext {
    pub own: usize,
    pub listeners: Vec<Listener>,
    /// Becomes readable when another thread has passed a connection on.
    pub wake_socket: UnixStream,
    pub balancer: Arc<Balancer>,
    pub signal: Arc<ControlSignal>,
    pub responder: Responder,
    pub tls: Option<ServerTls>,
    pub limits: Limits,
}

/// One thread, with the state that its engine needs for each connection.
pub struct Worker<E> {
    pub context: WorkerContext,
    pub table: Table<E>,
    /// When paused listeners are opened again, ns.
    paused_until_ns: Option<u64>,
}

impl<E> Worker<E> {
    /// Returns a worker with at most `most` connections at once.
    pub fn new(context: WorkerContext, most: usize) -> Self {
        let table = Table::new(context.limits, most);
        Self { context, table, paused_until_ns: None }
    }

    /// Returns the time, ns; first sleeps until the end of a stall that has begun.
    #[inline]
    pub fn now_after_stall(&self) -> u64 {
        let now_ns = monotonic_ns();
        match self.context.responder.stalled_until(now_ns) {
            None => now_ns,
            Some(end_ns) => {
                self.context.signal.sleep_until(end_ns);
                monotonic_ns()
            }
        }
    }

    /// Whether every single event needs the exact time: something is due soon, or the server stalls now and then.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.table.has_timers() || self.context.responder.has_stalls()
    }

    /// Until when, ns, there is nothing to do but to wait for peers.
    pub fn wait_until_ns(&self, now_ns: u64) -> u64 {
        let at_ns = [self.context.responder.next_stall(now_ns), self.paused_until_ns];
        at_ns.into_iter().flatten().fold(self.table.next_ns().min(now_ns + TURN_NS), u64::min)
    }

    /// Pauses accepting, because the host has run out of a resource and another accept would only spin; something is
    /// closed meanwhile. Returns whether accepting was not paused before.
    pub fn pause_accepting(&mut self) -> bool {
        let is_news = self.paused_until_ns.is_none();
        if is_news {
            self.context.balancer.free_descriptor();
        }
        self.paused_until_ns.get_or_insert_with(|| monotonic_ns() + ACCEPT_PAUSE_NS);
        is_news
    }

    /// Whether a pause has just ended.
    pub fn take_accept_resumed(&mut self, now_ns: u64) -> bool {
        self.paused_until_ns.take_if(|until_ns| now_ns >= *until_ns).is_some()
    }

    /// Adds a connection of this thread; `None` if it cannot be served.
    pub fn admit(&mut self, accepted: AcceptedConnection, engine: E, now_ns: u64) -> Option<usize> {
        let peer = match (&self.context.tls, accepted.over_tls) {
            (Some(tls), true) => {
                Peer::over_tls(tls).map_err(|failure| self.context.responder.tls_failed(failure.name)).ok()
            }
            _ => Some(Peer::default()),
        };
        let address = accepted.peer;
        let connection = peer.map(|peer| Connection::new(accepted, peer, engine, now_ns));
        let index = connection.and_then(|connection| self.table.admit(connection));
        if index.is_none() {
            self.context.responder.refused();
            self.release(address, 0);
        }
        index
    }

    /// Counts the memory of a connection. Returns false if all connections together hold too much and this one more
    /// than a modest amount: it must be closed.
    #[inline]
    pub fn is_within_memory(&mut self, index: usize) -> bool {
        let Some(connection) = self.table.find(index) else { return true };
        let held_bytes = connection.peer.held_bytes();
        let before_bytes = std::mem::replace(&mut connection.held_bytes, held_bytes);
        if held_bytes == before_bytes {
            return true;
        }
        let is_modest = held_bytes <= connection.peer.least_bytes() + MODEST_BYTES;
        let is_within = self.context.balancer.update_held(before_bytes, held_bytes);
        if is_within || is_modest || held_bytes < before_bytes {
            return true;
        }
        self.context.responder.shed();
        false
    }

    /// Drops a connection, which closes it.
    pub fn close(&mut self, index: usize) {
        if let Some(connection) = self.table.remove(index) {
            self.release(connection.address, connection.held_bytes);
        }
    }

    /// Drops all connections at the end of the thread.
    pub fn close_all(&mut self) {
        for connection in self.table.drain() {
            self.context.balancer.release(self.context.own, connection.address, connection.held_bytes);
        }
    }

    /// Returns the connections that are to be closed for others: the longest idle ones of a peer. Without any, another
    /// thread is asked.
    pub fn choose_idle(&mut self, peer: IpAddr, asked: usize) -> Vec<usize> {
        let idle = self.table.longest_idle(peer);
        if idle.is_empty() {
            self.context.balancer.pass_on(self.context.own, peer, asked);
        }
        idle
    }

    fn release(&self, peer: IpAddr, held_bytes: usize) {
        self.context.balancer.release(self.context.own, peer, held_bytes);
    }
}
