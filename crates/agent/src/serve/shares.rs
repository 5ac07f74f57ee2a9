//! What each peer holds of a server: HTTP connections, pending connections, sessions, and the flows, descriptors, memory
//! and rate of sessions. A machine: it opens no socket, reads no clock and takes no lock. Every door of the server asks
//! it: it grants, refuses, or names the peer that has to give something back. A peer is an IPv4 address, or an IPv6
//! network of 64 bits, because a host owns all addresses of such a network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::peer_rate::PeerRate;

/// Peers that hold nothing but have sent more than their rate allows by now; beyond this number they are looked through.
const MAX_INDEBTED: usize = 1024;

/// What peers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Connections without an introduction.
    Pending,
    /// HTTP connections.
    HttpConnections,
    /// Sessions, and tests of iperf3 clients.
    Sessions,
    /// Flows of sessions.
    Flows,
    /// Descriptors of sessions.
    SessionDescriptors,
    /// Descriptors of sessions and HTTP connections.
    Descriptors,
    /// Buffers of sessions, bytes.
    Bytes,
    /// The rate that sessions have asked for, bit/s.
    RateBps,
}

const RESOURCES: [Resource; 8] = [
    Resource::Pending,
    Resource::HttpConnections,
    Resource::Sessions,
    Resource::Flows,
    Resource::SessionDescriptors,
    Resource::Descriptors,
    Resource::Bytes,
    Resource::RateBps,
];

/// An amount of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts([u64; RESOURCES.len()]);

impl Amounts {
    /// Limits that allow everything.
    pub const UNLIMITED: Self = Self([u64::MAX; RESOURCES.len()]);

    /// Returns the same with another amount of one resource.
    #[must_use]
    pub fn with(mut self, resource: Resource, amount: u64) -> Self {
        self.0[resource as usize] = amount;
        self
    }

    /// Returns the amount of one resource.
    pub fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place].saturating_add(other.0[place])))
    }

    fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place].saturating_sub(other.0[place])))
    }

    /// Returns the first resource of which this is more than the limits allow.
    fn first_beyond(&self, limits: &Self) -> Option<Resource> {
        RESOURCES.into_iter().find(|resource| self.of(*resource) > limits.of(*resource))
    }
}

/// The limits of what is held at once.
#[derive(Clone, Copy, Debug)]
pub struct ShareLimits {
    /// By one peer.
    pub per_peer: Amounts,
    /// By all peers.
    pub all: Amounts,
    /// What this host may send to one peer, bit/s; unlimited if absent.
    pub rate_bps: Option<u64>,
}

/// Why something is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The peer would hold more than a peer may: how much that would be.
    OfPeer(Resource, u64),
    /// All peers together would hold too much.
    OfAll(Resource),
}

/// Returns the peer to which an address belongs.
pub fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

#[derive(Debug, Default)]
struct Holding {
    held: Amounts,
    /// What this host sends to the peer, if that is limited.
    rate: Option<Arc<PeerRate>>,
}

/// What all peers hold.
#[derive(Debug)]
pub struct PeerShares {
    limits: ShareLimits,
    all: Amounts,
    by_peer: HashMap<IpAddr, Holding>,
    /// Peers without holdings, whose rate is not forgotten yet, as far as they were counted.
    indebted: usize,
}

impl PeerShares {
    /// Returns the state in which no peer holds anything.
    pub fn new(limits: ShareLimits) -> Self {
        Self { limits, all: Amounts::default(), by_peer: HashMap::new(), indebted: 0 }
    }

    /// Grants these amounts to a peer, or says which limit they exceed: the peer's own limits come first.
    pub fn take(&mut self, peer: IpAddr, amounts: Amounts) -> Result<(), Excess> {
        let held = self.held_by(peer).plus(amounts);
        if let Some(resource) = held.first_beyond(&self.limits.per_peer) {
            return Err(Excess::OfPeer(resource, held.of(resource)));
        }
        match self.all.plus(amounts).first_beyond(&self.limits.all) {
            Some(resource) => Err(Excess::OfAll(resource)),
            None => {
                self.take_beyond(peer, amounts);
                Ok(())
            }
        }
    }

    /// Grants these amounts whatever the limits are: another peer is about to give as much back.
    pub fn take_beyond(&mut self, peer: IpAddr, amounts: Amounts) {
        let rate_bps = self.limits.rate_bps;
        let holding = self.by_peer.entry(peer).or_insert_with(|| Holding {
            held: Amounts::default(),
            rate: rate_bps.map(|rate_bps| Arc::new(PeerRate::new(rate_bps))),
        });
        holding.held = holding.held.plus(amounts);
        self.all = self.all.plus(amounts);
        if let Some(rate) = &holding.rate {
            rate.reserve(holding.held.of(Resource::RateBps));
        }
    }

    /// Takes amounts back. A peer that holds nothing is forgotten, unless it was sent more than its rate allows by now.
    pub fn give_back(&mut self, peer: IpAddr, amounts: Amounts, now_ns: u64) {
        self.all = self.all.minus(amounts);
        let Some(holding) = self.by_peer.get_mut(&peer) else { return };
        holding.held = holding.held.minus(amounts);
        if let Some(rate) = &holding.rate {
            rate.reserve(holding.held.of(Resource::RateBps));
        }
        if holding.is_forgettable(now_ns) {
            self.by_peer.remove(&peer);
        } else if holding.held == Amounts::default() {
            self.indebted += 1;
            self.forget_settled(now_ns);
        }
    }

    /// Returns what this host may send to a peer that holds something; `None` if that is unlimited.
    pub fn rate_of(&self, peer: IpAddr) -> Option<Arc<PeerRate>> {
        self.by_peer.get(&peer).and_then(|holding| holding.rate.clone())
    }

    /// Returns how much of a resource a peer holds.
    pub fn held(&self, peer: IpAddr, resource: Resource) -> u64 {
        self.held_by(peer).of(resource)
    }

    /// Whether all peers together hold more than their limit and this margin, once these amounts are granted.
    pub fn is_beyond(&self, amounts: Amounts, margin: u64) -> bool {
        let limits = self.limits.all.plus(Amounts([margin; RESOURCES.len()]));
        self.all.plus(amounts).first_beyond(&limits).is_some()
    }

    /// Returns how much of a resource has to be given back before these amounts can be granted.
    pub fn missing(&self, resource: Resource, amounts: Amounts) -> u64 {
        self.all.plus(amounts).of(resource).saturating_sub(self.limits.all.of(resource))
    }

    /// Returns how much of a resource all peers hold.
    #[cfg(test)]
    pub fn total(&self, resource: Resource) -> u64 {
        self.all.of(resource)
    }

    /// Returns the peer that holds most of a resource, and how much that is; `None` if none holds any.
    pub fn largest(&self, resource: Resource) -> Option<(IpAddr, u64)> {
        let holders = self.by_peer.iter().map(|(peer, holding)| (*peer, holding.held.of(resource)));
        holders.max_by_key(|(_, held)| *held).filter(|(_, held)| *held > 0)
    }

    /// Returns the peer that has to make room for another: the one that holds most, if it still holds more than the
    /// other does then.
    pub fn find_displaced(&self, asking: IpAddr, resource: Resource, amount: u64) -> Option<IpAddr> {
        let own = self.held(asking, resource).saturating_add(amount);
        self.largest(resource).filter(|(peer, held)| *peer != asking && *held > own).map(|(peer, _)| peer)
    }

    fn held_by(&self, peer: IpAddr) -> Amounts {
        self.by_peer.get(&peer).map_or(Amounts::default(), |holding| holding.held)
    }

    /// Bounds the memory for peers that hold nothing: a host with many addresses gains no rate by being forgotten, as
    /// each of them has its own.
    fn forget_settled(&mut self, now_ns: u64) {
        if self.indebted > MAX_INDEBTED {
            self.by_peer.retain(|_, holding| !holding.is_forgettable(now_ns));
            self.indebted = self.by_peer.values().filter(|holding| holding.held == Amounts::default()).count();
            if self.indebted > MAX_INDEBTED / 2 {
                self.by_peer.retain(|_, holding| holding.held != Amounts::default());
                self.indebted = 0;
            }
        }
    }
}

impl Holding {
    fn is_forgettable(&self, now_ns: u64) -> bool {
        self.held == Amounts::default() && self.rate.as_ref().is_none_or(|rate| rate.is_settled(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));

    fn connections(count: u64) -> Amounts {
        Amounts::default().with(Resource::HttpConnections, count)
    }

    fn limits(per_peer: u64, all: u64) -> ShareLimits {
        let only = |count| Amounts::UNLIMITED.with(Resource::HttpConnections, count);
        ShareLimits { per_peer: only(per_peer), all: only(all), rate_bps: None }
    }

    #[test]
    fn peer_at_its_limit_is_refused_and_the_rest_remains_for_others() {
        let mut shares = PeerShares::new(limits(3, 4));
        let granted = (0..10).filter(|_| shares.take(ONE, connections(1)).is_ok()).count();
        assert_eq!(granted, 3);
        assert_eq!(shares.take(ONE, connections(1)), Err(Excess::OfPeer(Resource::HttpConnections, 4)));
        assert_eq!(shares.take(OTHER, connections(1)), Ok(()));
        assert_eq!(shares.take(OTHER, connections(1)), Err(Excess::OfAll(Resource::HttpConnections)));
        shares.give_back(ONE, connections(1), 0);
        assert_eq!(shares.take(OTHER, connections(1)), Ok(()));
    }

    #[test]
    fn largest_holder_makes_room_for_a_peer_that_has_less() {
        let mut shares = PeerShares::new(limits(8, 8));
        shares.take(ONE, connections(5)).unwrap();
        shares.take(OTHER, connections(3)).unwrap();
        assert_eq!(shares.find_displaced(THIRD, Resource::HttpConnections, 1), Some(ONE));
        assert_eq!(shares.find_displaced(OTHER, Resource::HttpConnections, 1), Some(ONE));
        assert_eq!(shares.find_displaced(OTHER, Resource::HttpConnections, 2), None, "both would have 5");
        assert_eq!(shares.find_displaced(ONE, Resource::HttpConnections, 1), None, "it has most itself");
        shares.take_beyond(THIRD, connections(1));
        assert_eq!(shares.total(Resource::HttpConnections), 9);
        shares.give_back(ONE, connections(1), 0);
        assert_eq!(shares.largest(Resource::HttpConnections), Some((ONE, 4)));
    }

    #[test]
    fn peers_take_turns_until_all_have_the_same() {
        let mut shares = PeerShares::new(limits(64, 128));
        let peers: Vec<IpAddr> = (0..=2).map(|last| IpAddr::V4(Ipv4Addr::new(198, 51, 100, last))).collect();
        for peer in &peers[..2] {
            shares.take(*peer, connections(64)).unwrap();
        }
        let mut entered = 0;
        while let Some(displaced) = shares.find_displaced(peers[2], Resource::HttpConnections, 1) {
            shares.give_back(displaced, connections(1), 0);
            shares.take(peers[2], connections(1)).unwrap();
            entered += 1;
        }
        let held: Vec<u64> = peers.iter().map(|peer| shares.held(*peer, Resource::HttpConnections)).collect();
        assert_eq!((entered, held), (42, vec![43, 43, 42]));
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let same = ["2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"].map(|text| peer_of(text.parse().unwrap()));
        assert_eq!(same[0], same[1]);
        assert_ne!(same[0], peer_of("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(peer_of("::ffff:192.0.2.1".parse().unwrap()), ONE);
        let mut shares = PeerShares::new(limits(2, 100));
        let granted = (0..10u128).filter(|host| {
            let address = Ipv6Addr::from_bits((0x2001_0db8 << 96) + host);
            shares.take(peer_of(IpAddr::V6(address)), connections(1)).is_ok()
        });
        assert_eq!(granted.count(), 2);
    }

    #[test]
    fn peer_that_was_sent_too_much_is_remembered_until_its_rate_allows_it() {
        let mut shares = PeerShares::new(ShareLimits { rate_bps: Some(8_000_000), ..limits(9, 9) });
        let now = 1_000_000_000;
        shares.take(ONE, connections(1)).unwrap();
        let rate = shares.rate_of(ONE).unwrap();
        while rate.book(now, usize::MAX).at_ns <= now {}
        shares.give_back(ONE, connections(1), now);
        shares.take(ONE, connections(1)).unwrap();
        assert!(Arc::ptr_eq(&rate, &shares.rate_of(ONE).unwrap()), "a new connection has no new rate");
        shares.give_back(ONE, connections(1), now + 10_000_000_000);
        assert!(shares.by_peer.is_empty());
    }

    #[test]
    fn peers_that_left_in_debt_do_not_pile_up() {
        let mut shares = PeerShares::new(ShareLimits { rate_bps: Some(1000), ..limits(9, 9) });
        for number in 0..100_000 {
            let peer = IpAddr::V4(Ipv4Addr::from_bits(number));
            shares.take(peer, connections(1)).unwrap();
            shares.rate_of(peer).unwrap().book(1, usize::MAX);
            shares.give_back(peer, connections(1), 1);
        }
        assert!(shares.by_peer.len() <= MAX_INDEBTED + 1, "{}", shares.by_peer.len());
    }

    #[test]
    fn reserved_rate_is_held_against_the_peer() {
        let bps = |rate| Amounts::default().with(Resource::RateBps, rate);
        let per_peer = Amounts::UNLIMITED.with(Resource::RateBps, 1000);
        let mut shares = PeerShares::new(ShareLimits { per_peer, rate_bps: Some(1000), ..limits(9, 9) });
        assert_eq!(shares.take(ONE, bps(600)), Ok(()));
        assert_eq!(shares.take(ONE, bps(500)), Err(Excess::OfPeer(Resource::RateBps, 1100)));
        assert_eq!(shares.take(OTHER, bps(1000)), Ok(()));
        assert_eq!(shares.rate_of(ONE).unwrap().left_bps(), 400);
        shares.take(ONE, connections(1)).unwrap();
        shares.give_back(ONE, bps(600), 0);
        assert_eq!(shares.rate_of(ONE).unwrap().left_bps(), 1000);
    }
}
