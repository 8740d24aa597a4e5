//! Chats as their participants see them: over MCP, on the command line, with agents that answer.

mod answers;
mod authority;
mod files;
mod inbox;
mod keep;
mod reading;
mod refused;
mod scenarios;
mod siblings;
mod talk;

use crate::mcp::Session;
use crate::support::TestHome;
use serde_json::{Value, json};

/// A home whose agents are shell scripts that get the prompt on standard input.
pub fn home_with(agents: &[(&str, &str)], config: &str) -> TestHome {
    let home = TestHome::with_config("");
    let mut text = config.to_owned();
    for (name, script) in agents {
        let path = home.work().join(format!("{name}.sh"));
        std::fs::write(&path, script).expect("the script can be written");
        text.push_str(&format!("[agents.{name}]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"{}\"]\ngrace = \"1s\"\n", path.display()));
    }
    std::fs::write(home.home.dir.join("config.toml"), text).expect("the configuration can be written");
    home
}

/// A parent's connection under a name of its own.
pub fn client(home: &TestHome, name: &str, args: &[&str]) -> Session {
    let all: Vec<&str> = ["--client", name].iter().chain(args).copied().collect();
    Session::open(&home.home.dir, &home.work(), &all, true)
}

pub fn start(session: &mut Session, title: &str, participants: &[&str]) -> i64 {
    session.done("start_chat", json!({"title": title, "participants": participants}))["chat_id"].as_i64().expect("a number")
}

/// What a chat holds: who said what.
pub fn said(home: &TestHome, chat: i64) -> Vec<(String, String)> {
    let page = home.json(&["chat", "show", &chat.to_string(), "--after", "0"]);
    let of = |entry: &Value| (entry["name"].as_str().unwrap_or_default().to_owned(), entry["text"].as_str().unwrap_or_default().to_owned());
    page["messages"].as_array().expect("messages").iter().map(of).collect()
}
