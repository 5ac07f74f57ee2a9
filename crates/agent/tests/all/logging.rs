//! The agent's log: off by default, only on stderr, one event per line, without secrets.

use std::process::{Command, Output, Stdio};

use crate::support::{answer, rr, target, Agent};
use serde_json::json;

const KEY: &str = "correct horse battery staple";

fn command(arguments: &[&str], variable: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leadline-agent"));
    command.args(arguments).env_remove("LEADLINE_LOG");
    if let Some(filter) = variable {
        command.env("LEADLINE_LOG", filter);
    }
    command
}

fn output(arguments: &[&str], variable: Option<&str>) -> Output {
    command(arguments, variable).stdin(Stdio::null()).output().unwrap()
}

/// Returns the log of an agent that serves a session with a key to itself, after it refused one without the key.
fn log_of_sessions(arguments: &[&str], variable: Option<&str>) -> String {
    let mut agent = Agent::spawn(command(arguments, variable).stderr(Stdio::piped()));
    let key = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";
    agent.prepare(
        "serve",
        &json!({"kind": "serve", "bind": ["127.0.0.1"], "port": 0, "http_port": null, "https_port": null,
            "answer": answer(), "longest_ms": 60_000, "most_flows": 64, "key": key}),
    );
    let port = agent.prepared("serve").1.unwrap();
    agent.prepare("refused", &rr(&target("127.0.0.1", port), &json!({})));
    assert!(!agent.failure().code.is_empty());
    let known = json!({"host": "127.0.0.1", "port": port, "ip_version": null, "key": key});
    agent.run(&rr(&known, &json!({})));
    agent.hang_up();
    assert!(agent.ended().0.success());
    agent.stderr()
}

#[test]
fn nothing_is_logged_unless_it_is_asked_for() {
    assert_eq!(log_of_sessions(&[], None), "");
    assert_eq!(log_of_sessions(&[], Some("")), "");
    assert_eq!(log_of_sessions(&["--log", "off"], Some("trace")), "", "the option takes precedence");
}

#[test]
fn each_event_is_a_line_with_time_level_target_and_fields() {
    let log = log_of_sessions(&["--log", "trace"], None);
    for line in log.lines() {
        let (time, rest) = line.split_at(28);
        assert!(time.starts_with("20") && time.ends_with("Z "), "{line}");
        let level = ["ERROR ", " WARN ", " INFO ", "DEBUG ", "TRACE "].iter().find_map(|name| rest.strip_prefix(name));
        assert!(level.is_some_and(|rest| rest.starts_with("leadline_agent::")), "{line}");
    }
    for event in [
        "control: agent started version=",
        "serve: listening bind=\"127.0.0.1\" port=",
        "control: task prepared trial=\"t\" task=\"serve\"",
        "listener: session refused client=127.0.0.1:",
        "control: task failed trial=\"t\" task=\"refused\"",
        "session: session opened client=127.0.0.1:",
        "load::session: session granted server=127.0.0.1:",
        "control: task started trial=\"t\" task=\"load\"",
        "session: session closed client=127.0.0.1:",
        "control: task ended trial=\"t\" task=\"load\"",
        "control: stdin has ended: shutting down",
        "control: agent ends",
    ] {
        assert!(log.contains(event), "no {event:?} in\n{log}");
    }
    assert!(!log.contains(KEY) && !log.contains("Y29ycmVj"), "{log}");
}

#[test]
fn a_filter_names_modules() {
    let log = log_of_sessions(&[], Some("serve=info"));
    assert!(log.contains("session opened") && log.lines().all(|line| line.contains("leadline_agent::serve")), "{log}");
}

#[test]
fn a_wrong_filter_is_one_line_and_code_2() {
    let cases: [(&[&str], Option<&str>, &str); 4] = [
        (&["--log", "loud"], None, "--log \"loud\": \"loud\" is not a level; give one of off, error,"),
        (
            &["serve", "--log", "server=info"],
            None,
            "--log \"server=info\": no module \"server\" has a log; give one of",
        ),
        (&["wireguard", "--log=", "none.json"], None, "--log \"\": \"\" is not a level"),
        (&["flamegraph", "title"], Some("verbose"), "LEADLINE_LOG \"verbose\": \"verbose\" is not a level"),
    ];
    for (arguments, variable, reason) in cases {
        let Output { status, stdout, stderr } = output(arguments, variable);
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len(), stderr.lines().count()), (Some(2), 0, 1), "{stderr}");
        assert!(stderr.starts_with(&format!("leadline-agent: {reason}")), "{stderr}");
    }
    assert!(output(&["--version"], Some("verbose")).status.success());
}

#[test]
fn every_subcommand_takes_the_option() {
    for arguments in [&["--log", "info", "wireguard", "none.json"][..], &["wireguard", "none.json", "--log", "info"]] {
        let Output { status, stderr, .. } = output(arguments, None);
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(1) && stderr.contains("none.json: no such file"), "{stderr}");
    }
    assert_eq!(output(&["--log"], None).status.code(), Some(2));
    assert_eq!(output(&["wireguard"], None).status.code(), Some(2));
    assert_eq!(output(&["wireguard", "one", "two"], None).status.code(), Some(2));
}
