//! Chats as their participants see them: over MCP, on the command line, with agents that answer.

mod answers;
mod authority;
mod board;
mod files;
mod inbox;
mod keep;
mod notes;
mod open;
mod reading;
mod refused;
mod scenarios;
mod siblings;
mod talk;

use crate::mcp::Session;
use crate::support::TestHome;
use serde_json::{Value, json};

/// Creates a home whose agents are shell scripts that read the prompt from standard input.
pub fn home_with(agents: &[(&str, &str)], config: &str) -> TestHome {
    let home = TestHome::with_config("");
    let mut text = config.to_owned();
    for (name, script) in agents {
        let path = home.work().join(format!("{name}.sh"));
        std::fs::write(&path, script).expect("the script can be written");
        text.push_str(&format!("[agents.{name}]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"{}\"]\ngrace = \"1s\"\n", path.display()));
    }
    std::fs::write(home.home.dir.join("config.toml"), text)
        .expect("the configuration can be written");
    home
}

/// Opens a parent's connection under its own name.
pub fn client(home: &TestHome, name: &str, args: &[&str]) -> Session {
    let all: Vec<&str> = ["--client", name].iter().chain(args).copied().collect();
    Session::open(&home.home.dir, &home.work(), &all, true)
}

pub fn start(session: &mut Session, title: &str, participants: &[&str]) -> i64 {
    session.done(
        "start_chat",
        json!({"title": title, "participants": participants}),
    )["chat_id"]
        .as_i64()
        .expect("a number")
}

/// Returns the entries of a chat: author and text.
pub fn said(home: &TestHome, chat: i64) -> Vec<(String, String)> {
    let page = home.json(&["chat", "show", &chat.to_string(), "--after", "0"]);
    let of = |entry: &Value| {
        (
            entry["name"].as_str().unwrap_or_default().to_owned(),
            entry["text"].as_str().unwrap_or_default().to_owned(),
        )
    };
    page["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(of)
        .collect()
}
