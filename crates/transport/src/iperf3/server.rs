//! The server's end of one test's control connection. It receives bytes and returns events; for each event that needs an
//! answer there is a method that returns the bytes to send.

use super::errors::ErrorNumber;
use super::message::{Inbox, Iperf3Error, CLIENT_RESULTS_BYTES, PARAMETERS_BYTES};
use super::parameters::Iperf3Parameters;
use super::results::{Iperf3Results, Iperf3ServerOutput};
use super::state::State;

/// One test on the server; its cookie has been read.
#[derive(Debug)]
pub struct Iperf3Server {
    inbox: Inbox,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for the parameters.
    Parameters,
    /// Waits for the flows, or for their end.
    Flows,
    /// Waits for the client's results.
    Results,
    /// Waits for the client to have finished.
    Display,
    /// Reads nothing more.
    Over,
}

/// An event of a test on the server.
#[derive(Debug, PartialEq)]
pub enum Iperf3ServerEvent {
    /// What the client asks for, inside of its ranges. Answer with `create_streams`, or `deny` or `fail` it.
    Parameters(Box<Iperf3Parameters>),
    /// The client has sent or received all that it wanted. Answer with `ask_results`.
    Ended,
    /// The client's figures. Answer with `results`.
    Results(Box<Iperf3Results>),
    /// The client has all figures and closes.
    Done,
    /// The client gives up.
    Terminated,
}

impl Iperf3Server {
    /// Returns the machine, and the bytes that answer the cookie.
    pub fn new() -> (Self, Vec<u8>) {
        (Self { inbox: Inbox::default(), stage: Stage::Parameters }, vec![State::Parameters.byte()])
    }

    /// Takes received bytes; call `next_event` afterwards until it returns `None`.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.stage != Stage::Over {
            self.inbox.feed(bytes);
        }
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// Why the connection is unusable; its limits bound what is stored.
    pub fn next_event(&mut self) -> Result<Option<Iperf3ServerEvent>, Iperf3Error> {
        match self.stage {
            Stage::Parameters => {
                let Some(asked) = self.inbox.message::<Iperf3Parameters>(PARAMETERS_BYTES)? else { return Ok(None) };
                asked.check()?;
                self.stage = Stage::Flows;
                Ok(Some(Iperf3ServerEvent::Parameters(Box::new(asked))))
            }
            Stage::Results if self.inbox.gives_up() => {
                self.state(State::ClientTerminate, Iperf3ServerEvent::Terminated, Stage::Over)
            }
            Stage::Results => {
                let Some(results) = self.inbox.message::<Iperf3Results>(CLIENT_RESULTS_BYTES)? else { return Ok(None) };
                self.stage = Stage::Display;
                Ok(Some(Iperf3ServerEvent::Results(Box::new(results))))
            }
            Stage::Flows => self.state(State::End, Iperf3ServerEvent::Ended, Stage::Results),
            Stage::Display => self.state(State::Done, Iperf3ServerEvent::Done, Stage::Over),
            Stage::Over => Ok(None),
        }
    }

    /// Reads a state that leads to the next stage, or the client's end.
    fn state(
        &mut self,
        wanted: State,
        event: Iperf3ServerEvent,
        next: Stage,
    ) -> Result<Option<Iperf3ServerEvent>, Iperf3Error> {
        let Some(byte) = self.inbox.byte() else { return Ok(None) };
        match State::parse(byte) {
            Some(state) if state == wanted => {
                self.stage = next;
                Ok(Some(event))
            }
            Some(State::ClientTerminate) => {
                self.stage = Stage::Over;
                Ok(Some(Iperf3ServerEvent::Terminated))
            }
            _ => Err(Iperf3Error::UnexpectedState(byte)),
        }
    }

    /// The bytes that make the client open its flows.
    pub fn create_streams() -> Vec<u8> {
        vec![State::CreateStreams.byte()]
    }

    /// The bytes that start the test, once all flows are there.
    pub fn start() -> Vec<u8> {
        vec![State::Start.byte(), State::Running.byte()]
    }

    /// The bytes that ask for the client's figures.
    pub fn ask_results() -> Vec<u8> {
        vec![State::Results.byte()]
    }

    /// The bytes with this end's figures and output, after which the client shows both.
    pub fn results(results: &Iperf3Results, output: &Iperf3ServerOutput) -> Vec<u8> {
        let mut bytes = results.encode_with(output);
        bytes.push(State::Display.byte());
        bytes
    }

    /// The bytes that refuse a client: it prints that the server is busy.
    pub fn deny() -> Vec<u8> {
        vec![State::Denied.byte()]
    }

    /// The bytes that end a test with iperf3's error number and the system's.
    pub fn fail(error: ErrorNumber, errno: i32) -> Vec<u8> {
        [&[State::ServerError.byte()], error.number().to_be_bytes().as_slice(), errno.to_be_bytes().as_slice()].concat()
    }

    /// The bytes that tell the client of the server's own end.
    pub fn terminate() -> Vec<u8> {
        vec![State::ServerTerminate.byte()]
    }
}
