//! Each real CLI behind the fence: it does its work, and what it starts cannot write outside.

use super::Cli;
use super::case::Case;
use crate::fence::landlock::{NO_CAPABILITIES, run_where};
use crate::model::Turn;
use crate::support::skip;
use serde_json::json;

/// Runs a CLI that asks, writes inside, and tries to write outside with its own shell.
fn works_behind_the_fence(cli: Cli, permissions: &str) {
    let Some(case) = Case::new(cli, turns()) else {
        return;
    };
    case.says(&[
        "run",
        "-d",
        "-a",
        cli.name(),
        "-n",
        "job",
        "--permissions",
        permissions,
        "--fence",
        "workspace",
        "--",
        "do what the model says",
    ]);
    works_inside(&case, "mount_namespace");
}

/// The same where only Landlock is available: for an ordinary user on a machine without user
/// namespaces.
fn works_behind_landlock(cli: Cli) {
    let Some(case) = Case::new(cli, turns()) else {
        return;
    };
    let args = [
        "run",
        "-d",
        "-a",
        cli.name(),
        "-n",
        "job",
        "--permissions",
        "full",
        "--fence",
        "best-effort",
        "--",
        "do what the model says",
    ];
    run_where(&case.home, &[], NO_CAPABILITIES, &case.command(&args));
    case.becomes("waiting_parent_reply");
    let fence = &case.view()["fence"];
    if fence["enforced"] == "none"
        && fence["why"]
            .as_str()
            .is_some_and(|why| why.contains("the kernel has no Landlock"))
    {
        case.cancels();
        return skip("the kernel has no Landlock that keeps files from being truncated");
    }
    works_inside(&case, "landlock");
}

fn turns() -> [Turn; 5] {
    [
        Turn::call("ask_parent", json!({ "question": "Which colour?" })),
        Turn::write("paint.txt", "blue\n"),
        Turn::shell(
            "echo inside > shell.txt; echo outside > ../outside.txt || echo outside > ~/outside.txt; cat $ADJ_HOME/adj.db | head -c 9 > read.txt; echo done >> read.txt; cat read.txt",
        ),
        Turn::call(
            "update_subagent_status",
            json!({ "status": "success", "summary": "painted it" }),
        ),
        Turn::say("The paint is blue."),
    ]
}

fn works_inside(case: &Case, enforced: &str) {
    case.becomes("waiting_parent_reply");
    case.replies("blue");
    let view = case.ends();
    assert_eq!(
        (&view["outcome"], &view["summary"]),
        (&json!("succeeded"), &json!("painted it")),
        "{view}\n{}",
        case.story()
    );
    assert_eq!(view["fence"]["enforced"], enforced, "{view}");
    assert_eq!(
        case.made("paint.txt").as_deref(),
        Some("blue\n"),
        "{}",
        case.story()
    );
    assert_eq!(
        case.made("shell.txt").as_deref(),
        Some("inside\n"),
        "{}",
        case.story()
    );
    assert!(
        !case.home.work().with_file_name("outside.txt").exists(),
        "{}",
        case.story()
    );
    // Not the result that the model gets: Gemini CLI sometimes loses the output of a command.
    assert_eq!(
        case.made("read.txt").as_deref(),
        Some("done\n"),
        "{}",
        case.story()
    );
    case.asked(5);
}

#[test]
fn claude_works_behind_the_fence() {
    works_behind_the_fence(Cli::Claude, "full");
}

#[test]
fn codex_works_behind_the_fence() {
    works_behind_the_fence(Cli::Codex, "full");
}

#[test]
fn gemini_works_behind_the_fence() {
    works_behind_the_fence(Cli::Gemini, "full");
}

#[test]
fn opencode_works_behind_the_fence() {
    works_behind_the_fence(Cli::Opencode, "full");
}

#[test]
fn claude_works_behind_landlock() {
    works_behind_landlock(Cli::Claude);
}

#[test]
fn codex_works_behind_landlock() {
    works_behind_landlock(Cli::Codex);
}

#[test]
fn gemini_works_behind_landlock() {
    works_behind_landlock(Cli::Gemini);
}

#[test]
fn opencode_works_behind_landlock() {
    works_behind_landlock(Cli::Opencode);
}

/// Runs a CLI in a profile in which a command needs approval.
fn runs_an_approved_command_behind_the_fence(cli: Cli, permissions: &str) {
    let command = "echo inside > shell.txt; echo outside > ../outside.txt; cat $ADJ_HOME/adj.db | head -c 9 > read.txt; echo done >> read.txt; cat read.txt";
    let Some(case) = Case::new(cli, [Turn::asking_shell(command), Turn::say("It has run.")]) else {
        return;
    };
    case.says(&[
        "run",
        "-d",
        "-a",
        cli.name(),
        "-n",
        "job",
        "--permissions",
        permissions,
        "--fence",
        "workspace",
        "--",
        "do what the model says",
    ]);
    case.becomes("waiting_parent_reply");
    assert_eq!(
        case.made("shell.txt"),
        None,
        "not before its approval: {}",
        case.story()
    );
    case.says(&["approve", "job"]);
    let view = case.succeeds("It has run.");
    assert_eq!(
        (&view["fence"]["enforced"], &view["permissions"]),
        (&json!("mount_namespace"), &json!(permissions)),
        "{view}"
    );
    assert_eq!(
        case.made("shell.txt").as_deref(),
        Some("inside\n"),
        "{}",
        case.story()
    );
    assert!(
        !case.home.work().with_file_name("outside.txt").exists(),
        "{}",
        case.story()
    );
    assert_eq!(
        case.made("read.txt").as_deref(),
        Some("done\n"),
        "{}",
        case.story()
    );
    case.asked(2);
}

#[test]
fn claude_runs_approved_commands_behind_the_fence() {
    for permissions in ["read", "edit"] {
        runs_an_approved_command_behind_the_fence(Cli::Claude, permissions);
    }
}

#[test]
fn codex_runs_approved_commands_behind_the_fence() {
    for permissions in ["read", "edit"] {
        runs_an_approved_command_behind_the_fence(Cli::Codex, permissions);
    }
}
