//! The client's end of one test's control connection. It receives bytes and returns events; for each event that needs an
//! answer there is a method that returns the bytes to send.

use super::message::{Inbox, Iperf3Error, SERVER_RESULTS_BYTES};
use super::results::{Iperf3Results, Iperf3ServerOutput};
use super::state::State;

/// One test on the client; its cookie has been sent.
#[derive(Debug, Default)]
pub struct Iperf3Client {
    inbox: Inbox,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Waits for the server to ask for the parameters.
    #[default]
    Parameters,
    /// Waits for the request to open flows.
    CreateStreams,
    /// Waits until the test may start.
    Start,
    /// Waits until payload may flow.
    Running,
    /// Waits for the request for results, once the test has ended.
    AskResults,
    /// Waits for the server's results.
    Results,
    /// Waits until both have the results.
    Display,
    /// Waits for the numbers of the server's error.
    Error,
    /// Reads nothing more.
    Over,
}

/// An event of a test on the client.
#[derive(Debug, PartialEq)]
pub enum Iperf3ClientEvent {
    /// Send the parameters.
    SendParameters,
    /// Open the flows, one by one.
    CreateStreams,
    /// All flows are there.
    Start,
    /// Payload may flow.
    Running,
    /// Send this end's results.
    SendResults,
    /// The server's figures, and what it printed.
    Results(Box<Iperf3Results>, Box<Iperf3ServerOutput>),
    /// Both have the figures: send `done` and close.
    Display,
    /// The server does not serve this client, most often because it is busy.
    Denied,
    /// The server gives up.
    Terminated,
    /// The server failed: iperf3's error number, and the system's if it was sent.
    Failed {
        /// iperf3's own number.
        error: i32,
        /// The system's number.
        errno: Option<i32>,
    },
}

impl Iperf3Client {
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
    pub fn next_event(&mut self) -> Result<Option<Iperf3ClientEvent>, Iperf3Error> {
        match self.stage {
            Stage::Over => Ok(None),
            Stage::Error => self.numbers(),
            Stage::Results if self.inbox.gives_up() => self.state(),
            Stage::Results => {
                let Some(text) = self.inbox.text(SERVER_RESULTS_BYTES)? else { return Ok(None) };
                let output = serde_json::from_slice(text)?;
                let Some(results) = self.inbox.message(SERVER_RESULTS_BYTES)? else { return Ok(None) };
                self.stage = Stage::Display;
                Ok(Some(Iperf3ClientEvent::Results(Box::new(results), Box::new(output))))
            }
            _ => self.state(),
        }
    }

    /// The server has closed the connection. Old servers send one number of an error only.
    pub fn closed(&mut self) -> Option<Iperf3ClientEvent> {
        let failed = self.stage == Stage::Error;
        self.stage = Stage::Over;
        let [error] = self.inbox.numbers().filter(|_| failed)?;
        Some(Iperf3ClientEvent::Failed { error, errno: None })
    }

    /// The bytes that end the test.
    pub fn end() -> Vec<u8> {
        vec![State::End.byte()]
    }

    /// The bytes that tell the server that this end has all figures.
    pub fn done() -> Vec<u8> {
        vec![State::Done.byte()]
    }

    /// The bytes that tell the server that this end gives up.
    pub fn terminate() -> Vec<u8> {
        vec![State::ClientTerminate.byte()]
    }

    fn numbers(&mut self) -> Result<Option<Iperf3ClientEvent>, Iperf3Error> {
        let Some([error, errno]) = self.inbox.numbers() else { return Ok(None) };
        self.stage = Stage::Over;
        Ok(Some(Iperf3ClientEvent::Failed { error, errno: Some(errno) }))
    }

    fn state(&mut self) -> Result<Option<Iperf3ClientEvent>, Iperf3Error> {
        let Some(byte) = self.inbox.byte() else { return Ok(None) };
        let (stage, event) = match (State::parse(byte), self.stage) {
            (Some(State::ServerError), _) => {
                self.stage = Stage::Error;
                return self.numbers();
            }
            (Some(State::Denied), _) => (Stage::Over, Iperf3ClientEvent::Denied),
            (Some(State::ServerTerminate), _) => (Stage::Over, Iperf3ClientEvent::Terminated),
            (Some(State::Parameters), Stage::Parameters) => (Stage::CreateStreams, Iperf3ClientEvent::SendParameters),
            (Some(State::CreateStreams), Stage::CreateStreams) => (Stage::Start, Iperf3ClientEvent::CreateStreams),
            (Some(State::Start), Stage::Start) => (Stage::Running, Iperf3ClientEvent::Start),
            (Some(State::Running), Stage::Running) => (Stage::AskResults, Iperf3ClientEvent::Running),
            (Some(State::Results), Stage::AskResults) => (Stage::Results, Iperf3ClientEvent::SendResults),
            (Some(State::Display), Stage::Display) => (Stage::Over, Iperf3ClientEvent::Display),
            _ => return Err(Iperf3Error::UnexpectedState(byte)),
        };
        self.stage = stage;
        Ok(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::errors::ErrorNumber;
    use super::super::message::CLIENT_RESULTS_BYTES;
    use super::super::parameters::Iperf3Parameters;
    use super::super::results::Iperf3StreamResult;
    use super::super::server::{Iperf3Server, Iperf3ServerEvent};
    use super::*;

    fn results(bytes: i64) -> Iperf3Results {
        let stream = Iperf3StreamResult { id: 1, bytes, ..Default::default() };
        Iperf3Results { streams: vec![stream], ..Default::default() }
    }

    fn output() -> Iperf3ServerOutput {
        Iperf3ServerOutput { text: Some("two\nlines\n".to_owned()), document: None }
    }

    /// What a client does at each event.
    fn act(event: &Iperf3ClientEvent, asked: &Iperf3Parameters) -> Vec<u8> {
        match event {
            Iperf3ClientEvent::SendParameters => asked.encode(),
            Iperf3ClientEvent::Running => Iperf3Client::end(),
            Iperf3ClientEvent::SendResults => results(5).encode(),
            Iperf3ClientEvent::Display => Iperf3Client::done(),
            _ => Vec::new(),
        }
    }

    /// What a server does at each event.
    fn answer(event: &Iperf3ServerEvent) -> Vec<u8> {
        match event {
            Iperf3ServerEvent::Parameters(_) => [Iperf3Server::create_streams(), Iperf3Server::start()].concat(),
            Iperf3ServerEvent::Ended => Iperf3Server::ask_results(),
            Iperf3ServerEvent::Results(_) => Iperf3Server::results(&results(4), &output()),
            Iperf3ServerEvent::Done | Iperf3ServerEvent::Terminated => Vec::new(),
        }
    }

    /// A whole test, with the bytes of each side in pieces of this length.
    fn talk(cut: usize) -> (Vec<Iperf3ClientEvent>, Vec<Iperf3ServerEvent>) {
        let asked = Iperf3Parameters { tcp: true, time: Some(1), ..Iperf3Parameters::default() };
        let (mut server, mut down) = Iperf3Server::new();
        let (mut client, mut up) = (Iperf3Client::default(), Vec::new());
        let (mut of_client, mut of_server) = (Vec::new(), Vec::new());
        while !(up.is_empty() && down.is_empty()) {
            for piece in std::mem::take(&mut down).chunks(cut) {
                client.receive(piece);
                while let Some(event) = client.next_event().unwrap() {
                    up.extend(act(&event, &asked));
                    of_client.push(event);
                }
            }
            for piece in std::mem::take(&mut up).chunks(cut) {
                server.receive(piece);
                while let Some(event) = server.next_event().unwrap() {
                    down.extend(answer(&event));
                    of_server.push(event);
                }
            }
        }
        (of_client, of_server)
    }

    #[test]
    fn both_ends_go_through_a_test_however_the_bytes_are_cut() {
        for cut in [1, 2, 7, 4096] {
            let (of_client, of_server) = talk(cut);
            use Iperf3ClientEvent::{CreateStreams, Display, Results, Running, SendParameters, SendResults, Start};
            let last = Results(Box::new(results(4)), Box::new(output()));
            let wanted = [SendParameters, CreateStreams, Start, Running, SendResults, last, Display];
            assert_eq!(of_client, wanted, "pieces of {cut}");
            assert!(matches!(
                &of_server[..],
                [Iperf3ServerEvent::Parameters(asked), Iperf3ServerEvent::Ended, Iperf3ServerEvent::Results(theirs), Iperf3ServerEvent::Done]
                    if asked.time == Some(1) && **theirs == results(5)
            ));
        }
    }

    #[test]
    fn busy_and_failing_servers_are_understood() {
        let mut client = Iperf3Client::default();
        client.receive(&Iperf3Server::deny());
        assert_eq!(client.next_event().unwrap(), Some(Iperf3ClientEvent::Denied));
        let mut client = Iperf3Client::default();
        for byte in Iperf3Server::fail(ErrorNumber::Flows, 22) {
            assert_eq!(client.next_event().unwrap(), None);
            client.receive(&[byte]);
        }
        assert_eq!(client.next_event().unwrap(), Some(Iperf3ClientEvent::Failed { error: 6, errno: Some(22) }));
        let mut old = Iperf3Client::default();
        old.receive(&Iperf3Server::fail(ErrorNumber::Authentication, 0)[..5]);
        assert_eq!(old.next_event().unwrap(), None);
        assert_eq!(old.closed(), Some(Iperf3ClientEvent::Failed { error: 142, errno: None }));
        assert_eq!(Iperf3Client::default().closed(), None);
    }

    #[test]
    fn either_end_may_give_up_instead_of_sending_its_results() {
        let before_results = [9, 10, 1, 2, 13];
        for (last, wanted) in [
            (Iperf3Server::fail(ErrorNumber::Silence, 0), Iperf3ClientEvent::Failed { error: 144, errno: Some(0) }),
            (Iperf3Server::terminate(), Iperf3ClientEvent::Terminated),
        ] {
            let mut client = Iperf3Client::default();
            client.receive(&[&before_results[..], &last].concat());
            let events = std::iter::from_fn(|| client.next_event().unwrap());
            assert_eq!(events.last(), Some(wanted));
        }
        let (mut server, _) = Iperf3Server::new();
        let asked = Iperf3Parameters { tcp: true, ..Iperf3Parameters::default() };
        server.receive(&[asked.encode(), Iperf3Client::end(), Iperf3Client::terminate()].concat());
        let events = std::iter::from_fn(|| server.next_event().unwrap());
        assert_eq!(events.last(), Some(Iperf3ServerEvent::Terminated));
    }

    #[test]
    fn long_message_is_refused_before_it_is_stored() {
        let (mut server, _) = Iperf3Server::new();
        server.receive(&8193u32.to_be_bytes());
        assert!(matches!(server.next_event(), Err(Iperf3Error::TooLong { length: 8193, limit: 8192 })));
    }

    /// A server that waits for its client's results.
    fn awaiting_results() -> Iperf3Server {
        let (mut server, _) = Iperf3Server::new();
        let asked = Iperf3Parameters { tcp: true, ..Iperf3Parameters::default() };
        server.receive(&[asked.encode(), Iperf3Client::end()].concat());
        while server.next_event().unwrap().is_some() {}
        server
    }

    #[test]
    fn server_takes_rows_of_all_flows_and_no_longer_results() {
        let row = |id| Iperf3StreamResult {
            id,
            bytes: i64::MIN,
            retransmits: i64::MIN,
            jitter: f64::MIN_POSITIVE,
            errors: i64::MIN,
            omitted_errors: Some(i64::MIN),
            packets: i64::MIN,
            omitted_packets: Some(i64::MIN),
            start_time: f64::MIN_POSITIVE,
            end_time: f64::MIN_POSITIVE,
        };
        let longest = Iperf3Results { streams: (0..256).map(row).collect(), ..Default::default() };
        let mut server = awaiting_results();
        server.receive(&longest.encode());
        assert!(matches!(server.next_event(), Ok(Some(Iperf3ServerEvent::Results(all))) if *all == longest));
        let mut server = awaiting_results();
        server.receive(&(CLIENT_RESULTS_BYTES as u32 + 1).to_be_bytes());
        assert!(matches!(server.next_event(), Err(Iperf3Error::TooLong { .. })));
    }

    #[test]
    fn server_skips_an_output_in_its_clients_results() {
        let document = serde_json::json!([{"": 0}, {"": 0}]);
        let mut server = awaiting_results();
        server.receive(&results(5).encode_with(&Iperf3ServerOutput { document: Some(document), text: None }));
        assert_eq!(server.next_event().unwrap(), Some(Iperf3ServerEvent::Results(Box::new(results(5)))));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut server, _) = Iperf3Server::new();
            server.receive(&bytes);
            while let Ok(Some(_)) = server.next_event() {}
            let mut client = Iperf3Client::default();
            client.receive(&bytes);
            while let Ok(Some(_)) = client.next_event() {}
            client.closed();
        }
    }
}
