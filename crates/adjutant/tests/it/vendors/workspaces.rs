//! From two parallel runs of a real CLI that change the same file to a merged result.

use super::Cli;
use super::case::Case;
use crate::changes::git;
use crate::model::{Seen, Turn};
use serde_json::json;

fn turn(seen: &Seen) -> Turn {
    let text = seen.body.to_string();
    let word = ["Resolve the conflicts", "write left", "write right"]
        .into_iter()
        .find(|word| text.contains(word));
    match (word, seen.results.len()) {
        (Some("write left"), 0) => Turn::shell("printf 'left\\n' > notes.txt"),
        (Some("write right"), 0) => Turn::shell("printf 'right\\n' > notes.txt"),
        (Some(_), 0) => Turn::shell("printf 'left\\nright\\n' > notes.txt"),
        _ => Turn::say("It is written."),
    }
}

fn two_runs_become_one_result(cli: Cli) {
    let Some(case) = Case::new(cli, [Turn::Computed(turn)]) else {
        return;
    };
    let work = case.home.work();
    git(&work, &["init", "-q"]);
    git(&work, &["config", "user.name", "user"]);
    git(&work, &["config", "user.email", "user@example.com"]);
    std::fs::write(work.join("notes.txt"), "nothing\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "base"]);
    let config = format!(
        "[agents.{name}]\nharness = \"{name}\"\npermissions = \"full\"\n",
        name = cli.name()
    );
    std::fs::write(case.home.home.dir.join("config.toml"), config)
        .expect("the home can be written");

    for side in ["left", "right"] {
        case.says(&[
            "run",
            "--detach",
            "--clone",
            "--agent",
            cli.name(),
            "--name",
            side,
            "--",
            &format!("write {side}"),
        ]);
    }
    case.says(&["wait", "--until", "all"]);
    for side in ["left", "right"] {
        let view = case.home.show(side);
        assert_eq!(
            (&view["outcome"], &view["changed_files"]),
            (&json!("succeeded"), &json!(["notes.txt"])),
            "{view}\n{}",
            case.story()
        );
    }
    assert_eq!(
        case.made("notes.txt").as_deref(),
        Some("nothing\n"),
        "each has a clone of its own"
    );

    case.says(&["merge", "left"]);
    assert_eq!(case.made("notes.txt").as_deref(), Some("left\n"));
    let ran = case.ran(&["merge", "right"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert_eq!(
        case.made("notes.txt").as_deref(),
        Some("left\n"),
        "nothing was changed: {ran:?}"
    );
    let ran = case.ran(&["--json", "merge", "right", "--resolve-with", cli.name()]);
    let view: serde_json::Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let resolving = view["data"]["resolving"]["name"]
        .as_str()
        .unwrap_or_else(|| panic!("{view}"))
        .to_owned();
    // On a loaded machine, a run is shown as waiting between its result and its end.
    case.says(&["wait", "--until", "all", &resolving]);
    case.says(&["merge", &resolving]);
    assert_eq!(
        case.made("notes.txt").as_deref(),
        Some("left\nright\n"),
        "{}",
        case.story()
    );
    for run in ["left", "right", &resolving] {
        assert_eq!(case.home.show(run)["workspace"]["state"], "merged", "{run}");
    }
}

#[test]
fn two_runs_of_claude_become_one_result() {
    two_runs_become_one_result(Cli::Claude);
}

#[test]
fn two_runs_of_codex_become_one_result() {
    two_runs_become_one_result(Cli::Codex);
}
