//! Tests of reading connections.

use super::*;

const FILE: &str = r#"
# A roadwarrior.
connections {
  home {
    version = 2
    remote_addrs = 192.0.2.1, gw.test
    proposals = aes128gcm16-prfsha256-x25519, aes256-sha256-ecp256
    vips = 0.0.0.0,::
    encap = yes
    dpd_delay = 30s
    rekey_time = 4h
    local { auth = psk
      id = c1@test }
    remote {
      auth = psk
      id = gw.test   # its name
    }
    children {
      net {
        remote_ts = 10.30.0.0/24, fd00::/8
        esp_proposals = aes128gcm16-x25519
        rekey_time = 1h
        rand_time = 6m
        start_action = start
      }
    }
  }
}
secrets {
  ike-other { id = other@test
    secret = wrong }
  ike-1 {
    id-1 = c1@test
    secret = "a \"shared\" key # 1"
  }
}
"#;

fn no_files(_: Directory, _: Option<&str>) -> Result<String, String> {
    Err("no files here".to_owned())
}

fn read(text: &str) -> Result<Connection, String> {
    read_connection(text, None, &no_files)
}

#[test]
fn connection_with_its_secret_is_read() {
    let connection = read(FILE).expect("a connection");
    assert_eq!((connection.name.as_str(), connection.remote_port), ("home", 500));
    assert_eq!(connection.remote_addresses, ["192.0.2.1", "gw.test"]);
    let config = &connection.config;
    assert_eq!((config.ike.len(), config.esp.len(), config.remote_ts.len()), (2, 1, 2));
    assert!(config.requests_ipv4 && config.requests_ipv6 && config.forces_encapsulation && config.has_mobike);
    assert_eq!(config.dpd_ns, Some(30 * SECOND_NS));
    assert_eq!(config.ike_lifetime, Lifetime { rekey_ns: Some(14_400 * SECOND_NS), spread_ns: 1440 * SECOND_NS });
    assert_eq!(config.child_lifetime, Lifetime { rekey_ns: Some(3600 * SECOND_NS), spread_ns: 360 * SECOND_NS });
    assert_eq!(config.remote_id, Some(Id::parse("gw.test")));
    assert_eq!(connection.identity.id, Id::parse("c1@test"));
    let key = connection.identity.shared_key.as_ref().expect("a key");
    assert_eq!(key.expose(), b"a \"shared\" key # 1");
    assert!(!format!("{connection:?}").contains("shared\\"), "{connection:?}");
}

#[test]
fn secrets_in_hexadecimal_and_base64_are_bytes() {
    for (written, bytes) in [("0x00ff10", &[0, 255, 16][..]), ("0sAP8Q", &[0, 255, 16])] {
        let text = FILE.replace("\"a \\\"shared\\\" key # 1\"", written);
        assert_eq!(read(&text).expect("a connection").identity.shared_key.expect("a key").expose(), bytes);
    }
    let error = read(&FILE.replace("\"a \\\"shared\\\" key # 1\"", "0xhunter2")).expect_err("no digits");
    assert!(error.contains("0x") && !error.contains("hunter2"), "{error}");
}

#[test]
fn what_is_not_supported_is_refused_by_its_line() {
    let at = |text: &str| 1 + FILE.lines().position(|line| line.contains(text)).expect("a line");
    for (old, new, what) in [
        ("version = 2", "version = 1", "version = \"1\""),
        ("encap = yes", "encap = maybe", "neither yes nor no"),
        ("encap = yes", "aggressive = yes", "aggressive"),
        ("aes256-sha256-ecp256", "aes256-sha1-ecp256", "sha1"),
        ("dpd_delay = 30s", "dpd_delay = soon", "not a time"),
        ("vips = 0.0.0.0,::", "vips = 10.0.0.1", "0.0.0.0 and ::"),
        ("local { auth = psk", "local { auth = xauth", "xauth"),
        ("start_action = start", "mode = transport", "transport"),
        ("start_action = start", "ipcomp = yes", "ipcomp"),
        ("start_action = start", "esp_proposals = aes128-sha1", "sha1"),
        ("10.30.0.0/24, fd00::/8", "10.30.0.0/99", "networks"),
        ("start_action = start", "include other.conf", "include"),
        ("start_action = start", "updown", "needs a value"),
    ] {
        let error = read(&FILE.replace(old, new)).expect_err(new);
        assert!(error.starts_with(&format!("swanctl.conf:{}: ", at(old))) && error.contains(what), "{error}");
    }
    for (text, what) in [
        ("", "connections is missing"),
        ("connections { }", "no connection"),
        ("connections { a { } b { } }", "several"),
        ("connections {", "no closing brace"),
        ("}", "closes nothing"),
        ("x = 1", "outside"),
        ("a = \"b", "quote"),
        ("connections { a { remote_addrs = b\nchildren { c { remote_ts = 10.0.0.0/8 } } } }", "no files here"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(what), "{text}: {error}");
    }
    assert!(read(&"a {".repeat(100)).is_err());
}
