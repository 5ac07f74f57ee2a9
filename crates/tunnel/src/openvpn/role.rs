//! The end of a tunnel to which a key or a message belongs.

/// One end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that begins the session.
    Client,
    /// The end that responds.
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
