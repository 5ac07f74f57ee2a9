//! The register of addresses and peer ids in the fleet: which client holds which. A restarted server assigns its
//! addresses again while old tunnels have not noticed yet. This module decides which client then holds an address;
//! its lock is taken twice per tunnel.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use leadline_tunnel::client::assigned_config::AssignedConfig;

/// The register of one fleet.
#[derive(Debug, Default)]
pub struct Register {
    claims: Mutex<Claims>,
    /// The length of `Held::freed`.
    freed: AtomicUsize,
}

#[derive(Debug, Default)]
struct Claims {
    addresses: HashMap<IpAddr, Holding>,
    /// Peer ids by server: each server numbers its own clients.
    peer_ids: HashMap<(SocketAddr, u32), Holding>,
    /// Clients that have become the only holder because a dead tunnel was released; their threads have yet to read
    /// this.
    freed: Vec<u32>,
}

/// The holder of one address or peer id, and the clients that share it.
#[derive(Debug)]
struct Holding {
    client: u32,
    /// Clients to which the same was assigned later, in order, and when, ns.
    contenders: Vec<(u32, u64)>,
}

impl Register {
    /// Registers a client's assignment. Returns the name of the first conflict with another client.
    pub fn claim(&self, client: u32, assigned: &AssignedConfig, now_ns: u64) -> Option<&'static str> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing = None;
        for address in assigned.addresses() {
            if !claim_one(&mut claims.addresses, address, client, now_ns) {
                missing = Some("partial_address_not_unique");
            }
        }
        if assigned.place().is_some_and(|peer_id| !claim_one(&mut claims.peer_ids, peer_id, client, now_ns)) {
            missing = missing.or(Some("partial_peer_id_not_unique"));
        }
        missing
    }

    /// Releases the assignment of a client whose tunnel has ended; its server was last heard at `heard_ns`. If
    /// another client received the same assignment after that, the tunnel was dead by then, and the other client is
    /// the only holder.
    pub fn release(&self, client: u32, assigned: &AssignedConfig, heard_ns: Option<u64>) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let Claims { addresses, peer_ids, freed } = &mut *claims;
        for address in assigned.addresses() {
            release_one(addresses, &address, client, heard_ns, freed);
        }
        if let Some(peer_id) = assigned.place() {
            release_one(peer_ids, &peer_id, client, heard_ns, freed);
        }
        self.freed.store(freed.len(), Ordering::Release);
    }

    /// Removes and returns the clients of one of `threads` threads that have become the only holder.
    pub fn take_freed(&self, thread: u32, threads: u32) -> Vec<u32> {
        if self.freed.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, others) = claims.freed.drain(..).partition(|client| client % threads == thread);
        claims.freed = others;
        self.freed.store(claims.freed.len(), Ordering::Release);
        own
    }
}

fn claim_one<K: Eq + Hash>(all: &mut HashMap<K, Holding>, key: K, client: u32, now_ns: u64) -> bool {
    let holding = all.entry(key).or_insert_with(|| Holding { client, contenders: Vec::new() });
    let is_holder = holding.client == client;
    if !is_holder && !holding.contenders.iter().any(|(other, _)| *other == client) {
        holding.contenders.push((client, now_ns));
    }
    is_holder
}

fn release_one<K: Eq + Hash>(
    all: &mut HashMap<K, Holding>,
    key: &K,
    client: u32,
    heard_ns: Option<u64>,
    freed: &mut Vec<u32>,
) {
    let Some(holding) = all.get_mut(key) else { return };
    if holding.client != client {
        holding.contenders.retain(|(other, _)| *other != client);
        return;
    }
    // A client that came while this tunnel was alive shared the assignment; its result stays as it is.
    holding.contenders.retain(|(_, since_ns)| heard_ns.is_none_or(|heard_ns| *since_ns > heard_ns));
    if holding.contenders.is_empty() {
        all.remove(key);
        return;
    }
    let (next, _) = holding.contenders.remove(0);
    holding.client = next;
    freed.push(next);
}

#[cfg(test)]
mod tests {
    use leadline_tunnel::openvpn::message::push::Pushed;

    use super::*;
    use leadline_tunnel::client::server::{Server, Transport};
    use leadline_tunnel::openvpn::fleet;

    fn assigned_by(server: &str, transport: Transport, options: &str) -> AssignedConfig {
        let mut pushed = Pushed::default();
        pushed.absorb(options).unwrap();
        fleet::assigned(Server { address: server.parse().unwrap(), transport }, &pushed, None, None)
    }

    fn assigned(options: &str) -> AssignedConfig {
        assigned_by("192.0.2.1:1194", Transport::Udp, options)
    }

    const SAME: &str = "topology subnet,ifconfig 10.8.0.5 255.255.255.0,peer-id 1";

    #[test]
    fn address_belongs_to_its_first_holder_until_release() {
        let (register, same) = (Register::default(), assigned(SAME));
        let other = assigned("topology subnet,ifconfig 10.8.0.6 255.255.255.0,peer-id 1");
        assert_eq!(register.claim(0, &same, 10), None);
        assert_eq!(register.claim(0, &same, 11), None);
        assert_eq!(register.claim(1, &same, 12), Some("partial_address_not_unique"));
        assert_eq!(register.claim(2, &other, 13), Some("partial_peer_id_not_unique"));
        register.release(1, &same, Some(20));
        assert_eq!(register.claim(3, &same, 21), Some("partial_address_not_unique"));
        register.release(0, &same, Some(30));
        assert_eq!(register.take_freed(0, 1), [0; 0], "the server was heard while others shared the address");
        assert_eq!(register.claim(4, &same, 31), None);
    }

    #[test]
    fn dead_tunnels_address_passes_to_the_first_contender() {
        let (register, same) = (Register::default(), assigned(SAME));
        assert_eq!(register.claim(0, &same, 10), None);
        assert_eq!(register.claim(3, &same, 50), Some("partial_address_not_unique"));
        assert_eq!(register.claim(4, &same, 60), Some("partial_address_not_unique"));
        // The server was last heard before it was restarted.
        register.release(0, &same, Some(40));
        assert_eq!(register.take_freed(0, 2), [0; 0], "of another thread");
        // Once for the address and once for the number.
        assert_eq!(register.take_freed(1, 2), [3, 3]);
        assert_eq!(register.take_freed(1, 2), [0; 0], "reported once");
        assert_eq!(register.claim(3, &same, 70), None);
        assert_eq!(register.claim(4, &same, 71), Some("partial_address_not_unique"), "two clients share it now");
        register.release(3, &same, Some(80));
        assert_eq!(register.take_freed(0, 1), [0; 0], "the tunnel was alive when the other client came");
    }

    #[test]
    fn partly_freed_assignment_is_still_shared() {
        let register = Register::default();
        let [first, second] = ["10.8.0.5 255.255.255.0,peer-id 1", "10.8.0.6 255.255.255.0,peer-id 2"]
            .map(|own| assigned(&format!("topology subnet,ifconfig {own}")));
        let mixed = assigned("topology subnet,ifconfig 10.8.0.5 255.255.255.0,peer-id 2");
        assert_eq!((register.claim(0, &first, 1), register.claim(1, &second, 2)), (None, None));
        assert_eq!(register.claim(2, &mixed, 10), Some("partial_address_not_unique"));
        register.release(0, &first, Some(5));
        assert_eq!(register.take_freed(0, 1), [2]);
        assert_eq!(register.claim(2, &mixed, 11), Some("partial_peer_id_not_unique"));
        register.release(1, &second, Some(5));
        assert_eq!((register.take_freed(0, 1), register.claim(2, &mixed, 12)), (vec![2], None));
    }

    #[test]
    fn peer_ids_are_unique_per_server() {
        let register = Register::default();
        let assigned = |server, own| {
            assigned_by(server, Transport::Udp, &format!("topology subnet,ifconfig {own} 255.255.255.0,peer-id 1"))
        };
        assert_eq!(register.claim(0, &assigned("192.0.2.1:1194", "10.8.0.5"), 1), None);
        assert_eq!(register.claim(1, &assigned("192.0.2.1:443", "10.8.0.6"), 2), None);
        assert_eq!(register.claim(2, &assigned("192.0.2.2:1194", "10.8.0.7"), 3), None);
        assert_eq!(register.claim(3, &assigned("192.0.2.2:1194", "10.8.0.8"), 4), Some("partial_peer_id_not_unique"));
    }

    #[test]
    fn shared_peer_id_is_no_conflict_over_tcp() {
        let register = Register::default();
        let assigned = |transport, own| {
            let options = format!("topology subnet,ifconfig {own} 255.255.255.0,peer-id 0");
            assigned_by("192.0.2.1:1194", transport, &options)
        };
        assert_eq!(register.claim(0, &assigned(Transport::Tcp, "10.8.0.5"), 1), None);
        assert_eq!(register.claim(1, &assigned(Transport::Tcp, "10.8.0.6"), 2), None);
        assert_eq!(register.claim(2, &assigned(Transport::Tcp, "10.8.0.6"), 3), Some("partial_address_not_unique"));
        assert_eq!(register.claim(3, &assigned(Transport::Udp, "10.8.0.7"), 4), None);
        assert_eq!(register.claim(4, &assigned(Transport::Udp, "10.8.0.8"), 5), Some("partial_peer_id_not_unique"));
    }
}
