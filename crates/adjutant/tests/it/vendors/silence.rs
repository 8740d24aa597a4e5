//! A parent that waits while nothing happens: a single call that no timeout of the client ends,
//! without any token in the meantime.

use super::connect::Connected;
use super::{Cli, Turnstile};
use crate::model::Turn;
use serde_json::json;
use std::time::{Duration, Instant};

/// Longer than every timeout that progress renews, and shorter than the absolute ones.
const SILENCE: Duration = Duration::from_secs(190);

fn waits_in_one_call(cli: Cli) {
    let Some(clis) = Turnstile::beside() else {
        return;
    };
    // Codex passes only the variables that its configuration names.
    let connected = Connected::with(cli, clis, |line, home| {
        line.replace(
            "codex mcp add adjutant",
            &format!(
                "codex mcp add adjutant --env ADJ_HOME={}",
                home.home.dir.display()
            ),
        )
    });
    let script = format!("---\nsleep {}\ndone at last", SILENCE.as_secs());
    let began = Instant::now();
    let seen = connected.plays([
        Turn::call(
            "run_subagent",
            json!({ "agent": "echo", "name": "quiet", "prompt": script }),
        ),
        Turn::call("wait_for_subagents", json!({})),
        Turn::say("That is all."),
    ]);
    let took = began.elapsed();
    eprintln!(
        "{cli:?}: {} requests to the model, {took:.1?} from its start to its end",
        seen.len()
    );
    // A start, one wait, and its result: the model is not asked while the parent waits.
    assert_eq!(seen.len(), 3, "{}", connected.told());
    assert!(
        seen[2].last_result().contains("quiet") && seen[2].last_result().contains("at last"),
        "{}",
        connected.told()
    );
    assert!(took >= SILENCE, "{took:?}");
}

#[test]
#[ignore = "takes 190 s and seven CLIs beside each other"]
fn wait_of_190_s_is_one_call_without_tokens() {
    let all = [
        Cli::Claude,
        Cli::Codex,
        Cli::Gemini,
        Cli::Goose,
        Cli::Opencode,
        Cli::Copilot,
        Cli::Qwen,
    ];
    let waiting = all.map(|cli| (cli, std::thread::spawn(move || waits_in_one_call(cli))));
    let failed: Vec<Cli> = waiting
        .into_iter()
        .filter_map(|(cli, thread)| thread.join().is_err().then_some(cli))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}
