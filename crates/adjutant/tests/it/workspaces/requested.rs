//! Ways to request isolation: with an option, in an agent's configuration, over MCP, by delegation.

use super::{git_output, succeeded, workspace};
use crate::changes::repository;
use crate::mcp::Session;
use adjutant_api::view::Dispatch;
use adjutant_core::Isolation;
use serde_json::{Value, json};
use std::fs;

#[test]
fn repeated_key_creates_one_workspace() {
    let home = repository();
    let dispatch = Dispatch {
        agent: "sh".to_owned(),
        prompt: "do echo x > new.txt".to_owned(),
        name: Some("once".to_owned()),
        cwd: home.work().display().to_string(),
        isolation: Some(Isolation::Clone.into()),
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        ..Dispatch::default()
    };
    home.ok(&["ps"]);
    let first = home.call(&dispatch, "the-key").expect("dispatched");
    let again = home.call(&dispatch, "the-key").expect("repeated");
    assert_eq!(first.identity.run_id, again.identity.run_id);
    let view = succeeded(&home, "once");
    let again = home.call(&dispatch, "the-key").expect("repeated");
    assert_eq!(again.identity.run_id, first.identity.run_id);
    assert_eq!(
        fs::read_dir(home.home.workspaces_dir())
            .expect("a directory")
            .count(),
        1
    );
    let refs = git_output(
        &home.work(),
        &["for-each-ref", "--format=%(refname)", "refs/adjutant"],
    );
    assert!(
        refs.lines()
            .all(|name| name.contains(view["run_id"].as_str().expect("an id"))),
        "{refs}"
    );
}

#[test]
fn agents_configuration_isolates_its_runs() {
    let home = repository();
    let config = home.home.dir.join("config.toml");
    let agents = fs::read_to_string(&config).expect("a configuration");
    fs::write(&config, format!("{agents}isolation = \"clone\"\n")).expect("a configuration");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "apart",
        "do echo changed > one.txt",
    ]);
    let view = succeeded(&home, "apart");
    assert_eq!(view["workspace"]["isolation"], "clone");
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "1\n"
    );
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "here",
        "--isolation",
        "none",
        "do echo changed > one.txt",
    ]);
    assert!(succeeded(&home, "here")["workspace"].is_null());
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "changed\n"
    );
}

#[test]
fn parent_isolates_a_run_over_mcp() {
    let home = repository();
    let mut parent = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    for isolation in ["clone", "worktree", "none"] {
        parent.done(
            "run_subagent",
            json!({"agent": "sh", "name": isolation, "prompt": "do pwd", "isolation": isolation}),
        );
        let view = succeeded(&home, isolation);
        let expected = if isolation == "none" {
            Value::Null
        } else {
            json!(isolation)
        };
        assert_eq!(view["workspace"]["isolation"], expected, "{view}");
    }
    let refused = parent
        .tool(
            "run_subagent",
            json!({"agent": "sh", "prompt": "do pwd", "isolation": "sandbox"}),
        )
        .to_string();
    assert!(
        refused.contains("none") && refused.contains("clone"),
        "{refused}"
    );
}

#[test]
fn child_works_in_the_workspace_of_its_requester() {
    let home = repository();
    let script = "write from-parent.txt x\ndelegate \"---\\nwrite from-child.txt child\" [blocks]\nsay after";
    home.ok(&["run", "-d", "--clone", "-a", "echo", "-n", "asks", script]);
    home.until_status("asks", "waiting_parent_reply");
    home.ok(&["approve", "Q1"]);
    let parent = succeeded(&home, "asks");
    let all = home.json(&["ps", "-a"]);
    let child = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|view| view["parent"] == parent["run_id"])
        .expect("a child")
        .clone();
    let child = succeeded(&home, child["name"].as_str().expect("a name"));
    assert_eq!(
        (&child["cwd"], &child["workspace"]),
        (&parent["cwd"], &Value::Null)
    );
    assert_eq!(
        fs::read_dir(home.home.workspaces_dir())
            .expect("a directory")
            .count(),
        1
    );
    let top = workspace(&parent);
    assert_eq!(
        fs::read_to_string(top.join("from-child.txt"))
            .expect("a file")
            .trim_end(),
        "child"
    );
    assert!(top.join("from-parent.txt").exists());
    assert!(!home.work().join("from-child.txt").exists());
    assert!(
        home.ok(&["diff", "asks"]).contains("from-child.txt"),
        "the requester's work includes it"
    );
}
