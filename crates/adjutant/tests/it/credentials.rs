//! A dispatcher's credentials: its agent receives them, and the home stores them only as long as an
//! attempt needs them.

use crate::support::TestHome;
use adjutant_api::view::{Call, Dispatch, Resume, Retry};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// An agent that records its key, and asks once if its task contains `please-ask`.
const AGENT: &str = r#"prompt=$(cat)
id=$(printf '%s' "$prompt" | grep -oE '[0-9a-f]{8}-[0-9a-f-]{27}' | head -n 1)
printf '%s %s\n' "$CANARY_TOKEN" "$ANTHROPIC_API_KEY" >> ../keys
case "$prompt" in
*"CLARIFICATION RESPONSE"* | *"BLOCKER RESOLVED"* | *"STATE RESTORATION"*) echo "went on" ;;
*please-ask*) printf '[CLARIFICATION_NEEDED]\nagent_id: %s\nreason: which?\n[/CLARIFICATION_NEEDED]\n' "$id" ;;
*please-block*) printf '[STOP_WORK]\nagent_id: %s\nstop_reason: blocker\ndetails: no disk\n[/STOP_WORK]\n' "$id" ;;
esac"#;

/// The same for an agent that reports its version.
const VENDOR: &str = r#"[ "$1" = --version ] && echo 9.9.9 && exit
printf '%s\n' "$ANTHROPIC_API_KEY" >> ../keys"#;

/// Creates a home with a hub, agents without a vendor, and an agent with Anthropic's preset.
fn home() -> TestHome {
    let home = TestHome::new();
    let program = |name: &str, script: &str| {
        let program = home.work().join("..").join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n"))
            .expect("the script can be written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
            .expect("it can be made executable");
        program.display().to_string()
    };
    let (command, vendor) = (program("agent", AGENT), program("vendor", VENDOR));
    let config = format!(
        "[agents.own]\nharness = \"plain\"\ncommand = [{command:?}]\nenv_pass = [\"CANARY_TOKEN\"]\n[agents.vendor]\nharness = \"claude\"\ncommand = [{vendor:?}]\n\
         [agents.configured]\nharness = \"plain\"\ncommand = [{command:?}]\nenv = {{ ANTHROPIC_API_KEY = \"canary-configured\" }}\n"
    );
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    home.ok(&["ps"]);
    home
}

fn env(key: &str) -> BTreeMap<String, String> {
    [("PATH", "/usr/bin:/bin"), ("CANARY_TOKEN", key)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn dispatch(home: &TestHome, name: &str, task: &str, key: &str) {
    let cwd = home.work().display().to_string();
    let call = Dispatch {
        agent: "own".to_owned(),
        prompt: task.to_owned(),
        cwd,
        name: Some(name.to_owned()),
        env: env(key),
        ..Dispatch::default()
    };
    called(home, &call, name);
}

fn called<C: Call>(home: &TestHome, call: &C, key: &str) -> C::Reply {
    home.call(call, key)
        .unwrap_or_else(|error| panic!("{key}: {error:?}"))
}

/// Returns the keys that the agent received, one for each attempt.
fn keys(home: &TestHome) -> Vec<String> {
    let text = std::fs::read_to_string(home.work().join("../keys")).unwrap_or_default();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// Returns the files below the home that contain a text.
fn holding(home: &TestHome, text: &str) -> Vec<PathBuf> {
    fn search(dir: &Path, text: &[u8], found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => search(&path, text, found),
                Ok(kind) if kind.is_file() => {
                    // A file may be removed during the search.
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    if bytes.windows(text.len()).any(|window| window == text) {
                        found.push(path);
                    }
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    search(&home.home.dir, text.as_bytes(), &mut found);
    found
}

fn until_gone(home: &TestHome, text: &str) {
    home.until(&format!("nothing holds {text}"), || {
        holding(home, text).is_empty().then_some(())
    });
}

#[test]
fn vendor_key_is_removed_when_its_run_ends() {
    let home = home();
    let ran = |args: &[&str]| {
        home.command(args)
            .env("ANTHROPIC_API_KEY", "canary-vendor")
            .output()
            .expect("adj starts")
    };
    ran(&[
        "run",
        "--detach",
        "-a",
        "vendor",
        "--name",
        "ends",
        "say hello",
    ]);
    home.finished("ends");
    assert_eq!(keys(&home), ["canary-vendor"], "the agent has it");
    until_gone(&home, "canary-vendor");
    ran(&["retry", "ends"]);
    home.until("the retried run has it from its dispatcher", || {
        (keys(&home).len() == 2).then_some(())
    });
    assert_eq!(keys(&home)[1], "canary-vendor");
    until_gone(&home, "canary-vendor");
    home.ok(&["stop"]);
    assert_eq!(holding(&home, "canary-vendor"), Vec::<PathBuf>::new());
    home.ok(&["clean", "--older-than", "0s", "--yes"]);
    assert_eq!(holding(&home, "canary-vendor"), Vec::<PathBuf>::new());
}

#[test]
fn parked_run_keeps_its_key_until_it_has_ended() {
    let home = home();
    dispatch(&home, "parks", "please-ask", "canary-parked");
    home.until_status("parks", "stopped");
    let held = holding(&home, "canary-parked");
    assert!(
        held.len() == 1 && held[0].parent() == Some(home.home.dir.join("credentials").as_path()),
        "only in its own file: {held:?}"
    );
    let mode = std::fs::metadata(&held[0])
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // A later hub finds the file, and its sweep keeps it.
    home.ok(&["stop"]);
    home.ok(&["reply", "parks", "this one"]);
    assert_eq!(home.finished("parks")["outcome"], "succeeded");
    assert_eq!(keys(&home), ["canary-parked", "canary-parked"]);
    until_gone(&home, "canary-parked");
}

#[test]
fn resumed_run_gets_the_key_of_its_resumer() {
    let home = home();
    dispatch(&home, "blocked", "please-block", "canary-first");
    home.until_status("blocked", "stopped");
    until_gone(&home, "canary-first");
    let resume = Resume {
        run: "blocked".to_owned(),
        resolution: Some("there is one".to_owned()),
        env: env("canary-second"),
        ..Resume::default()
    };
    called(&home, &resume, "resume");
    assert_eq!(home.finished("blocked")["outcome"], "succeeded");
    assert_eq!(keys(&home), ["canary-first", "canary-second"]);
    until_gone(&home, "canary-second");

    let retry = Retry {
        run: "blocked".to_owned(),
        prompt: Some("just end".to_owned()),
        ..Retry::default()
    };
    let again = called(&home, &retry, "retry");
    home.finished(&again.identity.name);
    assert_eq!(keys(&home)[2], "", "nobody gave it one");
}

#[test]
fn configured_key_is_read_for_each_attempt() {
    let home = home();
    home.ok(&[
        "run",
        "--detach",
        "-a",
        "configured",
        "--name",
        "conf",
        "please-ask",
    ]);
    home.until_status("conf", "stopped");
    let config = home.home.dir.join("config.toml");
    assert_eq!(
        holding(&home, "canary-configured"),
        std::slice::from_ref(&config),
        "the store holds none"
    );
    let rotated = std::fs::read_to_string(&config)
        .expect("the configuration")
        .replace("canary-configured", "canary-rotated");
    std::fs::write(&config, rotated).expect("it can be written");
    home.ok(&["reply", "conf", "this one"]);
    home.finished("conf");
    assert_eq!(keys(&home), ["canary-configured", "canary-rotated"]);
}

#[test]
fn refused_dispatch_keeps_no_key() {
    let home = home();
    dispatch(&home, "taken", "just end", "canary-kept");
    home.finished("taken");
    let cwd = home.work().display().to_string();
    let call = Dispatch {
        agent: "own".to_owned(),
        prompt: "x".to_owned(),
        cwd,
        name: Some("taken".to_owned()),
        env: env("canary-refused"),
        ..Dispatch::default()
    };
    assert_eq!(
        home.call(&call, "again")
            .map(|_| ())
            .map_err(|error| error.code),
        Err("invalid".to_owned())
    );
    assert_eq!(holding(&home, "canary-refused"), Vec::<PathBuf>::new());
}

#[test]
fn next_hub_removes_unneeded_credentials() {
    let home = home();
    home.ok(&["stop"]);
    // A file left by a hub that died before it recorded the run.
    let stray = home.home.credentials_dir().join("stray");
    std::fs::write(&stray, "{\"CANARY_TOKEN\":\"canary-stray\"}").expect("it can be written");
    home.ok(&["ps"]);
    until_gone(&home, "canary-stray");
}
