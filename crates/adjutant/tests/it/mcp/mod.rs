//! `adj mcp` as a client sees it: JSON lines in, JSON lines out.

mod answers;
mod connection;
mod elicitation;
mod facade;
mod matrix;
mod resources;
mod results;
mod sdk;
mod session;
mod task_inputs;
mod waits;

pub use session::{PATIENCE, Session, run_of, text};

use serde_json::Value;

fn names(list: &Value) -> Vec<&str> {
    list["result"]["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}
