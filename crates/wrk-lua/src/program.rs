//! A script's input: its text, its URL, and access to name lookups.

use std::net::SocketAddr;
use std::sync::Arc;

/// A script and its command line arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The script's name in messages.
    pub name: String,
    /// The script's text.
    pub source: String,
    /// The arguments after `--`; `init` receives them as `args[1]` and so on.
    pub args: Vec<String>,
}

/// The target and the default request: the fields of the `wrk` table.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The URL as on the command line; `args[0]`.
    pub url: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The host, without brackets.
    pub host: String,
    /// The port, if the URL contains one.
    pub port: Option<u16>,
    /// The URL from its path to its end, with the query; `/` if it has no path.
    pub path: String,
    /// Request method.
    pub method: String,
    /// Extra header fields; if a name repeats, the last value counts.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub body: Option<Vec<u8>>,
    /// The host's addresses by the load's own rules; empty if the load uses no address (a Unix socket, a proxy). Then
    /// threads have no address until the script sets one.
    pub addresses: Vec<SocketAddr>,
}

impl Origin {
    /// The port, or the scheme's name, as `wrk.resolve` receives it.
    pub(crate) fn service(&self) -> String {
        self.port.map_or_else(|| self.scheme.clone(), |port| port.to_string())
    }
}

/// Name lookups and test connections, for `wrk.lookup` and `wrk.connect`.
pub trait Network: Send + Sync {
    /// Returns the addresses of a host and a service (a name or a number).
    ///
    /// # Errors
    /// Why there are none.
    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String>;

    /// Whether a connection to this address can be opened. The connection is closed immediately.
    fn connect(&self, address: SocketAddr) -> bool;
}

/// Receives the text that a script prints; a line may arrive in several pieces.
pub type Output = Arc<dyn Fn(&str) + Send + Sync>;
