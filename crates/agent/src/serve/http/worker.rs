//! What a thread of the responder is, whatever moves its bytes: its doors, its slot in the balancer, its connections, and its
//! view of the time, in which stalls do not exist.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use leadline_http::tls::ServerTls;
use leadline_http::Responder;
use leadline_sys::clock::monotonic_ns;

use super::balancer::{AcceptedConnection, Balancer, PeerPlace};
use super::peer::Peer;
use super::table::{Connection, Table};
use super::{Limits, MODEST_BYTES};
use crate::control_signal::ControlSignal;
use crate::flows::TURN_NS;

/// Rest from accepting when the host has no descriptors or memory left, ns.
const REST_NS: u64 = 100_000_000;

/// A listener.
pub struct Door {
    pub listener: TcpListener,
    /// Whether what comes in speaks TLS.
    pub over_tls: bool,
}

/// What a thread needs to begin.
pub struct Post {
    pub own: usize,
    pub doors: Vec<Door>,
    /// Becomes readable when another thread has handed something over.
    pub bell: UnixStream,
    pub balancer: Arc<Balancer>,
    pub signal: Arc<ControlSignal>,
    pub responder: Responder,
    pub tls: Option<ServerTls>,
    pub limits: Limits,
}

/// One thread, with what its engine knows of each connection.
pub struct Worker<E> {
    pub post: Post,
    pub table: Table<E>,
    /// When doors that rest are opened again, ns.
    rest_until_ns: Option<u64>,
}

impl<E> Worker<E> {
    /// At most `most` connections at once.
    pub fn new(post: Post, most: usize) -> Self {
        let table = Table::new(post.limits, most);
        Self { post, table, rest_until_ns: None }
    }

    /// Now, ns; a stall that has begun is slept through first.
    #[inline]
    pub fn look(&self) -> u64 {
        let now_ns = monotonic_ns();
        match self.post.responder.stalled_until(now_ns) {
            None => now_ns,
            Some(end_ns) => {
                self.post.signal.sleep_until(end_ns);
                monotonic_ns()
            }
        }
    }

    /// Whether the time matters to every single event: something is due soon, or the server stalls now and then.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.table.has_timers() || self.post.responder.has_stalls()
    }

    /// Until when, ns, nothing is to be done but to wait for peers.
    pub fn until(&self, now_ns: u64) -> u64 {
        let at_ns = [self.post.responder.next_stall(now_ns), self.rest_until_ns];
        at_ns.into_iter().flatten().fold(self.table.next_ns().min(now_ns + TURN_NS), u64::min)
    }

    /// The host is short of something: accepting again at once would only spin. Says whether that is news.
    pub fn rest(&mut self) -> bool {
        let is_news = self.rest_until_ns.is_none();
        self.rest_until_ns.get_or_insert_with(|| monotonic_ns() + REST_NS);
        is_news
    }

    /// Whether a rest has just ended.
    pub fn is_rested(&mut self, now_ns: u64) -> bool {
        self.rest_until_ns.take_if(|until_ns| now_ns >= *until_ns).is_some()
    }

    /// Takes a connection in that is this thread's own; `None` where it cannot be served.
    pub fn welcome(&mut self, accepted: AcceptedConnection, engine: E, now_ns: u64) -> Option<usize> {
        let peer = match (&self.post.tls, accepted.over_tls) {
            (Some(tls), true) => {
                Peer::over_tls(tls).map_err(|failure| self.post.responder.tls_failed(failure.name)).ok()
            }
            _ => Some(Peer::default()),
        };
        let place = accepted.place;
        let connection = peer.map(|peer| Connection::new(accepted, peer, engine, now_ns));
        let index = connection.and_then(|connection| self.table.admit(connection));
        if index.is_none() {
            self.post.responder.refused();
            self.left(place, 0);
        }
        index
    }

    /// Counts what a connection holds now. False where all connections together hold too much and this one more than little: it is
    /// to be closed.
    #[inline]
    pub fn may_hold(&mut self, index: usize) -> bool {
        let Some(connection) = self.table.find(index) else { return true };
        let held_bytes = connection.peer.held_bytes();
        let before_bytes = std::mem::replace(&mut connection.held_bytes, held_bytes);
        if held_bytes == before_bytes {
            return true;
        }
        let is_modest = held_bytes <= connection.peer.least_bytes() + MODEST_BYTES;
        let is_within = self.post.balancer.hold(before_bytes, held_bytes);
        if is_within || is_modest || held_bytes < before_bytes {
            return true;
        }
        self.post.responder.shed();
        false
    }

    /// Forgets a connection, which closes it.
    pub fn dismiss(&mut self, index: usize) {
        if let Some(connection) = self.table.remove(index) {
            self.left(connection.place, connection.held_bytes);
        }
    }

    /// Forgets all connections: the thread ends.
    pub fn dismiss_all(&mut self) {
        for connection in self.table.drain() {
            self.post.balancer.left(self.post.own, connection.place, connection.held_bytes);
        }
    }

    fn left(&self, place: PeerPlace, held_bytes: usize) {
        self.post.balancer.left(self.post.own, place, held_bytes);
    }
}
