//! Tests of tokens that replace a password (`auth-token`).

use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;

use leadline_testkit::openvpn::{Pair, Pki, Setup};
use leadline_tunnel::openvpn::client::{Client, Event};

fn admit(pair: &mut Pair, user: &str, password: &str) {
    pair.server.as_mut().expect("a server").admit(vec![(user.to_owned(), password.to_owned())]);
}

/// Whether the server accepts the client again.
fn renews(pair: &mut Pair) -> bool {
    pair.client.renegotiate(pair.now_ns);
    pair.run_a_second();
    pair.events.last() == Some(&Event::Renegotiated)
}

fn with_password(pki: &Pki) -> Setup {
    let mut setup = Setup::new(pki);
    setup.identity.user = Some(("user".to_owned(), "password".into()));
    setup.server.users = vec![("user".to_owned(), "password".to_owned())];
    setup.server.push.push("auth-token first".to_owned());
    setup
}

#[test]
fn newest_token_replaces_the_password_across_reconnects() {
    let pki = Pki::new();
    let mut pair = with_password(&pki).pair();
    pair.run_a_second();
    admit(&mut pair, "user", "first");
    assert!(renews(&mut pair), "{:?}", pair.events);
    // Other options of the push do not change a running tunnel.
    let before = pair.client.pushed().expect("the tunnel is up").clone();
    pair.server.as_mut().expect("a server").send_message("PUSH_REPLY,auth-token second,ifconfig 10.9.9.9 255.255.0.0");
    pair.run_a_second();
    assert_eq!(pair.client.pushed().expect("the tunnel is up").texts, before.texts);
    admit(&mut pair, "user", "second");
    assert!(renews(&mut pair), "{:?}", pair.events);

    let mut next = with_password(&pki);
    next.server.users = vec![("user".to_owned(), "second".to_owned())];
    next.identity = next.identity.with_token(pair.client.token().cloned());
    let mut next = next.pair();
    next.run_a_second();
    assert_eq!(next.events.last(), Some(&Event::Up));
}

#[test]
fn refused_token_has_its_own_error_and_is_dropped() {
    let mut pair = with_password(&Pki::new()).pair();
    pair.run_a_second();
    assert!(pair.client.token().is_some());
    admit(&mut pair, "user", "other");
    assert!(!renews(&mut pair));
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert_eq!(failure.name, "auth_token_refused");
    assert_eq!(pair.client.token(), None);
}

#[test]
fn pushed_token_user_logs_in_a_client_without_one() {
    let pki = Pki::new();
    let mut setup = Setup::new(&pki);
    setup.server.push.push("auth-token secret".to_owned());
    setup.server.push.push(format!("auth-token-user {}", STANDARD.encode("from the certificate")));
    let mut pair = setup.pair();
    pair.run_a_second();
    admit(&mut pair, "from the certificate", "secret");
    assert!(renews(&mut pair), "{:?}", pair.events);

    // Without a user, the token cannot be sent.
    let mut setup = Setup::new(&pki);
    setup.server.push.push("auth-token secret".to_owned());
    let mut pair = setup.pair();
    pair.run_a_second();
    assert_eq!((pair.client.token(), pair.events.last()), (None, Some(&Event::Up)));
    assert!(renews(&mut pair), "{:?}", pair.events);
}

#[test]
fn token_is_hidden_in_debug_output() {
    let pki = Pki::new();
    let setup = with_password(&pki);
    let mut pair = setup.pair();
    pair.run_a_second();
    let token = pair.client.token().expect("the server sent a token");
    assert!(!format!("{token:?}").contains("first"));
    let config = Arc::new(Setup::new(&pki).client);
    let client = Client::new(&config, &pki.identity().with_token(Some(token.clone())), 0);
    assert_eq!(client.token(), Some(token));
}
