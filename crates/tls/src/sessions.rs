//! The sessions of one load with one server, which all its connections share. Owns how many are stored: a TLS 1.3 ticket
//! serves one connection only, so there must be about as many as connections that may open at once. Sessions neither
//! outlive the load nor reach a file.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::NamedGroup;

/// The minimum number of stored sessions.
const FEWEST: usize = 8;
/// The maximum number of stored sessions, some KB each.
const MOST: usize = 65_536;

/// The sessions of a load with one server. It has one name, so that the name need not be compared.
pub(super) struct Sessions {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    /// Tickets, the oldest first.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    pub(super) fn new(connections: usize) -> Self {
        Self { most: connections.clamp(FEWEST, MOST), kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // The content is always consistent, so that a panic of another thread does not matter.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sessions {
    /// Omits the sessions, which are secrets.
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
        // The newest ticket is the least likely to have expired.
        self.kept().tickets.pop_back()
    }
}
