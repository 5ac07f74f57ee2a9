//! One connection of a user: where it leads, its stage, and the exchange that it carries. Owns what is kept of a response,
//! and how much of it.

use std::sync::Arc;

use leadline_http::client::{Failure, Session};
use leadline_http::{Sink, Url};

use crate::programs::flow::Send;
use crate::samples::Opening;

/// The largest body that is kept, bytes.
const BODY_LIMIT_BYTES: usize = 16 << 20;

/// Where a connection leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Whether it uses TLS.
    pub is_https: bool,
    /// The host.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

impl Origin {
    /// Returns where a request goes.
    #[must_use]
    pub fn of(url: &Url) -> Self {
        Self { is_https: url.is_https, host: Arc::clone(&url.host), port: url.port }
    }
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The name is being resolved.
    Resolving,
    /// The TCP handshake.
    Connecting,
    /// A handshake after TCP.
    Handshaking,
    /// It carries no request.
    Idle,
    /// It carries a request.
    Busy,
}

/// A connection.
pub(super) struct Connection {
    /// The user.
    pub user: u32,
    /// Where it leads.
    pub origin: Origin,
    /// Its stage.
    pub stage: Stage,
    /// Since when, ns.
    pub since_ns: u64,
    /// When its stage times out, ns.
    pub deadline_ns: u64,
    /// The HTTP session.
    pub session: Session,
    /// The request that it carries or will carry.
    pub send: Option<Box<Send>>,
    /// What is kept of the response.
    pub kept: Kept,
    /// Bytes received of this response.
    pub received_bytes: u64,
    /// Bytes sent of this request.
    pub sent_bytes: u64,
    /// When the request was handed to the kernel, ns.
    pub sent_ns: Option<u64>,
    /// What opening it took, until its first exchange has ended.
    pub opening: Option<Opening>,
    /// Responses that it has carried.
    pub served: u64,
    /// Why sending failed.
    pub broken: Option<Failure>,
}

impl Connection {
    /// Returns a connection that is being opened for a request.
    pub fn new(slot: u32, send: Box<Send>, now_ns: u64, deadline_ns: u64) -> Self {
        Self {
            user: send.user,
            origin: Origin::of(&send.outgoing.url),
            stage: Stage::Resolving,
            since_ns: now_ns,
            deadline_ns,
            session: Session::new(slot as usize),
            send: Some(send),
            kept: Kept::default(),
            received_bytes: 0,
            sent_bytes: 0,
            sent_ns: None,
            opening: None,
            served: 0,
            broken: None,
        }
    }
}

/// What is kept of a response.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Header fields as lines `Name: value`.
    pub head: String,
    /// The reason phrase.
    pub reason: String,
    /// The body.
    pub body: Vec<u8>,
    /// Whether header fields are kept.
    pub keeps_head: bool,
    /// Whether the body is kept.
    pub keeps_body: bool,
}

impl Kept {
    /// Begins with a response.
    pub fn begin(&mut self, keeps_head: bool, keeps_body: bool) {
        (self.keeps_head, self.keeps_body) = (keeps_head, keeps_body);
        self.head.clear();
        self.body.clear();
    }

    /// Frees large buffers.
    pub fn end(&mut self) {
        const KEPT_BYTES: usize = 8 << 10;
        self.head.clear();
        self.body.clear();
        self.head.shrink_to(KEPT_BYTES);
        self.body.shrink_to(KEPT_BYTES);
    }
}

impl Sink for Kept {
    fn status(&mut self, _status: u16) {
        self.head.clear();
        self.body.clear();
    }

    fn reason(&mut self, reason: &[u8]) {
        self.reason.clear();
        if self.keeps_head {
            self.reason.push_str(String::from_utf8_lossy(reason).trim());
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        if !self.keeps_head {
            return;
        }
        if name.is_empty() {
            // It continues the field before.
            self.head.pop();
        } else {
            self.head.push_str(&String::from_utf8_lossy(name));
            self.head.push_str(": ");
        }
        self.head.push_str(&String::from_utf8_lossy(value));
        self.head.push('\n');
    }

    fn body(&mut self, bytes: &[u8]) {
        if self.keeps_body {
            let room = BODY_LIMIT_BYTES.saturating_sub(self.body.len());
            self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}
