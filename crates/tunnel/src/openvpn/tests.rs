//! The client machine against the server machine, in virtual time.

use super::client::Event;
use super::pair::{Pki, Setup};
use super::server::PeerEvent;

#[test]
fn a_client_connects_and_data_goes_both_ways() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    assert_eq!(pair.events, [Event::Answered, Event::TlsDone, Event::KeysDone, Event::Up]);
    assert_eq!(pair.peer_events, [PeerEvent::Up]);
    for number in 0..10 {
        pair.send_up(&[number; 100], &mut |_| Some(1));
        pair.send_down(&[number; 200], &mut |_| Some(1));
    }
    pair.run_a_second();
    assert_eq!(pair.at_server.len(), 10);
    assert_eq!(pair.at_client.len(), 10);
    assert_eq!(pair.client.retransmits(), 0);
}
