//! `adj agents add`: an agent is tested before it is added, and the rest of the file is unchanged.

use super::Rig;
use serde_json::json;

const MODES: &str = r#"{"currentModeId":"yolo","availableModes":[{"id":"yolo","name":"YOLO"},{"id":"ask","name":"Ask first"}]}"#;

#[test]
fn agent_is_tried_and_written() {
    let Some(rig) = Rig::new("# mine\nlive_runs_max = 3\n") else {
        return;
    };
    let path = rig.home.home.dir.join("config.toml");
    let ran = rig.adj(&[
        "--json",
        "agents",
        "add",
        "mine",
        "--env-pass",
        "MY_KEY",
        "--",
        "my-agent",
        "--load",
        "--greet",
        "--modes",
        MODES,
    ]);
    let data = ran.data();
    assert_eq!(
        (
            &data["name"],
            &data["version"],
            &data["mcp_http"],
            &data["load_session"]
        ),
        (
            &json!("The test's agent"),
            &json!("1.2.3"),
            &json!(true),
            &json!(true)
        )
    );
    assert_eq!(
        (
            &data["modes"],
            &data["profiles"]["edit"]["mode"],
            &data["profiles"]["full"]["mode"]
        ),
        (&json!(["yolo", "ask"]), &json!("ask"), &json!("yolo"))
    );
    assert_eq!(data["sign_in"], json!(["Log in (run acp-agent login)"]));
    let text = std::fs::read_to_string(&path).expect("a file");
    assert!(text.starts_with("# mine\nlive_runs_max = 3\n\n[agents.mine]\nharness = \"acp\"\ncommand = [\"my-agent\", "), "{text}");
    assert!(text.contains("env_pass = [\"MY_KEY\"]"), "{text}");
    // The agent works, and its page is complete.
    let run = rig.adj_with(
        &[
            "run",
            "-a",
            "mine",
            "-n",
            "job",
            "-w",
            "do: [\"who\"]\ndo: [\"mode\"]\n",
        ],
        &[("MY_KEY", "k")],
    );
    let log = rig.home.log("job");
    assert!(
        run.code == 0 && log.contains("key k") && log.contains("mode ask"),
        "{run:?} {log}"
    );
    let page = rig.adj(&["agents", "mine"]);
    let holes: Vec<&str> = page
        .out
        .lines()
        .filter(|line| {
            line.trim_end().ends_with(':')
                || line.contains(" : ")
                || line.len() > 13 && line[12..].trim().is_empty()
        })
        .collect();
    assert!(
        page.code == 0 && holes.is_empty() && page.out.contains("MY_KEY"),
        "{holes:?} {page:?}"
    );
    // A second agent of that name is refused, and so is a built-in name.
    for name in ["mine", "claude", "echo"] {
        let again = rig.adj(&["agents", "add", name, "--", "my-agent"]);
        assert!(
            again.code == 7 && again.err.contains("already"),
            "{again:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), text);
    let told = rig.adj(&["agents", "add", "other", "--", "my-agent", "--stdio"]);
    assert!(
        told.code == 0
            && told.out.contains("over stdio")
            && told.out.contains("new session")
            && told.err.contains("adj agents test other"),
        "{told:?}"
    );
}

#[test]
fn agents_of_the_registry_are_offered_and_known_by_name() {
    let Some(rig) = Rig::new("") else { return };
    assert!(!rig.adj(&["agents"]).err.contains("mistral-vibe"));
    rig.program("vibe-acp", "exec my-agent");
    let offered = rig.adj(&["agents"]);
    assert!(
        offered.err.contains("found mistral-vibe, which speaks ACP but has not been tested; add it with: adj agents add mistral-vibe"),
        "{offered:?}"
    );
    let added = rig.adj(&["agents", "add", "mistral-vibe"]);
    let text = std::fs::read_to_string(rig.home.home.dir.join("config.toml")).expect("a file");
    assert!(
        added.code == 0 && text.contains("command = [\"vibe-acp\"]"),
        "{added:?} {text}"
    );
    assert!(!rig.adj(&["agents"]).err.contains("found mistral-vibe"));
    let unknown = rig.adj(&["agents", "add", "nobody"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("has no agent \"nobody\""),
        "{unknown:?}"
    );
}

#[test]
fn program_with_a_preset_is_added_with_a_note() {
    let Some(rig) = Rig::new("") else { return };
    for (name, program, preset) in [
        ("g", "gemini", Some("gemini")),
        ("o", "opencode", Some("opencode")),
        ("v", "vibe-acp", None),
    ] {
        rig.program(program, "exec my-agent");
        let added = rig.adj(&["agents", "add", name, "--", program, "--acp"]);
        let note = preset.map(|preset| format!("note: {preset} has a preset"));
        let is_noted = note.as_ref().map_or_else(
            || !added.err.contains("has a preset"),
            |note| added.err.contains(note.as_str()),
        );
        assert!(added.code == 0 && is_noted, "{program}: {added:?}");
    }
}

#[test]
fn agent_that_does_not_answer_is_not_written() {
    let Some(rig) = Rig::new("") else { return };
    rig.program("silent", "setsid sleep 3600 & exec sleep 3600");
    rig.program("quits", "echo 'unknown option --acp' >&2; exit 2");
    for (command, code, why) in [
        (&["silent"][..], 125, "did not start a session within 1s"),
        (
            &["quits", "--acp"],
            125,
            "ended with exit code 2 before it started a session: unknown option --acp",
        ),
        (&["my-agent", "--version", "2"], 125, "speaks version 2"),
        (
            &["my-agent", "--auth"],
            125,
            "it signs in by Log in (run acp-agent login)",
        ),
        (
            &["my-agent", "--mute", "session/new"],
            125,
            "did not start a session within 1s",
        ),
        (&["nobody"], 127, "program \"nobody\" not found on PATH"),
    ] {
        let timeout = if why.contains("1s") { "1s" } else { "30s" };
        let args = ["agents", "add", "mine", "--timeout", timeout, "--"]
            .iter()
            .chain(command)
            .copied()
            .collect::<Vec<_>>();
        let ran = rig.adj(&args);
        assert!(
            ran.code == code && ran.err.contains(why),
            "{command:?} {ran:?}"
        );
    }
    assert_eq!(
        std::fs::read_to_string(rig.home.home.dir.join("config.toml")).expect("a file"),
        ""
    );
    assert_eq!(rig.home.processes(), [], "no process of the test is left");
    for name in ["Mine", "a b", "-x"] {
        assert_eq!(
            rig.adj(&["agents", "add", name, "--", "my-agent"]).code,
            2,
            "{name}"
        );
    }
    for pattern in ["ADJ_HOME", "LD_PRELOAD", "*"] {
        assert_eq!(
            rig.adj(&[
                "agents",
                "add",
                "mine",
                "--env-pass",
                pattern,
                "--",
                "my-agent"
            ])
            .code,
            2,
            "{pattern}"
        );
    }
}
