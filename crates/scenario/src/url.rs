//! The URLs of requests.

use std::sync::Arc;

use super::cookies::Destination;
use super::encoding::append_target;

/// The URL of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// Whether it goes over TLS.
    pub is_https: bool,
    /// The host in lower case, IPv6 without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// Path and query.
    pub target: Arc<str>,
}

impl Url {
    /// The whole URL.
    #[must_use]
    pub fn absolute(&self) -> String {
        format!("{}{}", self.origin(), self.target)
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.is_https { "https" } else { "http" }, self.authority())
    }

    /// Host and port as in the Host field.
    #[must_use]
    pub fn authority(&self) -> String {
        let bracketed = self.host.contains(':');
        let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
        if self.port == if self.is_https { 443 } else { 80 } {
            format!("{open}{}{close}", self.host)
        } else {
            format!("{open}{}{close}:{}", self.host, self.port)
        }
    }

    /// Returns a parsed URL.
    #[must_use]
    pub fn of(url: leadline_http::Url) -> Self {
        let leadline_http::Url { is_https, host, port, target } = url;
        Self { is_https, host: host.to_ascii_lowercase().into(), port, target: target.into() }
    }

    /// Resolves the reference of a Location field.
    #[must_use]
    pub fn join(&self, reference: &str) -> Option<Self> {
        let mut encoded = String::with_capacity(reference.len());
        append_target(reference, &mut encoded);
        let own = leadline_http::Url {
            is_https: self.is_https,
            host: self.host.to_string(),
            port: self.port,
            target: self.target.to_string(),
        };
        own.join(&encoded).ok().map(Self::of)
    }

    /// The destination of a request to this URL, as cookies depend on it.
    #[must_use]
    pub fn destination(&self, now_s: i64) -> Destination<'_> {
        Destination { host: &self.host, target: &self.target, is_https: self.is_https, now_s }
    }
}
