//! The states on the control connection, one byte each.

/// A state on the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    /// The test is set up.
    Start = 1,
    /// Payload may flow.
    Running = 2,
    /// The client has sent or received all that it wanted.
    End = 4,
    /// The client shall send its parameters.
    Parameters = 9,
    /// The client shall open its flows.
    CreateStreams = 10,
    /// The server gives up.
    ServerTerminate = 11,
    /// The client gives up.
    ClientTerminate = 12,
    /// Both shall send their results.
    Results = 13,
    /// Both have the results.
    Display = 14,
    /// The client has finished.
    Done = 16,
    /// The server does not serve this client, most often because it is busy.
    Denied = -1,
    /// The server failed; two error numbers follow.
    ServerError = -2,
}

impl State {
    /// Returns the state of a byte; `None` for a byte that is none.
    pub fn parse(byte: u8) -> Option<Self> {
        const ALL: [State; 12] = [
            State::Start,
            State::Running,
            State::End,
            State::Parameters,
            State::CreateStreams,
            State::ServerTerminate,
            State::ClientTerminate,
            State::Results,
            State::Display,
            State::Done,
            State::Denied,
            State::ServerError,
        ];
        ALL.into_iter().find(|state| state.byte() == byte)
    }

    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        (self as i8).to_be_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_one_byte() {
        assert_eq!(State::ServerError.byte(), 0xfe);
        let known: Vec<u8> = (0..=255).filter(|byte| State::parse(*byte).is_some()).collect();
        assert_eq!(known, [1, 2, 4, 9, 10, 11, 12, 13, 14, 16, 0xfe, 0xff]);
    }
}
