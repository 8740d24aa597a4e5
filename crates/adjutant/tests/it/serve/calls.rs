//! A run driven over HTTP.

use super::Site;
use serde_json::json;
use std::io::Read;

#[test]
fn client_drives_a_run_from_dispatch_to_its_end() {
    let site = Site::new();
    let parent = site.caller(&site.token("parent", &["--client", "/work/app"]));
    let body = json!({"agent": "echo", "prompt": "ask \"Which colour?\" [options: red|green]\nsay done\n", "cwd": site.home.work(), "name": "job"})
        .to_string();
    let dispatch = |body: &str| {
        parent.send(
            "POST",
            "/api/v1/dispatch",
            &[("idempotency-key", "job-1")],
            body,
        )
    };
    let first = dispatch(&body);
    assert_eq!(first.status, 200, "{first:?}");
    let again = dispatch(&body);
    assert_eq!(
        (again.status, again.json()["run_id"].clone()),
        (200, first.json()["run_id"].clone())
    );
    let reused = dispatch(&body.replace("red", "blue"));
    assert!(
        reused.status == 409 && reused.json()["code"] == "key_reused",
        "{reused:?}"
    );
    assert_eq!(
        parent.call("runs", &json!({"all": true}))["runs"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );

    let waited = parent.call("wait", &json!({"wait_ms": 20_000}));
    assert_eq!(
        (&waited["outcome"], &waited["needs"][0]["question"]),
        (&json!("event"), &json!("Which colour?"))
    );
    let request = waited["needs"][0]["message_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    parent.call(
        "answer",
        &json!({"answers": [{"message_id": request, "answer": "green"}]}),
    );
    let late = parent.post(
        "answer",
        &json!({"answers": [{"message_id": request, "answer": "red"}]}),
    );
    assert_eq!(late.status, 409, "{late:?}");
    let ended = parent.call(
        "wait",
        &json!({"runs": ["job"], "until": "all", "wait_ms": 20_000}),
    );
    assert_eq!(ended["ended"][0]["outcome"], "succeeded", "{ended}");
    // The run belongs to the client, on the socket too.
    assert_eq!(site.home.show("job")["owner"], "client:/work/app");
}

#[test]
fn client_sets_no_arguments_or_variables_of_an_agent() {
    let site = Site::new();
    let [client, person] = [
        ("client", &["--client", "/work/app"][..]),
        ("person", &["--role", "person"]),
    ]
    .map(|(name, args)| site.caller(&site.token(name, args)));
    let order = |more: serde_json::Value| {
        let mut order = json!({"agent": "echo", "prompt": "say x", "cwd": site.home.work()});
        order
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        order
    };
    for more in [
        json!({"set_env": {"LD_PRELOAD": "/x"}}),
        json!({"args": ["--yolo"]}),
    ] {
        let refused = client.post("dispatch", &order(more.clone()));
        assert!(
            refused.status == 403 && refused.json()["code"] == "not_allowed",
            "{more}: {refused:?}"
        );
    }
    assert_eq!(
        person
            .post("dispatch", &order(json!({"set_env": {"MINE": "1"}})))
            .status,
        200
    );
    assert_eq!(
        site.home.json(&["ps", "-a"]).as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn kill_of_the_hub_breaks_a_wait_that_can_be_repeated() {
    let mut site = Site::new();
    let token = site.token("parent", &[]);
    let parent = site.caller(&token);
    parent.dispatch(&site.home.work(), "job", "sleep 600");
    site.home.until("it runs", || {
        (site.home.show("job")["state"] == "running").then_some(())
    });
    let mut waiting = parent.open(
        "POST",
        "/api/v1/wait",
        &[],
        &json!({"runs": ["job"], "wait_ms": 600_000}).to_string(),
    );
    site.kill_hub();
    let mut rest = Vec::new();
    // Closed or reset, and never a reply.
    let _end = waiting.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    site.revive();
    let parent = site.caller(&token);
    parent.call("cancel", &json!({"run": "job"}));
    let ended = parent.call(
        "wait",
        &json!({"runs": ["job"], "until": "all", "wait_ms": 20_000}),
    );
    assert_eq!(ended["ended"][0]["outcome"], "cancelled", "{ended}");
}

#[test]
fn reader_sees_changes_without_a_new_snapshot() {
    let home = crate::changes::repository();
    let config = home.home.dir.join("config.toml");
    let agents = std::fs::read_to_string(&config).expect("a configuration");
    std::fs::write(&config, format!("listen = \"127.0.0.1:0\"\n{agents}")).expect("written");
    let site = Site {
        port: super::port_of(&home),
        home,
    };
    let reader = site.caller(&site.token("reader", &["--role", "read-only"]));
    site.home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "job",
        "write notes.txt first",
    ]);
    let workspace = site.home.finished("job")["workspace"]["path"]
        .as_str()
        .expect("a workspace")
        .to_owned();
    std::fs::write(
        std::path::Path::new(&workspace).join("notes.txt"),
        "edited by hand\n",
    )
    .expect("written");
    let refs = || {
        let listed = std::process::Command::new("git")
            .args(["for-each-ref", "refs/adjutant"])
            .current_dir(site.home.work())
            .output();
        String::from_utf8(listed.expect("git is installed").stdout).expect("text")
    };
    let before = refs();
    let refused = reader.post("diff", &json!({"run": "job"}));
    assert!(
        refused.status == 403 && refused.body.contains("kept"),
        "{refused:?}"
    );
    let kept = reader.call("diff", &json!({"run": "job", "kept": true}));
    assert!(
        kept["text"]
            .as_str()
            .is_some_and(|text| text.contains("+first") && !text.contains("edited")),
        "{kept}"
    );
    assert_eq!(refs(), before);
    assert!(
        site.home.json(&["diff", "job"])["text"]
            .as_str()
            .is_some_and(|text| text.contains("edited"))
    );
    assert!(refs() != before, "the person's call takes one");
}
