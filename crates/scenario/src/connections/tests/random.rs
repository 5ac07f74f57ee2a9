//! Any inputs in any order: each request ends exactly once, and no limit is exceeded.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Request { user: u32, host: u8, is_idempotent: bool, closes: bool, is_https: bool },
    Input(u32, Input),
    Receive(u32, u8),
    Garbage(u32),
    Secure(u32),
    EndTls(u32),
    Dial(u8),
    Take(u8),
    Resolved(u8),
    Wait(u64),
    Cancel(u32),
    CloseIdle(u32),
}

const PIECES: [&[u8]; 7] = [
    OK,
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
    b"hi",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"?",
];
const HOSTS: [&str; 2] = ["a.test", "b.test"];

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => Just(Input::Connected),
        2 => (0usize..4).prop_map(Input::Sent),
        1 => (0usize..4, any::<bool>()).prop_map(|(missing, is_reset)| Input::NotSent {
            missing,
            failure: failure(if is_reset { "reset" } else { "other" }),
        }),
        2 => Just(Input::Ended(Ok(()))),
        1 => Just(Input::Ended(Err(failure("broken")))),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u32..3, 0u8..2, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
            |(user, host, is_idempotent, closes, is_https)| Event::Request { user, host, is_idempotent, closes, is_https }
        ),
        8 => (0u32..4, input()).prop_map(|(slot, input)| Event::Input(slot, input)),
        8 => (0u32..4, 0u8..7).prop_map(|(slot, piece)| Event::Receive(slot, piece)),
        1 => (0u32..4).prop_map(Event::Garbage),
        4 => (0u32..4).prop_map(Event::Secure),
        1 => (0u32..4).prop_map(Event::EndTls),
        1 => (0u8..2).prop_map(Event::Dial),
        1 => (0u8..4).prop_map(Event::Take),
        1 => (0u8..2).prop_map(Event::Resolved),
        1 => (0u64..150).prop_map(Event::Wait),
        1 => (0u32..3).prop_map(Event::Cancel),
        1 => (0u32..3).prop_map(Event::CloseIdle),
    ]
}

impl Bench {
    fn act(&mut self, event: Event, number: u32) {
        let now_ns = self.now_ns;
        match event {
            Event::Request { user, host, is_idempotent, closes, is_https } => {
                let mut send = request(user, number, HOSTS[host as usize]);
                (send.outgoing.is_idempotent, send.outgoing.closes) = (is_idempotent, closes);
                send.outgoing.url.is_https = is_https;
                self.send(send);
            }
            // What is sent again after it was taken back would be counted twice: a backend reports no such thing.
            Event::Input(slot, Input::NotSent { missing, failure }) => {
                let missing = missing.min(self.world.counted[0] as usize).min(self.sent_bytes(slot));
                self.input(slot, Input::NotSent { missing, failure });
            }
            Event::Input(slot, input) => self.input(slot, input),
            Event::Receive(slot, piece) => self.receive(slot, PIECES[piece as usize]),
            Event::Garbage(slot) => self.receive_raw(slot, b"?".to_vec()),
            Event::Secure(slot) => self.secure(slot),
            Event::EndTls(slot) => {
                if let Some(server) = self.world.servers.get_mut(&slot) {
                    server.close();
                }
                self.secure(slot);
            }
            Event::Dial(0) => self.world.dials.push_back(Ok(client::Opening::Resolving)),
            Event::Dial(_) => self.world.dials.push_back(Err(failure("unreachable"))),
            Event::Take(3) => self.world.takes.push_back(Err(failure("reset"))),
            Event::Take(bytes) => self.world.takes.push_back(Ok(bytes.into())),
            Event::Resolved(host) => {
                self.connections.resolved(HOSTS[host as usize], 80, 1, now_ns, &mut self.world);
            }
            Event::Wait(ms) => {
                self.after(ms * MS);
                assert!(self.connections.deadline_ns().is_none_or(|at_ns| at_ns > self.now_ns));
            }
            Event::Cancel(user) => self.connections.cancel(user, now_ns, &mut self.world),
            Event::CloseIdle(user) => self.connections.close_idle(user, now_ns, &mut self.world),
        }
    }

    fn sent_bytes(&self, slot: u32) -> usize {
        self.connections.slots[slot as usize].as_ref().map_or(0, |connection| connection.sent_bytes as usize)
    }

    fn check(&self, most_per_user: usize) {
        let mut of_users = BTreeMap::new();
        for connection in self.connections.slots.iter().flatten() {
            let origin = &connection.origin;
            let key = (connection.user, origin.host.to_string(), origin.port, origin.is_https);
            *of_users.entry(key).or_insert(0usize) += 1;
        }
        assert!(of_users.values().all(|own| *own <= most_per_user), "{of_users:?}");
        let open = self.connections.slots.iter().flatten().count();
        assert!(self.world.open.len() <= open, "a closed connection has its socket");
        assert_eq!(open as u64, self.connections.open());
        assert!(self.world.ends.values().all(|ends| ends.len() == 1), "{:?}", self.world.ends);
        let busy = self.connections.slots.iter().flatten().filter(|one| one.stage != super::super::Stage::Idle);
        let next_ns = busy.map(|one| one.deadline_ns).min().unwrap_or(u64::MAX);
        assert!(self.connections.deadline_ns().unwrap_or(u64::MAX) <= next_ns, "a limit would be missed");
        let idle = self.connections.slots.iter().flatten().any(|one| one.stage == super::super::Stage::Idle);
        assert!(self.connections.waiting.is_empty() || !(idle || open < self.connections.slots.len()));
    }
}

proptest! {
    #[test]
    fn each_request_ends_once_and_no_limit_is_exceeded(
        events in proptest::collection::vec(event(), 0..300),
        most in 1usize..5,
        most_per_user in 1u32..3,
    ) {
        let mut bench = Bench::new(most, most_per_user);
        let mut requests = 0;
        for (event, number) in events.into_iter().zip(0..) {
            match &event {
                Event::Input(slot, _)
                | Event::Receive(slot, _)
                | Event::Garbage(slot)
                | Event::Secure(slot)
                | Event::EndTls(slot)
                    if *slot as usize >= most =>
                {
                    continue
                }
                Event::Request { .. } => requests += 1,
                _ => {}
            }
            bench.act(event, number);
            bench.connections.note_handed_over(&bench.world);
            bench.check(most_per_user as usize);
        }
        bench.connections.finish(bench.now_ns, &mut bench.world);
        bench.check(most_per_user as usize);
        prop_assert_eq!((bench.world.ends.len(), bench.world.open.len()), (requests, 0));
        let counts = &bench.connections.tally().counts;
        let given_up = bench.world.causes().iter().filter(|(_, cause)| cause == "given up").count() as u64;
        prop_assert_eq!(counts.unsent + counts.unanswered, given_up);
        prop_assert_eq!(counts.requests_due, requests as u64);
    }
}
