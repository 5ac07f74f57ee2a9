//! What a script is given: its text, the URL it starts from, and the world it may ask about.

use std::net::SocketAddr;
use std::sync::Arc;

/// A script and what the command line says to it.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it is called in messages.
    pub name: String,
    /// Its text.
    pub source: String,
    /// What stands after `--`; `init` gets them as `args[1]` and on.
    pub args: Vec<String>,
}

/// Where requests go and what they say unless the script changes it: the fields of the `wrk` table.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The URL as it was given; `args[0]`.
    pub url: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The host, without brackets.
    pub host: String,
    /// The port, where the URL names one.
    pub port: Option<u16>,
    /// The URL from its path to its end, the query included; `/` where it has no path.
    pub path: String,
    /// Request method.
    pub method: String,
    /// Extra header fields; of equal names the last counts.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub body: Option<Vec<u8>>,
    /// What the host's name stands for by the load's own rules; empty where the load goes another way (a Unix socket, a
    /// proxy). Then threads have no address until the script gives them one.
    pub addresses: Vec<SocketAddr>,
}

impl Origin {
    /// The port, or the name of the scheme's, as `wrk.resolve` gets it.
    pub(crate) fn service(&self) -> String {
        self.port.map_or_else(|| self.scheme.clone(), |port| port.to_string())
    }
}

/// Name lookups and connections of this host, for `wrk.lookup` and `wrk.connect`.
pub trait Network: Send + Sync {
    /// The addresses of a host and a service (a name or a number).
    ///
    /// # Errors
    /// Why there are none.
    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String>;

    /// Whether a connection to this address can be opened. Closes it again.
    fn connect(&self, address: SocketAddr) -> bool;
}

/// Takes what a script prints, in pieces as they come; a line may come in several.
pub type Output = Arc<dyn Fn(&str) + Send + Sync>;
