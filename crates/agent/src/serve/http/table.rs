//! The connections of a thread, with timers for delayed responses and for silent peers. Owns what is common to both
//! engines; refuses connections beyond its capacity.

use std::collections::BTreeSet;
use std::net::{IpAddr, TcpStream};

use super::balancer::AcceptedConnection;
use super::limits::{Limits, LINGER_BYTES};
use super::pacing::Pacing;
use super::peer::Peer;

/// How often silent connections are checked within the time limit of silence.
const SWEEPS: u64 = 4;
/// One in this many connections of a peer is closed at once for others, so that a flood of new ones costs little.
const CLOSED_PART: usize = 64;

/// One connection, with the state that its engine needs.
pub struct Connection<E> {
    pub socket: TcpStream,
    pub peer: Peer,
    pub engine: E,
    /// When it last sent or received, ns.
    pub seen_ns: u64,
    /// When its timer expires, ns.
    due_ns: Option<u64>,
    /// After the last response: how much more input is read and discarded, bytes.
    pub linger_bytes: Option<usize>,
    /// The address, or network, that holds its place.
    pub address: IpAddr,
    /// When it may send, if its peer's rate is limited.
    pub pacing: Pacing,
    /// The memory that was last counted for it, bytes.
    pub held_bytes: usize,
}

impl<E> Connection<E> {
    pub fn new(accepted: AcceptedConnection, peer: Peer, engine: E, now_ns: u64) -> Self {
        let AcceptedConnection { socket, peer: address, rate, .. } = accepted;
        let (due_ns, linger_bytes, held_bytes) = Default::default();
        let pacing = Pacing::new(rate);
        Self { socket, peer, engine, seen_ns: now_ns, due_ns, linger_bytes, address, pacing, held_bytes }
    }

    /// Whether its peer waits for output that it has not read yet, or for a response that is not due yet.
    fn is_owed(&self) -> bool {
        self.peer.has_output() || self.due_ns.is_some()
    }

    /// From now on waits only for the peer's end: closing with unread input would reset the response.
    pub fn begin_linger(&mut self) {
        self.linger_bytes = Some(LINGER_BYTES);
    }

    /// Discards input; returns whether the connection stays open.
    pub fn linger(&mut self, bytes: usize) -> bool {
        self.linger_bytes = self.linger_bytes.and_then(|left| left.checked_sub(bytes));
        self.linger_bytes.is_some()
    }
}

/// The connections of one thread.
pub struct Table<E> {
    entries: Vec<Option<Connection<E>>>,
    free: Vec<usize>,
    most: usize,
    timers: BTreeSet<(u64, usize)>,
    limits: Limits,
    /// When idle connections are looked for next, ns; at the beginning at once.
    next_sweep_ns: u64,
}

impl<E> Table<E> {
    pub fn new(limits: Limits, most: usize) -> Self {
        let (entries, free, timers) = Default::default();
        Self { entries, free, most, timers, limits, next_sweep_ns: 0 }
    }

    /// Adds a connection; drops it, which closes it, if there is no room.
    pub fn admit(&mut self, connection: Connection<E>) -> Option<usize> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < self.most => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => return None,
        };
        self.entries[index] = Some(connection);
        Some(index)
    }

    #[inline]
    pub fn find(&mut self, index: usize) -> Option<&mut Connection<E>> {
        self.entries.get_mut(index)?.as_mut()
    }

    /// Removes a connection.
    pub fn remove(&mut self, index: usize) -> Option<Connection<E>> {
        let connection = self.entries[index].take()?;
        if let Some(due_ns) = connection.due_ns {
            self.timers.remove(&(due_ns, index));
        }
        self.free.push(index);
        Some(connection)
    }

    /// Removes all connections.
    pub fn drain(&mut self) -> impl Iterator<Item = Connection<E>> + use<'_, E> {
        self.timers.clear();
        self.free.clear();
        self.entries.drain(..).flatten()
    }

    /// Sets a connection's timer to its next response, or to its next turn to send.
    #[inline]
    pub fn set_timer(&mut self, index: usize) {
        let Some(connection) = self.entries[index].as_mut() else { return };
        let due_ns = connection.peer.wake_at().or(connection.pacing.waits_until_ns());
        if due_ns != connection.due_ns {
            if let Some(before_ns) = std::mem::replace(&mut connection.due_ns, due_ns) {
                self.timers.remove(&(before_ns, index));
            }
            if let Some(due_ns) = due_ns {
                self.timers.insert((due_ns, index));
            }
        }
    }

    /// Whether any response waits for its time.
    #[inline]
    pub fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Returns a connection whose timer has expired by `now_ns`.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<usize> {
        let &(due_ns, index) = self.timers.first().filter(|(due_ns, _)| *due_ns <= now_ns)?;
        self.timers.remove(&(due_ns, index));
        if let Some(connection) = self.find(index) {
            connection.due_ns = None;
        }
        Some(index)
    }

    /// When the next timer or check is due, ns.
    pub fn next_ns(&self) -> u64 {
        self.timers.first().map_or(self.next_sweep_ns, |(due_ns, _)| self.next_sweep_ns.min(*due_ns))
    }

    /// Returns connections that have been silent for too long by `now_ns`; checks only at intervals.
    pub fn overdue(&mut self, now_ns: u64) -> Vec<usize> {
        if now_ns < self.next_sweep_ns {
            return Vec::new();
        }
        self.next_sweep_ns = now_ns + self.limits.idle_ns / SWEEPS;
        let is_overdue = |connection: &Connection<E>| {
            let allowed_ns = if connection.is_owed() { self.limits.stalled_ns } else { self.limits.idle_ns };
            let since_ns = connection.due_ns.unwrap_or(0).max(connection.seen_ns);
            now_ns.saturating_sub(since_ns) > allowed_ns
        };
        let entries = self.entries.iter().enumerate();
        entries.filter(|(_, entry)| entry.as_ref().is_some_and(is_overdue)).map(|(index, _)| index).collect()
    }

    /// Returns the connections of a peer that have moved nothing for longest: those that wait for no response first.
    pub fn longest_idle(&self, peer: IpAddr) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        let own = entries.filter_map(|(index, entry)| entry.as_ref().map(|entry| (index, entry)));
        let own = own.filter(|(_, connection)| connection.address == peer);
        let mut idle: Vec<(bool, u64, usize)> =
            own.map(|(index, connection)| (connection.is_owed(), connection.seen_ns, index)).collect();
        let count = idle.len().div_ceil(CLOSED_PART);
        if count < idle.len() {
            idle.select_nth_unstable(count);
            idle.truncate(count);
        }
        idle.into_iter().map(|(.., index)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::serve::http::limits::LIMITS;

    #[test]
    fn longest_idle_connection_of_the_peer_is_chosen() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut table: Table<()> = Table::new(LIMITS, 1000);
        let peers = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        for number in 0..200 {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = peers[usize::from(number % 2 == 0)];
            let accepted = AcceptedConnection { peer, ..AcceptedConnection::new(socket, false) };
            // Later ones have been silent for longer.
            table.admit(Connection::new(accepted, Peer::default(), (), 1000 - number));
            drop(listener.accept().unwrap());
        }
        let mut chosen = table.longest_idle(peers[0]);
        chosen.sort_unstable();
        assert_eq!(chosen, [197, 199], "two of a hundred");
        assert!(table.longest_idle(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).is_empty());
        (0..198).for_each(|index| drop(table.remove(index)));
        assert_eq!(table.longest_idle(peers[0]), [199]);
    }
}
