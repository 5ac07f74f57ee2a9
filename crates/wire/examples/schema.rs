//! Prints the contract's JSON Schema: `cargo run -p leadline-wire --features schema --example schema > contract/agent.schema.json`.

use leadline_wire::{Command, Event};
use schemars::JsonSchema;

/// Both directions in one document.
#[derive(JsonSchema)]
#[allow(dead_code)]
struct Contract {
    /// A line on the agent's stdin.
    command: Command,
    /// A line on its stdout.
    event: Event,
}

fn main() {
    let schema = schemars::schema_for!(Contract);
    println!("{}", serde_json::to_string_pretty(&schema).expect("a schema is plain JSON"));
}
