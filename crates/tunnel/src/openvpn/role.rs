//! Which end of a tunnel a key or a message belongs to.

/// One end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that asks for the tunnel.
    Client,
    /// The end that is asked.
    Server,
}

impl Role {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
