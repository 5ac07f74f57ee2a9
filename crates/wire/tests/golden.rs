//! The golden transcripts as Rust reads them; tests/contract/test_golden.py reads the same files.
//! A line must come out as it went in: no field lost, none added, no number changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use leadline_wire::{Command, Event, PROTOCOL_VERSION};
use serde_json::Value;

fn golden(suffix: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contract/golden");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("contract/golden is there").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if name.ends_with(suffix) {
            let text = fs::read_to_string(&file).expect("a transcript");
            lines.extend(
                text.lines().enumerate().map(|(index, line)| (format!("{name}:{}", index + 1), line.to_owned())),
            );
        }
    }
    assert!(!lines.is_empty(), "no transcript ends in {suffix}");
    lines
}

fn assert_same_again(place: &str, line: &str, written: &[u8]) {
    let written: Value = serde_json::from_slice(written).expect("a message is plain JSON");
    let given: Value = serde_json::from_str(line).expect("a golden line is JSON");
    assert_eq!(written, given, "{place}");
}

fn types(lines: &[(String, String)]) -> BTreeSet<String> {
    lines
        .iter()
        .map(|(_, line)| {
            let value: Value = serde_json::from_str(line).expect("JSON");
            value["type"].as_str().expect("a type").to_owned()
        })
        .collect()
}

#[test]
fn every_command_reads_and_writes_as_it_stands() {
    let lines = golden("commands.jsonl");
    for (place, line) in &lines {
        let command = Command::from_json(line.as_bytes()).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_same_again(place, line, &serde_json::to_vec(&command).expect("a command is plain data"));
    }
    let known = ["clock", "heartbeat", "inspect", "observe", "prepare", "shutdown", "start", "stop", "wake_up"];
    assert_eq!(types(&lines), known.map(str::to_owned).into_iter().collect());
}

#[test]
fn every_event_reads_and_writes_as_it_stands() {
    let lines = golden("events.jsonl");
    for (place, line) in &lines {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_same_again(place, line, &event.to_json());
        if let Event::Hello { protocol, .. } = event {
            assert_eq!(protocol, PROTOCOL_VERSION, "{place}");
        }
    }
    let known = [
        "clock",
        "emulated",
        "exited",
        "failed",
        "finished",
        "heartbeat",
        "hello",
        "link",
        "network",
        "observation",
        "output",
        "prepared",
        "profiled",
        "progress",
        "samples",
        "started",
        "wake_up",
    ];
    assert_eq!(types(&lines), known.map(str::to_owned).into_iter().collect());
}

#[test]
fn a_command_with_an_unknown_field_is_refused() {
    assert!(Command::from_json(br#"{"type":"clock","id":1,"mood":"good"}"#).is_err());
    assert!(Command::from_json(br#"{"type":"dance"}"#).is_err());
}
