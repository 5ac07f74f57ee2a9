//! What all connections of a load have in common. Owns how a request is made from its URL, method, fields and body; every
//! value here has been checked by whoever fills it in.

use std::sync::Arc;

use crate::{RequestSet, RequestTemplate, TemplateError, Url};
use leadline_tls::ClientTls;

/// The load's requests, limits and way of connecting.
#[derive(Clone)]
pub struct Settings {
    /// The requests.
    pub requests: RequestSet,
    /// The bytes of all of them.
    pub payload: Arc<[u8]>,
    /// What each was made from, for redirects and for messages.
    pub sources: Vec<RequestSource>,
    /// The server as messages name it.
    pub server: String,
    /// The CONNECT request for the proxy, where the way to the server leads through one.
    pub proxy_request: Option<Vec<u8>>,
    /// TLS, where the server speaks it.
    pub tls: Option<ClientTls>,
    /// How long each step of opening a connection may take, ns.
    pub connect_timeout_ns: u64,
    /// How long a request may take, ns.
    pub response_timeout_ns: u64,
    /// Requests after which a connection is closed; unlimited where absent.
    pub requests_per_connection: Option<u64>,
    /// Redirects that are followed for one request.
    pub redirects: u32,
    /// Whether requests are due at a rate. Connections are opened as they are needed then, else all at once.
    pub is_open_loop: bool,
}

/// A request as it was asked for, or as a redirect asks for it.
#[derive(Clone, Debug)]
pub struct RequestSource {
    /// Where it goes.
    pub url: Url,
    /// Its method.
    pub method: String,
    /// Its header fields, those that the whole load adds included.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Option<Arc<[u8]>>,
    /// Whether its target is absolute, as a proxy wants it.
    pub is_proxied: bool,
}

impl RequestSource {
    /// Its bytes.
    ///
    /// # Errors
    /// What in it cannot go into a request.
    pub fn template(&self) -> Result<RequestTemplate, TemplateError> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let absolute;
        let url = if self.is_proxied {
            absolute = Url { target: self.url.absolute(), ..self.url.clone() };
            &absolute
        } else {
            &self.url
        };
        RequestTemplate::new(&self.method, url, headers, self.body.as_deref())
    }
}
