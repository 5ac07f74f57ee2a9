//! Settings that all connections of a load share. Owns how a request is built from its URL, method, fields and body.
//! The caller has validated every value.

use std::sync::Arc;

use super::dial::DialPlan;
use crate::{RequestSet, RequestTemplate, TemplateError, Url};
use leadline_tls::ClientTls;

/// The requests, limits and connection parameters of a load.
#[derive(Clone)]
pub struct Settings {
    /// The requests.
    pub requests: RequestSet,
    /// The bytes of all requests.
    pub payload: Arc<[u8]>,
    /// The source of each request, for redirects and messages.
    pub sources: Vec<RequestSource>,
    /// The server's name in messages.
    pub server: String,
    /// The CONNECT request to the proxy, if a proxy is used.
    pub proxy_request: Option<Vec<u8>>,
    /// TLS, if the server uses it.
    pub tls: Option<ClientTls>,
    /// Time limit of each step of opening a connection, ns.
    pub connect_timeout_ns: u64,
    /// Time limit of a request, ns.
    pub response_timeout_ns: u64,
    /// Number of requests after which a connection is closed; `None` means unlimited.
    pub requests_per_connection: Option<u64>,
    /// Maximum number of redirects for one request.
    pub redirects: u32,
    /// Whether requests are due at a rate. If so, connections are opened as they are needed, else all at the start.
    pub is_open_loop: bool,
}

impl Settings {
    /// The steps from TCP to the first request.
    pub(super) fn dial_plan(&self) -> DialPlan<'_> {
        DialPlan { proxy_request: self.proxy_request.as_deref(), tls: self.tls.as_ref() }
    }
}

/// The parts of a request, from the user or from a redirect.
#[derive(Clone, Debug)]
pub struct RequestSource {
    /// Target URL.
    pub url: Url,
    /// Method.
    pub method: String,
    /// Header fields, including those of the whole load.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Option<Arc<[u8]>>,
    /// Whether the target is absolute, as a proxy requires.
    pub is_proxied: bool,
}

impl RequestSource {
    /// Builds the request's bytes.
    ///
    /// # Errors
    /// Which part is invalid in a request.
    pub fn template(&self) -> Result<RequestTemplate, TemplateError> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let absolute;
        let url = if self.is_proxied {
            absolute = Url { target: self.url.absolute().into(), ..self.url.clone() };
            &absolute
        } else {
            &self.url
        };
        RequestTemplate::new(&self.method, url, headers, self.body.as_deref())
    }
}
