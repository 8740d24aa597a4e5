//! Completion in a shell: what the script of each shell gets from `adj`.

use crate::merge::named_repository;
use crate::readme::path;
use crate::support::{Ran, TestHome};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

/// Completes the last of these words, as the script of a shell does.
fn complete(home: &TestHome, shell: &str, words: &[&str]) -> Ran {
    let mut command = asked(home, shell, words);
    command.output().expect("adj starts").into()
}

fn asked(home: &TestHome, shell: &str, words: &[&str]) -> Command {
    let mut command = home.command(&["--", "adj"]);
    command
        .args(words)
        .env("_ADJ_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n");
    command
}

/// Returns the completed names, without descriptions.
fn names(home: &TestHome, words: &[&str]) -> Vec<String> {
    let ran = complete(home, "fish", words);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.out
        .lines()
        .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn names_of_everything_at_the_hub_are_completed() {
    let home = TestHome::with_config("[pools.night]\nslots = 1\n");
    home.start("asks", "ask \"Which?\"\ndone");
    home.until_status("asks", "waiting_parent_reply");
    home.start("ended", "done");
    home.finished("ended");
    home.ok(&["chat", "start", "about tests"]);
    for (words, expected) in [
        (&["show", ""][..], &["asks", "ended"][..]),
        (&["show", "as"], &["asks"]),
        (&["cancel", ""], &["asks"]),
        (&["rm", ""], &["ended"]),
        (&["run", "--after", ""], &["asks", "ended"]),
        (&["reply", "Q"], &["Q1"]),
        (&["run", "--pool", "ni"], &["night"]),
        (&["run", "-a", "ec"], &["echo"]),
        (&["chat", "show", ""], &["1"]),
        (&["chat", "post", "as"], &["asks"]),
        (&["help", "exit"], &["exit-codes"]),
        (&["help", "pol"], &["policy", "policies"]),
        (&["insta"], &["install"]),
    ] {
        let found: Vec<String> = names(&home, words)
            .into_iter()
            .filter(|name| !name.starts_with('-'))
            .collect();
        let mut sorted = found.clone();
        sorted.sort();
        let mut wanted: Vec<&str> = expected.to_vec();
        wanted.sort_unstable();
        assert_eq!(sorted, wanted, "{words:?}");
    }
    let chats = complete(&home, "fish", &["chat", "show", ""]);
    assert!(chats.out.contains("1\tabout tests\n"), "{chats:?}");
}

#[test]
fn commands_complete_only_what_they_can_act_on() {
    let home = named_repository();
    home.ok(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "edits",
        "--clone",
        "write b text",
    ]);
    home.ok(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "merged",
        "--clone",
        "write c text",
    ]);
    home.ok(&["merge", "merged"]);
    home.ok(&["run", "-w", "-a", "echo", "-n", "reads", "say x"]);
    home.start("asks", "ask \"Which?\"");
    home.until_status("asks", "waiting_parent_reply");
    home.start("wants", "approve \"Run it\"");
    home.until_status("wants", "waiting_parent_reply");
    let plain = |words: &[&str]| {
        names(&home, words)
            .into_iter()
            .filter(|name| !name.starts_with('-'))
            .collect::<Vec<_>>()
    };
    for command in ["merge", "discard"] {
        assert_eq!(plain(&[command, ""]), ["edits"], "{command}");
    }
    let undo = plain(&["undo", ""]);
    assert!(
        undo.contains(&"edits".to_owned()) && !undo.contains(&"asks".to_owned()),
        "{undo:?}"
    );
    assert_eq!(plain(&["reply", ""]), ["Q1"]);
    for command in ["approve", "deny"] {
        assert_eq!(plain(&[command, ""]), ["Q2"], "{command}");
    }
    assert_eq!(plain(&["next", ""]), ["Q1", "Q2"]);
    let settings = plain(&["config", "set", ""]);
    assert!(
        ["live_runs_max", "chats.default_responder"]
            .iter()
            .all(|name| settings.contains(&(*name).to_owned())),
        "{settings:?}"
    );
    assert!(
        settings
            .iter()
            .all(|name| !name.contains("NAME") && name != "webhooks" && name != "agents"),
        "{settings:?}"
    );
    // A command is completed by its name, and by an alias only where nothing else begins so.
    for shell in ["bash", "zsh", "fish"] {
        let ran = complete(&home, shell, &[""]);
        let first: Vec<&str> = ran
            .out
            .lines()
            .map(|line| line.split(['\t', ':']).next().unwrap_or_default())
            .collect();
        assert!(
            first.contains(&"ps")
                && first.contains(&"cancel")
                && !first.contains(&"ls")
                && !first.contains(&"kill"),
            "{shell}: {ran:?}"
        );
    }
    assert_eq!(plain(&["kil"]), ["kill"]);
    // The descriptions are those of the lists.
    let shown = complete(&home, "fish", &["show", ""]).out;
    assert!(
        shown.contains("asks\t? asks Q1") && !shown.contains("waiting_parent_reply"),
        "{shown}"
    );
}

#[test]
fn completion_starts_no_hub_and_prints_no_error() {
    let home = TestHome::with_config("broken = = 1\n");
    for words in [
        &["show", ""][..],
        &["run", "-a", ""],
        &["reply", ""],
        &["chat", "show", ""],
        &["no-such-command", ""],
    ] {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let ran = complete(&home, shell, words);
            assert_eq!(
                (ran.code, ran.err.as_str()),
                (0, ""),
                "{shell} {words:?}: {ran:?}"
            );
        }
    }
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    // Without a home, too.
    let ran: Ran = asked(&home, "bash", &["show", ""])
        .env_remove("HOME")
        .env_remove("ADJ_HOME")
        .output()
        .expect("adj starts")
        .into();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
}

#[test]
fn hub_that_does_not_answer_delays_completion_only_briefly() {
    let home = TestHome::new();
    let hub = UnixListener::bind(home.home.socket()).expect("a socket");
    let began = std::time::Instant::now();
    assert_eq!(names(&home, &["show", "w"]), [""; 0]);
    assert!(
        began.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    drop(hub);
}

#[test]
fn line_of_the_help_installs_completion_in_bash() {
    let home = TestHome::new();
    home.start("parser", "ask \"Which?\"\ndone");
    let help = home.ok(&["completions", "--help"]);
    let line = help
        .lines()
        .find_map(|line| line.strip_prefix("in ~/.bashrc:"))
        .expect("a line for bash")
        .trim()
        .to_owned();
    let script = format!(
        "{line}\n\
         complete -p adj\n\
         COMP_WORDS=(adj show pa) COMP_CWORD=2 COMP_TYPE=9\n\
         _clap_complete_adj adj pa show\n\
         printf '<%s>\\n' \"${{COMPREPLY[@]}}\"\n"
    );
    let adj = home.command(&[]);
    let mut shell = Command::new("/bin/bash");
    shell
        .env_clear()
        .envs(
            adj.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PATH", path())
        .stdin(Stdio::piped());
    let mut child = shell
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bash starts");
    child
        .stdin
        .take()
        .expect("its input")
        .write_all(script.as_bytes())
        .expect("written");
    let ran: Ran = child.wait_with_output().expect("bash ends").into();
    assert!(
        ran.out.contains("_clap_complete_adj adj") && ran.out.ends_with("<parser>\n"),
        "{ran:?}"
    );
    assert_eq!(ran.err, "", "{ran:?}");
}

#[test]
fn variable_of_the_scripts_does_not_change_other_commands() {
    let home = TestHome::new();
    let ran: Ran = home
        .command(&["--version"])
        .env("_ADJ_COMPLETE", "bash")
        .output()
        .expect("adj starts")
        .into();
    assert!(ran.out.starts_with("adj "), "{ran:?}");
    let ran: Ran = asked(&home, "bash", &["show", ""])
        .env_remove("_ADJ_COMPLETE")
        .output()
        .expect("adj starts")
        .into();
    assert_eq!(ran.code, 2, "{ran:?}");
}
