//! A request that is ready to be sent.

use std::ops::Range;
use std::sync::Arc;

use leadline_http::Url;

/// A request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it goes.
    pub url: Url,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// Where the header fields are in them that a redirect keeps; the others are made for each URL.
    pub kept_fields: Range<usize>,
    /// Where the credentials are, after these; empty if there are none.
    pub credentials: Range<usize>,
    /// Whether its response has no body.
    pub is_head: bool,
    /// Whether it may be sent again after its connection was closed before a response.
    pub is_idempotent: bool,
    /// Whether the connection is closed after it.
    pub closes: bool,
}
