//! The occupancy of one server: what its peers hold, behind a lock that is taken when something is opened or closed, and
//! never per request. If a door is full, the peer that holds most makes room for one that holds less: its longest idle
//! HTTP connection, or its longest idle session, those without flows first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use leadline_sys::clock::monotonic_ns;
use tracing::warn;

use super::peer_rate::PeerRate;
use super::shares::{Amounts, Excess, PeerShares, Resource, ShareLimits};
use crate::locking::lock;

/// How many HTTP connections, or sessions, may be closing whose places others have already.
const MAX_CLOSING: u64 = 64;
/// The time between two lines of the log about closing for others, ns.
const NOTICE_NS: u64 = 10_000_000_000;

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionStage {
    /// Its flows have not arrived.
    NoFlows,
    /// It waits for its start.
    Waiting,
    /// Its load runs.
    Running,
}

const STAGES: [SessionStage; 3] = [SessionStage::NoFlows, SessionStage::Waiting, SessionStage::Running];

/// What is known about a session from outside of its thread, and how to end it.
pub struct SessionActivity {
    stage: AtomicU8,
    moved_ns: AtomicU64,
    end: Box<dyn Fn() + Send + Sync>,
}

impl SessionActivity {
    /// Returns the activity of a new session; `end` ends it without waiting.
    pub fn new(now_ns: u64, end: impl Fn() + Send + Sync + 'static) -> Self {
        Self { stage: AtomicU8::new(0), moved_ns: AtomicU64::new(now_ns), end: Box::new(end) }
    }

    /// Records that the session has come to a stage.
    pub fn enter(&self, stage: SessionStage, now_ns: u64) {
        self.stage.store(stage as u8, Ordering::Relaxed);
        self.touch(now_ns);
    }

    /// Records that a message, a flow or payload came or went.
    pub fn touch(&self, now_ns: u64) {
        self.moved_ns.store(now_ns, Ordering::Relaxed);
    }

    fn stage(&self) -> SessionStage {
        STAGES[usize::from(self.stage.load(Ordering::Relaxed))]
    }
}

/// The resources in use, by all peers.
pub struct Occupancy {
    table: Mutex<Table>,
    /// Asks the HTTP threads to close the longest idle connection of a peer.
    close_http: OnceLock<Box<dyn Fn(IpAddr) + Send + Sync>>,
    /// A running session may be displaced if it has moved nothing for this long, ns.
    idle_ns: u64,
}

struct Table {
    shares: PeerShares,
    sessions: BTreeMap<u64, OpenSession>,
    next: u64,
    /// Sessions that were displaced and have not ended.
    closing: u64,
    notice: Notice,
}

struct OpenSession {
    peer: IpAddr,
    amounts: Amounts,
    activity: Arc<SessionActivity>,
}

/// The resources of one session; returned when this is dropped, or before that when the session is displaced.
pub struct SessionShare {
    occupancy: Arc<Occupancy>,
    number: u64,
    /// What this host may send to its peer; unlimited if absent.
    pub rate: Option<Arc<PeerRate>>,
}

impl std::fmt::Debug for SessionShare {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        text.debug_struct("SessionShare").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for SessionShare {
    fn drop(&mut self) {
        let mut table = lock(&self.occupancy.table);
        match table.sessions.remove(&self.number) {
            Some(OpenSession { peer, amounts, .. }) => table.shares.give_back(peer, amounts, monotonic_ns()),
            None => table.closing = table.closing.saturating_sub(1),
        }
    }
}

/// A session's place in its server.
pub struct SessionPlace {
    /// What it holds.
    pub share: SessionShare,
    /// What others see of it.
    pub activity: Arc<SessionActivity>,
}

/// The place of an HTTP connection.
pub struct HttpPlace {
    /// What this host may send to its peer; unlimited if absent.
    pub rate: Option<Arc<PeerRate>>,
    /// The peer whose longest idle connection is to be closed.
    pub displaced: Option<IpAddr>,
}

impl Occupancy {
    /// Returns a server without peers.
    pub fn new(limits: ShareLimits, idle_ns: u64) -> Self {
        let (sessions, next, closing, notice) = Default::default();
        let table = Table { shares: PeerShares::new(limits), sessions, next, closing, notice };
        Self { table: Mutex::new(table), close_http: OnceLock::new(), idle_ns }
    }

    /// Sets how HTTP connections are closed; only the first call counts.
    pub fn on_close_http(&self, close: impl Fn(IpAddr) + Send + Sync + 'static) {
        self.close_http.get_or_init(|| Box::new(close));
    }

    /// Takes the place of an HTTP connection; `None` if there is none for its peer.
    pub fn take_http(&self, peer: IpAddr) -> Option<HttpPlace> {
        let mut table = lock(&self.table);
        let displaced = match table.shares.take(peer, http_connection()) {
            Ok(()) => None,
            Err(Excess::OfPeer(..)) => return None,
            Err(Excess::OfAll(_)) => {
                let displaced = table.shares.find_displaced(peer, Resource::HttpConnections, 1)?;
                // Those that are to be closed are still counted.
                if table.shares.is_beyond(http_connection(), MAX_CLOSING) {
                    return None;
                }
                table.shares.take_beyond(peer, http_connection());
                table.tell_displaced(displaced, Resource::HttpConnections, "all places are taken");
                Some(displaced)
            }
        };
        Some(HttpPlace { rate: table.shares.rate_of(peer), displaced })
    }

    /// Gives the place of an HTTP connection back.
    pub fn leave_http(&self, peer: IpAddr) {
        lock(&self.table).shares.give_back(peer, http_connection(), monotonic_ns());
    }

    /// Takes what a session needs, and ends others for it if its peer holds less than theirs.
    pub fn take_session(
        self: &Arc<Self>,
        peer: IpAddr,
        amounts: Amounts,
        activity: Arc<SessionActivity>,
    ) -> Result<SessionShare, Excess> {
        let mut table = lock(&self.table);
        while let Err(excess) = table.shares.take(peer, amounts) {
            let Excess::OfAll(resource) = excess else { return Err(excess) };
            let missing = table.shares.missing(resource, amounts);
            let found = table.find_idle_sessions(Some((peer, amounts.of(resource))), resource, missing, self.idle_ns);
            for number in found.ok_or(excess)? {
                table.displace(number, resource, "all places are taken");
            }
        }
        let number = table.next;
        table.next += 1;
        table.sessions.insert(number, OpenSession { peer, amounts, activity });
        Ok(SessionShare { occupancy: Arc::clone(self), number, rate: table.shares.rate_of(peer) })
    }

    /// Closes something of the peer that holds the most descriptors, because the process has none left.
    pub fn free_descriptor(&self) {
        const WHY: &str = "no descriptor is left";
        let mut table = lock(&self.table);
        let http = table.shares.largest(Resource::HttpConnections);
        let sessions = table.shares.largest(Resource::SessionDescriptors);
        let has_most = |one: Option<(IpAddr, u64)>| one.map_or(0, |(_, held)| held);
        if has_most(sessions) > has_most(http) {
            let found = table.find_idle_sessions(None, Resource::SessionDescriptors, 1, self.idle_ns);
            if let Some(found) = found {
                found.into_iter().for_each(|number| table.displace(number, Resource::SessionDescriptors, WHY));
                return;
            }
        }
        if let (Some((peer, _)), Some(close)) = (http, self.close_http.get()) {
            table.tell_displaced(peer, Resource::HttpConnections, WHY);
            drop(table);
            close(peer);
        }
    }

    /// Returns how much of a resource all peers hold.
    #[cfg(test)]
    pub fn total(&self, resource: Resource) -> u64 {
        lock(&self.table).shares.total(resource)
    }
}

impl Table {
    /// Returns the sessions that end for others, so that this much of a resource is free: each time the one of the earliest
    /// stage, of the peer that holds most, the longest idle. Peers that hold no more than the one that asks keep theirs,
    /// and so does a load that moves. `None` if that is not enough; then none ends.
    fn find_idle_sessions(
        &self,
        asking: Option<(IpAddr, u64)>,
        resource: Resource,
        missing: u64,
        idle_ns: u64,
    ) -> Option<Vec<u64>> {
        let now_ns = monotonic_ns();
        let own = asking.map_or(0, |(peer, amount)| self.shares.held(peer, resource).saturating_add(amount));
        let (mut found, mut freed) = (Vec::new(), HashMap::<IpAddr, u64>::new());
        while freed.values().sum::<u64>() < missing {
            let candidates = self.sessions.iter().filter_map(|(number, session)| {
                let (stage, moved_ns) = (session.activity.stage(), session.activity.moved_ns.load(Ordering::Relaxed));
                let is_idle = stage != SessionStage::Running || now_ns.saturating_sub(moved_ns) > idle_ns;
                let freed = freed.get(&session.peer).copied().unwrap_or(0);
                let held = self.shares.held(session.peer, resource).saturating_sub(freed);
                let is_other = asking.is_none_or(|(peer, _)| peer != session.peer);
                let may_end = is_idle && is_other && held > own && !found.contains(number);
                may_end.then_some((stage, Reverse(held), moved_ns, *number))
            });
            let (.., number) = candidates.min().filter(|_| self.closing + (found.len() as u64) < MAX_CLOSING)?;
            let OpenSession { peer, amounts, .. } = self.sessions.get(&number)?;
            *freed.entry(*peer).or_default() += amounts.of(resource);
            found.push(number);
        }
        Some(found)
    }

    /// Ends a session. What it holds is free for others at once; its thread ends a moment later.
    fn displace(&mut self, number: u64, resource: Resource, why: &str) {
        let Some(OpenSession { peer, amounts, activity }) = self.sessions.remove(&number) else { return };
        self.tell_displaced(peer, resource, why);
        self.closing += 1;
        self.shares.give_back(peer, amounts, monotonic_ns());
        (activity.end)();
    }

    fn tell_displaced(&mut self, peer: IpAddr, resource: Resource, why: &str) {
        let Some(unsaid) = self.notice.take(monotonic_ns()) else { return };
        let held = self.shares.held(peer, resource);
        let what = if resource == Resource::HttpConnections { "HTTP connection" } else { "session" };
        warn!(%peer, held, ?resource, closed_since_last_line = unsaid, "{why}: the longest idle {what} of the peer that holds most is closed");
    }
}

fn http_connection() -> Amounts {
    Amounts::default().with(Resource::HttpConnections, 1).with(Resource::Descriptors, 1)
}

/// Limits the lines of the log about an event that may come thousands of times.
#[derive(Debug, Default)]
pub struct Notice {
    next_ns: u64,
    unsaid: u64,
}

impl Notice {
    /// Returns how often the event came without a line since the last one, if a line is due.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns {
            self.unsaid += 1;
            return None;
        }
        self.next_ns = now_ns.saturating_add(NOTICE_NS);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const MOST: u64 = 1024;
    const OF_PEER: u64 = 64;

    fn occupancy() -> Arc<Occupancy> {
        let per_peer = Amounts::UNLIMITED.with(Resource::Sessions, OF_PEER).with(Resource::HttpConnections, 6);
        let all = Amounts::UNLIMITED.with(Resource::Sessions, MOST).with(Resource::HttpConnections, 8);
        Arc::new(Occupancy::new(ShareLimits { per_peer, all, rate_bps: None }, 1_000_000_000))
    }

    fn peer(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    /// A session whose end is recorded.
    struct Opened {
        share: Option<SessionShare>,
        activity: Arc<SessionActivity>,
        ended: Arc<AtomicU64>,
    }

    fn open(occupancy: &Arc<Occupancy>, peer: IpAddr, stage: SessionStage, moved_ns: u64) -> Result<Opened, Excess> {
        let ended = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ended);
        let activity = Arc::new(SessionActivity::new(0, move || count.store(1, Ordering::Relaxed)));
        activity.enter(stage, moved_ns);
        let share =
            occupancy.take_session(peer, Amounts::default().with(Resource::Sessions, 1), Arc::clone(&activity))?;
        Ok(Opened { share: Some(share), activity, ended })
    }

    fn is_ended(opened: &Opened) -> bool {
        opened.ended.load(Ordering::Relaxed) == 1
    }

    #[test]
    fn full_server_ends_the_longest_idle_session_without_flows_of_the_largest_peer() {
        let occupancy = occupancy();
        let mut all: Vec<Opened> = Vec::new();
        for of_peer in 0..16 {
            for number in 0..OF_PEER {
                // The last peer's sessions have no flows; its second one is idle longest.
                let stage = if of_peer == 15 { SessionStage::NoFlows } else { SessionStage::Waiting };
                let moved_ns = if number == 1 { 1 } else { 2 + number };
                all.push(open(&occupancy, peer(of_peer), stage, moved_ns).unwrap());
            }
        }
        assert!(open(&occupancy, peer(3), SessionStage::NoFlows, 5).is_err(), "a peer at its own limit gets nothing");
        let other = open(&occupancy, peer(99), SessionStage::NoFlows, 9).unwrap();
        assert_eq!(all.iter().position(is_ended), Some(15 * 64 + 1));
        assert_eq!(occupancy.total(Resource::Sessions), MOST);
        // Its thread ends later; what it held has been given to another.
        all[15 * 64 + 1].share = None;
        assert_eq!(occupancy.total(Resource::Sessions), MOST);
        drop(other);
        assert_eq!(occupancy.total(Resource::Sessions), MOST - 1);
    }

    #[test]
    fn sessions_whose_load_moves_are_not_ended() {
        let occupancy = occupancy();
        let now_ns = monotonic_ns();
        let all: Vec<Opened> = (0..16)
            .flat_map(|of_peer| (0..OF_PEER).map(move |_| of_peer))
            .map(|of_peer| open(&occupancy, peer(of_peer), SessionStage::Running, now_ns + 600_000_000_000).unwrap())
            .collect();
        let refused = open(&occupancy, peer(99), SessionStage::NoFlows, 9);
        assert!(matches!(refused, Err(Excess::OfAll(Resource::Sessions))));
        assert!(!all.iter().any(is_ended));
        all[70].activity.touch(0);
        let _other = open(&occupancy, peer(99), SessionStage::NoFlows, 9).unwrap();
        assert_eq!(all.iter().position(is_ended), Some(70), "it has moved nothing for long");
    }

    #[test]
    fn few_sessions_close_at_once() {
        let occupancy = occupancy();
        let all: Vec<Opened> = (0..16)
            .flat_map(|of_peer| (0..OF_PEER).map(move |_| of_peer))
            .map(|of_peer| open(&occupancy, peer(of_peer), SessionStage::Waiting, 1).unwrap())
            .collect();
        let others: Vec<Opened> =
            (100..228).map_while(|last| open(&occupancy, peer(last), SessionStage::Waiting, 1).ok()).collect();
        assert_eq!(others.len() as u64, MAX_CLOSING);
        drop(all);
        assert!(open(&occupancy, peer(99), SessionStage::Waiting, 1).is_ok());
    }

    #[test]
    fn sessions_end_only_if_what_they_hold_is_enough() {
        let all = Amounts::UNLIMITED.with(Resource::SessionDescriptors, 100);
        let limits = ShareLimits { per_peer: Amounts::UNLIMITED, all, rate_bps: None };
        let occupancy = Arc::new(Occupancy::new(limits, 0));
        let take = |last, descriptors| {
            let ended = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&ended);
            let activity = Arc::new(SessionActivity::new(0, move || count.store(1, Ordering::Relaxed)));
            let amounts = Amounts::default().with(Resource::SessionDescriptors, descriptors);
            let share = occupancy.take_session(peer(last), amounts, activity).ok()?;
            Some((share, ended))
        };
        let held: Vec<_> = (0..9).map(|_| take(1, 10).unwrap()).collect();
        let count_ended = || held.iter().filter(|(_, ended)| ended.load(Ordering::Relaxed) == 1).count();
        assert!(take(2, 70).is_none(), "the first peer keeps as much as the other would have");
        assert_eq!(count_ended(), 0);
        let _other = take(2, 40).unwrap();
        assert_eq!((count_ended(), occupancy.total(Resource::SessionDescriptors)), (3, 100));
    }

    #[test]
    fn full_http_names_the_largest_peer_and_refuses_that_peer_itself() {
        let occupancy = occupancy();
        let take = |last| occupancy.take_http(peer(last)).map(|place| place.displaced);
        assert_eq!((0..6).filter_map(|_| take(1)).flatten().count(), 0);
        assert_eq!(take(1), None, "its own limit");
        assert_eq!([take(2), take(3)], [Some(None), Some(None)]);
        assert_eq!(take(4), Some(Some(peer(1))));
        assert_eq!(occupancy.total(Resource::HttpConnections), 9);
        occupancy.leave_http(peer(1));
        assert_eq!(occupancy.total(Resource::HttpConnections), 8);
    }

    #[test]
    fn lack_of_descriptors_closes_something_of_the_largest_holder() {
        let occupancy = occupancy();
        let closed = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&closed);
        occupancy.on_close_http(move |peer| lock(&note).push(peer));
        occupancy.free_descriptor();
        assert!(lock(&closed).is_empty(), "nothing is held");
        for last in [1, 2, 2, 3] {
            assert!(occupancy.take_http(peer(last)).is_some());
        }
        occupancy.free_descriptor();
        assert_eq!(*lock(&closed), [peer(2)]);
        let amounts = Amounts::default().with(Resource::SessionDescriptors, 3);
        let ended = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ended);
        let activity = SessionActivity::new(0, move || count.store(1, Ordering::Relaxed));
        let _share = occupancy.take_session(peer(4), amounts, Arc::new(activity)).unwrap();
        occupancy.free_descriptor();
        assert_eq!((ended.load(Ordering::Relaxed), lock(&closed).len()), (1, 1));
        assert_eq!(occupancy.total(Resource::SessionDescriptors), 0);
    }

    #[test]
    fn lines_of_the_log_are_rare_and_count_what_they_leave_out() {
        let mut notice = Notice::default();
        let lines: Vec<u64> = (0..1000).filter_map(|tenth| notice.take(tenth * 100_000_000)).collect();
        assert_eq!(lines, [0, 99, 99, 99, 99, 99, 99, 99, 99, 99]);
    }
}
