//! The reader of a session's control connection: a thread that forwards the client's messages as fast as the session
//! handles them, and ends with the connection.

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::mpsc::SyncSender;

use leadline_sys::clock::monotonic_ns;
use leadline_transport::{FrameDecoder, FromClient};

use super::shared::SessionInput;

/// Reads the control connection until it ends, and forwards its messages.
pub fn forward_messages(mut control: &TcpStream, mut decoder: FrameDecoder, inbox: &SyncSender<SessionInput>) {
    let mut piece = [0; 4096];
    let mut has_ended = false;
    loop {
        let received_ns = monotonic_ns();
        loop {
            match decoder.next_message() {
                Ok(Some(message)) if is_out_of_turn(&message, &mut has_ended) => {
                    let _ = inbox.send(SessionInput::Closed);
                    return;
                }
                Ok(Some(message)) => {
                    if inbox.send(SessionInput::Message(message, received_ns)).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    let _ = inbox.send(SessionInput::Closed);
                    return;
                }
            }
        }
        match control.read(&mut piece) {
            Ok(read) if read > 0 => decoder.feed(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    let _ = inbox.send(SessionInput::Closed);
}

/// Whether a running session gets no such message, or gets it once only: the messages that wait in its inbox are many, so
/// none may be long except for one.
fn is_out_of_turn(message: &FromClient, has_ended: &mut bool) -> bool {
    match message {
        FromClient::Open { .. } | FromClient::Prove { .. } => true,
        FromClient::End { .. } => std::mem::replace(has_ended, true),
        FromClient::Clock { .. } | FromClient::Begin { .. } | FromClient::Stop {} => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::mpsc;

    use leadline_transport::encode_frame;

    use super::*;

    #[test]
    fn second_end_closes_the_session() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        let end = encode_frame(&FromClient::End { sent_units: vec![1, 2] }).unwrap();
        far.write_all(&[encode_frame(&FromClient::Stop {}).unwrap(), end.clone(), end].concat()).unwrap();
        let (inbox, inputs) = mpsc::sync_channel(8);
        forward_messages(&near, FrameDecoder::default(), &inbox);
        drop(inbox);
        let inputs: Vec<_> = inputs.iter().collect();
        assert!(matches!(
            &inputs[..],
            [
                SessionInput::Message(FromClient::Stop {}, _),
                SessionInput::Message(FromClient::End { .. }, _),
                SessionInput::Closed
            ]
        ));
    }
}
