//! The sessions of one load, shared by all its connections. Owns how many are kept: a TLS 1.3 ticket serves one
//! connection only, so there have to be about as many as connections that may open at once. Refuses to outlive the load
//! or to reach a file.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::NamedGroup;

/// Fewer are never kept.
const FEWEST: usize = 8;
/// More are never kept, some KB each.
const MOST: usize = 65_536;

/// See the module. A load speaks to one server by one name, so that the name need not be looked at.
pub(super) struct Sessions {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    /// The oldest first.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    pub(super) fn new(connections: usize) -> Self {
        Self { most: connections.clamp(FEWEST, MOST), kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here can be left half done, so that another thread's panic does not matter.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sessions {
    /// Without the sessions, which are secrets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sessions").field("most", &self.most).finish_non_exhaustive()
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.kept().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.kept().session = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept().session.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.kept().session = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut kept = self.kept();
        if kept.tickets.len() >= self.most {
            kept.tickets.pop_front();
        }
        kept.tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        // The newest, for it is the least likely to have expired.
        self.kept().tickets.pop_back()
    }
}
