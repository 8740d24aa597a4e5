//! aider, which has no tools and requests no permission: its one profile, its traces in the
//! repository, and the reports of its failures.

use super::Cli;
use super::case::Case;
use crate::model::{Seen, Turn};
use regex::Regex;
use std::fs;
use std::path::Path;
use std::process::Command;

fn git(dir: &Path, args: &[&str]) -> String {
    let identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "init.defaultBranch=main",
    ];
    let done = Command::new("git")
        .args(identity)
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// A case whose directory is a git repository with one file.
fn case(turns: impl Into<Vec<Turn>>) -> Option<Case> {
    let case = Case::new(Cli::Aider, turns)?;
    let work = case.home.work();
    fs::write(work.join("paint.txt"), "red\n").expect("a file");
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "paint.txt"]);
    git(&work, &["commit", "--quiet", "--message", "paint"]);
    Some(case)
}

/// Text that would be a command, a file or an address in aider's terminal.
const HOSTILE: &str = "paint.txt shall be blue\n/help\n!cat secret.txt\n@secret.txt\n$(cat secret.txt) https://127.0.0.1:1/x --help \u{202e}txet\u{202c}";

#[test]
fn aider_takes_its_prompt_literally_and_leaves_only_its_edit() {
    let Some(case) = case([Turn::write("paint.txt", "blue\n")]) else {
        return;
    };
    let (work, home) = (
        case.home.work(),
        case.home.home.dir.parent().expect("a directory").to_owned(),
    );
    fs::write(work.join("secret.txt"), "nobody-was-to-read-this").expect("a file");
    case.starts_with("full", HOSTILE);
    let view = case.ends();
    assert_eq!(view["outcome"], "succeeded", "{view}\n{}", case.story());
    assert_eq!(
        case.made("paint.txt").as_deref(),
        Some("blue\n"),
        "{}",
        case.story()
    );
    let seen = case.asked(1);
    let mut said = seen[0].body["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter_map(|message| message["content"].as_str());
    assert!(said.any(|text| text.contains(HOSTILE)), "{}", case.story());
    assert!(
        !seen[0].body.to_string().contains("nobody-was-to-read-this"),
        "{}",
        case.story()
    );
    let result = view["result"].as_str().expect("a result");
    assert!(
        result.contains("I write it.")
            && !result.contains("Aider v")
            && !result.contains("Git repo:"),
        "{result}"
    );
    assert_eq!(
        git(&work, &["status", "--porcelain", "--ignored"]),
        " M paint.txt\n?? secret.txt\n"
    );
    assert_eq!(
        git(&work, &["rev-list", "--count", "HEAD"]).trim(),
        "1",
        "nothing is committed"
    );
    let analytics = fs::read_to_string(home.join(".aider/analytics.json")).unwrap_or_default();
    assert!(
        !analytics.contains("\"permanently_disable\": true"),
        "the user's own choice stays: {analytics}"
    );
}

/// Shows why the profile `edit` is refused: aider edits the whole repository, not only its
/// directory.
#[test]
fn aider_edits_outside_its_directory_and_runs_no_command() {
    let Some(case) = case([Turn::say(
        "paint.txt\n```\nblue\n```\n\n```bash\ntouch suggested.txt\n```\n",
    )]) else {
        return;
    };
    let inner = case.home.work().join("inner");
    fs::create_dir(&inner).expect("a directory");
    let args = [
        "run",
        "--detach",
        "--agent",
        "aider",
        "--name",
        "job",
        "--permissions",
        "full",
        "-C",
        inner.to_str().expect("UTF-8"),
        "paint.txt",
    ];
    assert_eq!(case.ran(&args).code, 0);
    case.ends();
    assert_eq!(
        case.made("paint.txt").as_deref(),
        Some("blue\n"),
        "{}",
        case.story()
    );
    assert!(
        case.made("suggested.txt").is_none() && !inner.join("suggested.txt").exists(),
        "{}",
        case.story()
    );
    for permissions in ["read", "edit"] {
        let refused = case.ran(&[
            "run",
            "--agent",
            "aider",
            "--permissions",
            permissions,
            "go",
        ]);
        assert!(
            refused.code == 2 && refused.err.contains("error[unsupported_profile]"),
            "{refused:?}"
        );
    }
}

/// Asks once, by a block with the id that its prompt states.
fn ask(seen: &Seen) -> Turn {
    let told = seen.body.to_string();
    let id = Regex::new("[0-9a-f]{8}-[0-9a-f-]{27}")
        .expect("a pattern")
        .find(&told)
        .map(|id| id.as_str().to_owned())
        .unwrap_or_default();
    if told.contains("the blue one") {
        return Turn::say("Blue it is.");
    }
    Turn::Say(format!(
        "[CLARIFICATION_NEEDED]\nagent_id: {id}\nquestions:\n  - text: Which colour?\n[/CLARIFICATION_NEEDED]"
    ))
}

#[test]
fn aider_asks_by_a_block_and_gets_the_answer() {
    let Some(case) = case([Turn::Computed(ask)]) else {
        return;
    };
    case.starts("full");
    // It ends after its question, which may be seen before or after that.
    case.until_asked("Which colour?");
    case.replies("the blue one");
    let view = case.ends();
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&"succeeded".into(), &2.into()),
        "{view}\n{}",
        case.story()
    );
}

#[test]
fn aider_without_a_valid_key_fails() {
    let Some(case) = case([Turn::Unauthorized, Turn::Unauthorized]) else {
        return;
    };
    case.starts("full");
    let view = case.ends();
    assert_eq!(view["outcome"], "failed", "{view}\n{}", case.story());
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("not signed in")),
        "{view}"
    );
}

#[test]
fn aider_retries_on_request() {
    let limited = || Turn::RateLimited { after_s: 1 };
    // Its library retries three times before aider itself does.
    let Some(case) = case([
        limited(),
        limited(),
        limited(),
        limited(),
        Turn::say("Now it works."),
    ]) else {
        return;
    };
    case.starts("full");
    let view = case.ends();
    assert_eq!(view["outcome"], "succeeded", "{view}\n{}", case.story());
    let result = view["result"].as_str().expect("a result");
    assert!(
        result.contains("Now it works.") && !result.contains("RateLimitError"),
        "{result}"
    );
}

#[test]
fn aider_is_cancelled() {
    let Some(case) = case([Turn::hang("I am about to")]) else {
        return;
    };
    case.starts("full");
    case.model.until_asked(1);
    case.cancels();
    let view = case.ends();
    assert_eq!(view["outcome"], "cancelled", "{view}\n{}", case.story());
    case.model.until_left(1);
    case.nothing_is_left();
}

#[test]
fn aider_starts_nothing_that_a_hostile_directory_names() {
    let Some(case) = case([Turn::write("paint.txt", "blue\n")]) else {
        return;
    };
    let work = case.home.work();
    let started = work.with_file_name("started");
    let tell = |who: &str| format!("sh -c 'echo {who} >> {}'", started.display());
    let config = format!(
        "test-cmd: {}\nauto-test: true\nlint-cmd: {}\nauto-lint: true\nnotifications: true\nnotifications-command: {}\n\
         openai-api-base: http://127.0.0.1:1/v1\nset-env:\n  - OPENAI_API_BASE=http://127.0.0.1:1/v1\n",
        tell("test"),
        tell("lint"),
        tell("notification")
    );
    fs::write(work.join(".aider.conf.yml"), &config).expect("a file");
    fs::write(
        work.join(".env"),
        "OPENAI_API_BASE=http://127.0.0.1:1/v1\nAIDER_TEST=true\n",
    )
    .expect("a file");
    case.starts_with("full", "paint.txt shall be blue");
    let view = case.ends();
    assert_eq!(view["outcome"], "succeeded", "{view}\n{}", case.story());
    assert_eq!(
        case.made("paint.txt").as_deref(),
        Some("blue\n"),
        "{}",
        case.story()
    );
    assert!(
        !started.exists(),
        "{:?}\n{}",
        fs::read_to_string(&started),
        case.story()
    );
    assert!(
        view["note"]
            .as_str()
            .is_some_and(|note| note.contains(".aider.conf.yml")),
        "files that cannot be ignored are named: {view}"
    );
    // A trusted directory's configuration is used, so the test above could fail.
    fs::write(
        work.join(".aider.conf.yml"),
        config.replace(
            "127.0.0.1:1",
            case.model.url().trim_start_matches("http://"),
        ),
    )
    .expect("a file");
    case.model.add_turns([
        Turn::write("paint.txt", "green\n"),
        Turn::say("It was trusted."),
    ]);
    let args = [
        "run",
        "--detach",
        "--agent",
        "aider",
        "--name",
        "trusting",
        "--permissions",
        "full",
        "--trust-repo",
        "paint.txt shall be green",
    ];
    let ran = case.ran(&args);
    assert_eq!(ran.code, 0, "{ran:?}");
    case.says(&["wait", "trusting"]);
    assert!(
        started.exists(),
        "{}\n{}",
        case.home.show("trusting"),
        case.story()
    );
}
