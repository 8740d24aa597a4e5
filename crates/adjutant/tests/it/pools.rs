//! Pools, priorities and dependencies between runs.

use crate::mcp::Session;
use crate::readme;
use crate::support::{Ran, TestHome, kill};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

const GPU: &str = "[pools.gpu]\nslots = 1\n";

#[test]
fn pools_and_budgets_work_as_the_readme_shows() {
    let home = TestHome::with_config(readme::block("Pools and budgets", "toml"));
    for line in readme::blocks("Pools and budgets", "sh")
        .into_iter()
        .flat_map(str::lines)
    {
        let ran: Ran = readme::typed(&home, line).output().expect("a shell").into();
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        assert!(
            !line.starts_with("adj budget") || ran.out.contains("cost") && ran.out.contains("time"),
            "{ran:?}"
        );
    }
    assert_eq!(
        (
            &pool(&home, "heavy")["slots"],
            &pool(&home, "heavy")["paused"]
        ),
        (&json!(2), &json!(true))
    );
    home.ok(&["pools", "set", "heavy", "--slots", "4"]);
    home.ok(&["pools", "resume", "heavy"]);
    for run in ["build", "test", "fix"] {
        assert_eq!(home.finished(run)["outcome"], "succeeded", "{run}");
    }
}

/// Dispatches a run of the echo agent with more arguments.
fn start(home: &TestHome, name: &str, script: &str, more: &[&str]) {
    home.ok(&[
        &["run", "--detach", "--agent", "echo", "--name", name][..],
        more,
        &[script],
    ]
    .concat());
}

fn pool(home: &TestHome, name: &str) -> Value {
    let list = home.json(&["pools"]);
    list["pools"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|pool| pool["name"] == name)
        .cloned()
        .expect("the pool")
}

#[test]
fn pool_limits_its_runs_and_shows_why_they_wait() {
    let home = TestHome::with_config(GPU);
    start(&home, "a", "ask \"go?\"", &["--pool", "gpu"]);
    home.until_status("a", "waiting_parent_reply");
    start(&home, "b", "say b", &["--pool", "gpu"]);
    start(&home, "c", "say c", &["--pool", "gpu", "--priority", "p0"]);
    start(&home, "free", "say free", &[]);
    home.finished("free");
    let b = home.show("b");
    assert_eq!(
        (
            &b["pool"],
            &b["priority"],
            &b["queue_place"],
            &b["queue"]["waiting_for"]
        ),
        (&json!("gpu"), &json!("P1"), &json!(2), &json!("slot"))
    );
    assert_eq!(
        b["queue"]["starts_about"],
        Value::Null,
        "nothing was measured"
    );
    assert_eq!(home.show("c")["queue_place"], 1);
    let text = home.ok(&["show", "b"]);
    assert!(
        text.contains("gpu, P1, place 2 in its queue")
            && text.contains("the only slot of pool gpu is in use"),
        "{text}"
    );
    let gpu = pool(&home, "gpu");
    assert_eq!(
        (&gpu["slots"], &gpu["live"], &gpu["queued"], &gpu["waiting"]),
        (
            &json!(1),
            &json!(1),
            &json!(2),
            &json!([{"for": "slot", "runs": 2}])
        )
    );
    home.ok(&["reply", "a", "go"]);
    let (b, c) = (home.finished("b"), home.finished("c"));
    assert!(
        c["started_at"].as_str() <= b["started_at"].as_str(),
        "the higher priority starts first: {b} {c}"
    );
}

#[test]
fn changes_of_a_pool_survive_the_hub() {
    let home = TestHome::with_config(GPU);
    home.ok(&["pools", "pause", "gpu"]);
    start(&home, "a", "say a", &["--pool", "gpu"]);
    let a = home.show("a");
    assert_eq!(
        (
            &a["state"],
            &a["queue"]["waiting_for"],
            &a["queue"]["next_step"]
        ),
        (
            &json!("queued"),
            &json!("pool_paused"),
            &json!("adj pools resume gpu")
        )
    );
    assert!(home.ok(&["ps"]).contains("queued: pool paused"));
    // Only a person can let it start, so there is nothing to wait for.
    for args in [
        ["wait", "a"].as_slice(),
        &["wait", "--until", "all"],
        &["wait"],
    ] {
        let waited = home.adj(args);
        assert!(
            waited.code == 3 && waited.err.contains("a queued: pool gpu is paused"),
            "{waited:?}"
        );
        assert!(
            waited.err.contains("next: adj pools resume gpu"),
            "{waited:?}"
        );
    }
    start(&home, "asks", "ask \"go?\"", &[]);
    home.until_status("asks", "waiting_parent_reply");
    let waited = home.adj(&["wait"]);
    assert!(
        waited.code == 3 && waited.out.contains("go?") && waited.err.contains("pool gpu is paused"),
        "what asks is shown: {waited:?}"
    );
    home.ok(&["cancel", "asks"]);
    home.finished("asks");
    kill(home.hub_pid());
    assert_eq!(pool(&home, "gpu")["paused"], true);
    assert_eq!(home.show("a")["state"], "queued");
    let set = home.ok(&["pools", "set", "gpu", "--slots", "3"]);
    assert!(set.contains("gpu has 3 slots"), "{set}");
    kill(home.hub_pid());
    let gpu = pool(&home, "gpu");
    assert_eq!(
        (&gpu["slots"], &gpu["slots_configured"], &gpu["paused"]),
        (&json!(3), &json!(1), &json!(true))
    );
    home.ok(&["pools", "resume", "gpu"]);
    home.finished("a");
    home.ok(&["pools", "set", "gpu", "--slots", "configured"]);
    assert_eq!(pool(&home, "gpu")["slots"], 1);
}

#[test]
fn run_starts_after_others() {
    let home = TestHome::new();
    start(&home, "first", "ask \"go?\"", &[]);
    start(&home, "next", "say next", &["--after", "first"]);
    start(
        &home,
        "last",
        "say last",
        &["--after", "next", "--after", "first:any"],
    );
    let next = home.show("next");
    assert_eq!(
        (&next["queue"]["waiting_for"], &next["queue_place"]),
        (&json!("after"), &Value::Null)
    );
    assert_eq!(
        next["after"],
        json!([{"run_id": home.run_id("first"), "name": "first", "on": "success", "state": "open"}])
    );
    let text = home.ok(&["show", "last"]);
    assert!(
        text.contains("it starts after") && text.contains("first (any end)"),
        "{text}"
    );
    home.until_status("first", "waiting_parent_reply");
    kill(home.hub_pid());
    home.ok(&["reply", "first", "go"]);
    let (first, next, last) = (
        home.finished("first"),
        home.finished("next"),
        home.finished("last"),
    );
    assert!(
        first["ended_at"].as_str() <= next["started_at"].as_str()
            && next["ended_at"].as_str() <= last["started_at"].as_str()
    );
    let events = home.ok(&["events", "next"]);
    assert!(
        events.contains("run.queue_changed") && events.contains("first ended: succeeded"),
        "{events}"
    );
}

#[test]
fn failed_dependency_cancels_or_holds_dependents() {
    let home = TestHome::new();
    start(&home, "first", "ask \"go?\"\nfail 3", &[]);
    start(&home, "cancelled", "say no", &["--after", "first"]);
    start(
        &home,
        "held",
        "say held",
        &["--after", "first", "--after-failed", "hold"],
    );
    start(
        &home,
        "waiting",
        "say waiting",
        &["--after", "first", "--after-failed", "hold"],
    );
    home.until_status("first", "waiting_parent_reply");
    home.ok(&["reply", "first", "go"]);
    let cancelled = home.finished("cancelled");
    assert_eq!(
        (&cancelled["outcome"], &cancelled["reason"]),
        (&json!("cancelled"), &json!("dependency first failed"))
    );
    let held = home.until("held is held", || {
        Some(home.show("held")).filter(|run| run["queue"]["waiting_for"] == "after_failed")
    });
    assert_eq!(
        held["queue"]["next_step"],
        "adj retry first   or   adj resume held"
    );
    home.ok(&["resume", "held"]);
    assert_eq!(home.finished("held")["outcome"], "succeeded");
    // A retry of the failed run counts for it.
    let retry = home.ok(&["retry", "first", "say fixed"]).trim().to_owned();
    home.finished(&retry);
    assert_eq!(home.finished("waiting")["outcome"], "succeeded");
    let refused = home.adj(&["run", "-d", "-a", "echo", "--after", "first", "say x"]);
    assert!(refused.code == 2 || refused.code == 1, "{refused:?}");
    assert!(
        refused.err.contains("first did not succeed") && refused.err.contains("first:any"),
        "{refused:?}"
    );
    start(&home, "anyway", "say x", &["--after", "first:any"]);
    home.finished("anyway");
}

#[test]
fn held_run_needs_its_owner() {
    let home = TestHome::new();
    start(&home, "first", "fail 3", &[]);
    home.finished("first");
    home.ok(&["inbox"]);
    let hold = ["--after", "first", "--after-failed", "hold"];
    let next = "adj retry first   or   adj resume held   or   adj cancel held";
    let waited = home.adj(
        &[
            &["run", "-w", "-a", "echo", "-n", "held"],
            &hold[..],
            &["say held"],
        ]
        .concat(),
    );
    assert!(
        waited.code == 3
            && waited.err.contains(next)
            && waited.err.contains("held held: first did not succeed"),
        "{waited:?}"
    );
    assert!(
        waited.err.contains("■ held: other run failed")
            && waited.err.contains("first did not succeed"),
        "{waited:?}"
    );
    let named = home.adj(&["wait", "held"]);
    assert!(named.code == 3 && named.err.contains(next), "{named:?}");
    let inbox = home.ok(&["inbox"]);
    assert!(
        inbox.lines().any(|line| line.starts_with("held")
            && line.contains("first did not succeed; needs: retry first")),
        "{inbox}"
    );
    assert!(home.ok(&["ps"]).contains("■ held: other run failed"));
    // A run that becomes held while a call waits for it.
    start(&home, "asks", "ask \"go?\"\nfail 3", &[]);
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "later",
        "--after",
        "asks",
        "--after-failed",
        "hold",
        "say later",
    ]);
    home.until_status("asks", "waiting_parent_reply");
    let mut command = home.command(&["wait", "later"]);
    let waiting = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("adj starts");
    home.ok(&["reply", "asks", "go"]);
    let later: crate::support::Ran = waiting.wait_with_output().expect("it ends").into();
    assert!(
        later.code == 3 && later.err.contains("adj resume later"),
        "{later:?}"
    );
    kill(home.hub_pid());
    home.ok(&["resume", "held"]);
    assert_eq!(home.finished("held")["outcome"], "succeeded");
    // A retry replaces the failed run, so no run is held any more.
    home.ok(&["retry", "asks", "say fixed"]);
    assert_eq!(home.finished("later")["outcome"], "succeeded");
    let inbox = home.ok(&["inbox"]);
    assert!(
        !inbox.contains("held") && !inbox.contains("later"),
        "{inbox}"
    );
}

#[test]
fn held_run_ends_a_clients_wait() {
    let home = TestHome::new();
    let mut parent = crate::mcp::Session::open(&home.home.dir, &home.work(), &[], false);
    let started = parent.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nfail 3", "name": "first", "cwd": home.work()}),
    );
    home.finished("first");
    parent.done(
        "wait_for_subagents",
        json!({"run_ids": [started["run_id"]]}),
    );
    let held = json!({"agent": "echo", "prompt": "---\nsay x", "name": "held", "cwd": home.work(), "after": ["first"], "after_failed": "hold"});
    let started = parent.tool("run_subagent", held);
    let hint = "next: retry first (steer_subagent action=retry), or steer_subagent action=resume|cancel run_id=held";
    assert!(crate::mcp::text(&started).contains(hint), "{started}");
    let waited = parent.tool("wait_for_subagents", json!({}));
    let told = crate::mcp::text(&waited);
    assert!(
        told.contains("first did not succeed")
            && told.contains(hint)
            && !told.contains("still working"),
        "{told}"
    );
    let listed = parent.tool("get_pending_questions", json!({}));
    assert!(crate::mcp::text(&listed).contains("held"), "{listed}");
    parent.done(
        "steer_subagent",
        json!({"run_id": "held", "action": "resume"}),
    );
    assert_eq!(home.finished("held")["outcome"], "succeeded");
}

#[test]
fn run_says_why_it_is_queued_and_when_it_starts() {
    let home = TestHome::with_config(GPU);
    home.ok(&["pools", "pause", "gpu"]);
    let started = home.adj(&[
        "run", "-d", "-a", "echo", "-n", "a", "--pool", "gpu", "say a",
    ]);
    assert_eq!(started.out, "a\n");
    assert!(
        started.err.contains("a queued: pool gpu is paused\n")
            && started.err.contains("next: adj pools resume gpu"),
        "{started:?}"
    );
    assert!(home.ok(&["show", "a"]).contains("pool gpu is paused"));
    let mut command = home.command(&[
        "run", "-w", "-a", "echo", "-n", "b", "--pool", "gpu", "say b",
    ]);
    let waiting = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("adj starts");
    home.until("b is queued", || {
        home.json(&["ps"])
            .to_string()
            .contains("\"b\"")
            .then_some(())
    });
    home.ok(&["pools", "resume", "gpu"]);
    let b: crate::support::Ran = waiting.wait_with_output().expect("it ends").into();
    assert!(
        b.code == 0 && b.err.contains("b queued: pool gpu is paused; waiting"),
        "{b:?}"
    );
    assert!(b.err.contains("b started with echo"), "{b:?}");
}

#[test]
fn retry_keeps_the_dependencies_of_its_run() {
    let home = TestHome::with_config("[pools.gpu]\nslots = 2\n");
    start(&home, "first", "ask \"go?\"\nfail 3", &[]);
    start(&home, "slow", "ask \"slow?\"", &[]);
    start(
        &home,
        "next",
        "say next",
        &["--after", "first", "--after", "slow:any"],
    );
    for run in ["first", "slow"] {
        home.until_status(run, "waiting_parent_reply");
    }
    home.ok(&["reply", "first", "go"]);
    assert_eq!(home.finished("next")["outcome"], "cancelled");
    // The dependency that failed does not hold a retry; the open one does.
    let again = home.ok(&["retry", "next"]).trim().to_owned();
    let view = home.show(&again);
    assert_eq!(
        view["after"],
        json!([{"run_id": home.run_id("slow"), "name": "slow", "on": "any", "state": "open"}]),
        "{view}"
    );
    assert_eq!(view["queue"]["waiting_for"], "after");
    home.ok(&["cancel", &again]);
    // A retry of the failed one counts for it.
    let retried = home
        .ok(&["retry", "first", "ask \"again?\""])
        .trim()
        .to_owned();
    let last = home.ok(&["retry", "next"]).trim().to_owned();
    let mut names: Vec<Value> = home.show(&last)["after"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|after| after["name"].clone())
        .collect();
    names.sort_by_key(ToString::to_string);
    let mut expected = [json!(retried), json!("slow")];
    expected.sort_by_key(ToString::to_string);
    assert_eq!(names, expected);
    home.until_status(&retried, "waiting_parent_reply");
    home.ok(&["reply", &retried, "go"]);
    home.ok(&["reply", "slow", "go"]);
    assert_eq!(home.finished(&last)["outcome"], "succeeded");
    let refused = home.adj(&["run", "-d", "-a", "echo", "--after", "slow:ports", "say x"]);
    assert!(
        refused.code != 0 && refused.err.contains("RUN:any"),
        "{refused:?}"
    );
}

#[test]
fn each_alternative_gets_only_its_own_variables() {
    let printing = |name: &str| {
        format!(
            "[agents.{name}]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"env | grep _SETTING | sed 's/^/has /'\"]\nenv_pass = [\"{}_SETTING\"]\n",
            name.to_uppercase()
        )
    };
    let home = TestHome::with_config(&(printing("one") + &printing("two")));
    let run = |args: &[&str]| {
        let mut command = home.command(args);
        let ran: Ran = command
            .env("ONE_SETTING", "1")
            .env("TWO_SETTING", "2")
            .output()
            .expect("adj runs")
            .into();
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.trim().to_owned()
    };
    run(&["run", "-d", "-a", "one,two", "-n", "first", "Do it"]);
    home.finished("first");
    let retry = run(&["retry", "first"]);
    home.finished(&retry);
    for name in ["first", retry.as_str()] {
        let log = home.log(name);
        assert!(
            log.contains("has ONE_SETTING=1") && !log.contains("TWO_SETTING"),
            "{name}: {log}"
        );
    }
}

#[test]
fn alternatives_are_also_a_list_over_mcp() {
    let home = with_players("");
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    session.done(
        "run_subagent",
        json!({"agent": ["second", "first"], "name": "a", "prompt": "Do it"}),
    );
    let a = home.finished("a");
    assert_eq!(
        (&a["agent"], &a["agent_why"]),
        (
            &json!("second"),
            &json!("second: named first, before first")
        ),
        "{a}"
    );
    session.done(
        "run_subagent",
        json!({"agent": "first,second", "name": "b", "prompt": "Do it"}),
    );
    assert_eq!(home.finished("b")["agent"], "first");
    for unusable in [
        json!([]),
        json!(["first,second"]),
        json!(["first", 5]),
        json!({"first": 1}),
        json!([" "]),
    ] {
        let refused = session.tool(
            "run_subagent",
            json!({"agent": unusable, "prompt": "Do it"}),
        );
        assert_eq!(refused["isError"], true, "{unusable}: {refused}");
    }
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(2));
}

#[test]
fn unaccepted_run_counts_as_failed_dependency() {
    let home = TestHome::new();
    start(&home, "first", "ask \"go?\"", &["--accept", "false"]);
    start(&home, "next", "say no", &["--after", "first"]);
    home.until_status("first", "waiting_parent_reply");
    home.ok(&["reply", "first", "go"]);
    assert_eq!(home.finished("next")["outcome"], "cancelled");
}

#[test]
fn bad_input_about_pools_changes_nothing() {
    let home = TestHome::with_config(GPU);
    let refused = |args: &[&str], expected: &[&str]| {
        let ran = home.adj(args);
        assert_ne!(ran.code, 0, "{args:?}: {ran:?}");
        for part in expected {
            assert!(
                ran.err.contains(part),
                "{args:?}: {part:?} is not in {ran:?}"
            );
        }
    };
    refused(
        &["run", "-d", "-a", "echo", "--pool", "cpu", "say x"],
        &["no pool \"cpu\"", "default, gpu"],
    );
    refused(
        &["run", "-d", "-a", "echo", "--pool", "../x", "say x"],
        &["no pool"],
    );
    refused(
        &["run", "-d", "-a", "echo", "--priority", "p9", "say x"],
        &["--priority", "p0", "p1", "p2"],
    );
    refused(
        &["run", "-d", "-a", "echo", "--after", "nobody", "say x"],
        &["no such run: nobody"],
    );
    refused(
        &["run", "-d", "-a", "echo", "--after", "x:later", "say x"],
        &["RUN:any"],
    );
    refused(
        &["run", "-d", "-a", "echo", "--after-failed", "hold", "say x"],
        &["--after"],
    );
    refused(
        &["pools", "set", "gpu", "--slots", "0"],
        &["at least 1", "adj pools pause gpu"],
    );
    refused(&["pools", "set", "gpu", "--slots", "-1"], &["slots"]);
    refused(
        &["pools", "set", "gpu", "--slots", "99999999"],
        &["at most"],
    );
    refused(
        &["pools", "set", "cpu", "--slots", "2"],
        &["no pool \"cpu\""],
    );
    refused(&["pools", "pause", "cpu"], &["no pool \"cpu\""]);
    assert_eq!(home.json(&["ps", "-a"]), json!([]));
    assert_eq!(pool(&home, "gpu")["slots"], 1);
    for (config, expected) in [
        (
            "[pools.gpu]\nslots = 0\n",
            "pools.gpu.slots: use 1 to 10000",
        ),
        ("[pools.gpu]\nslots = -3\n", "pools.gpu.slots"),
        ("[pools.GPU]\nslots = 1\n", "not a pool name"),
        (
            "[pools.gpu]\nagents = [\"nobody\"]\n",
            "no agent \"nobody\" is declared",
        ),
        (
            "[pools.gpu]\nagents = [\"echo\"]\nfallback = true\n",
            "needs two or more agents",
        ),
        (
            "[agents.x]\nharness = \"echo\"\npool = \"cpu\"\n",
            "no pool \"cpu\" is declared: use default",
        ),
        ("[pools.gpu]\nspeed = 1\n", "speed"),
    ] {
        std::fs::write(home.home.dir.join("config.toml"), config).expect("a file");
        refused(&["run", "-d", "-a", "echo", "say x"], &[expected]);
    }
}

#[test]
fn removed_pool_keeps_its_queued_runs() {
    let home = TestHome::with_config(GPU);
    let config = home.home.dir.join("config.toml");
    start(&home, "a", "ask \"go?\"", &["--pool", "gpu"]);
    home.until_status("a", "waiting_parent_reply");
    start(&home, "b", "say b", &["--pool", "gpu"]);
    // A file with an error changes nothing: the last valid one stays.
    std::fs::write(&config, "[pools.gpu\n").expect("a file");
    let b = home.show("b");
    assert_eq!(b["queue"]["waiting_for"], "slot");
    std::fs::write(&config, "").expect("a file");
    let b = home.show("b");
    assert_eq!(b["queue"]["waiting_for"], "pool_removed");
    assert!(
        b["queue"]["next_step"]
            .as_str()
            .expect("a step")
            .contains("add [pools.gpu]"),
        "{b}"
    );
    assert_eq!(pool(&home, "gpu")["removed"], true);
    home.ok(&["reply", "a", "go"]);
    assert_eq!(
        home.finished("a")["outcome"],
        "succeeded",
        "a live run continues"
    );
    assert_eq!(home.show("b")["state"], "queued");
    std::fs::write(&config, GPU).expect("a file");
    // Any event of the queue reads the configuration again.
    start(&home, "c", "say c", &[]);
    home.finished("b");
}

/// Without any command: the hub looks at its configuration every 30 seconds.
#[test]
fn hub_notices_a_changed_configuration_by_itself() {
    let agent = "[agents.toucher]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"cat >/dev/null; touch ../ran\"]\npermissions = \"full\"\n";
    let home = TestHome::with_config(&format!("{GPU}{agent}"));
    let (config, ran) = (
        home.home.dir.join("config.toml"),
        home.work().join("../ran"),
    );
    start(&home, "a", "ask \"go?\"", &["--pool", "gpu"]);
    home.until_status("a", "waiting_parent_reply");
    home.ok(&[
        "run", "-d", "-a", "toucher", "-n", "b", "--pool", "gpu", "Do it",
    ]);
    assert_eq!(home.show("b")["queue"]["waiting_for"], "slot");
    std::fs::write(&config, format!("{}{agent}", GPU.replace('1', "2"))).expect("a file");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !ran.exists() {
        assert!(
            std::time::Instant::now() < end,
            "the queued run has not started"
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn agent_sets_the_pool_of_its_runs() {
    let home = TestHome::with_config(&format!(
        "{GPU}[agents.heavy]\nharness = \"echo\"\npool = \"gpu\"\n"
    ));
    home.start_agent("heavy", "a", "say a");
    assert_eq!(home.finished("a")["pool"], "gpu");
    home.start("b", "say b");
    assert_eq!(home.finished("b")["pool"], "default");
}

/// Creates a home whose agents `first` and `second` play Claude Code: each ends with what a file of
/// its name says.
fn with_players(pools: &str) -> TestHome {
    let home = TestHome::new();
    let mut config = pools.to_owned();
    for name in ["first", "second"] {
        let (program, said) = (
            home.work().join(format!("{name}.sh")),
            home.work().join(format!("../{name}.says")),
        );
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 2.1.329\nif [ -s {said} ]; then error=true said=$(cat {said}); else error=false said=done; fi\n\
             echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":'$error',\"result\":\"'\"$said\"'\"}}'\n",
            said = said.display()
        );
        std::fs::write(&program, script).expect("a script");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
            .expect("it is executable");
        config.push_str(&format!(
            "[agents.{name}]\nharness = \"claude\"\ncommand = [{:?}]\n",
            program.display().to_string()
        ));
    }
    std::fs::write(home.home.dir.join("config.toml"), config).expect("a file");
    home
}

fn says(home: &TestHome, agent: &str, text: &str) {
    std::fs::write(home.work().join(format!("../{agent}.says")), text).expect("a file");
}

const BOTH: &str = "[pools.heavy]\nslots = 2\nagents = [\"first\", \"second\"]\nfallback = true\n";
const NOT_SIGNED_IN: &str = "Invalid API key · Please run /login";

#[test]
fn pool_chooses_an_agent_and_shows_the_reason() {
    let home = with_players(BOTH);
    home.ok(&["run", "-d", "--pool", "heavy", "-n", "a", "Do it"]);
    let a = home.finished("a");
    assert_eq!(
        (&a["agent"], &a["pool"], &a["agent_why"]),
        (
            &json!("first"),
            &json!("heavy"),
            &json!("first: named first, before second")
        ),
        "{a}"
    );
    assert!(
        home.ok(&["show", "a"])
            .contains("named first, before second")
    );
    std::fs::remove_file(home.work().join("first.sh")).expect("it was there");
    home.ok(&["run", "-d", "-a", "first,second", "-n", "b", "Do it"]);
    let b = home.finished("b");
    assert_eq!(
        (&b["agent"], &b["pool"]),
        (&json!("second"), &json!("default")),
        "{b}"
    );
    assert!(
        b["agent_why"].as_str().is_some_and(
            |why| why.contains("the only one that can be used") && why.contains("not found")
        ),
        "{b}"
    );
    let refused = home.adj(&["run", "-d", "-a", "second,nobody", "Do it"]);
    assert!(
        refused.code != 0 && refused.err.contains("no agent \"nobody\""),
        "{refused:?}"
    );
    let refused = home.adj(&["run", "-d", "-a", "second,second", "Do it"]);
    assert!(
        refused.code != 0 && refused.err.contains("named twice"),
        "{refused:?}"
    );
}

#[test]
fn run_falls_back_before_any_work_is_done() {
    let home = with_players(BOTH);
    says(&home, "first", NOT_SIGNED_IN);
    home.ok(&["run", "-d", "--pool", "heavy", "-n", "a", "Do it"]);
    let a = home.finished("a");
    assert_eq!(
        (&a["agent"], &a["outcome"], &a["attempt"]),
        (&json!("second"), &json!("succeeded"), &json!(2)),
        "{a}"
    );
    assert!(
        a["agent_why"]
            .as_str()
            .is_some_and(|why| why.contains("replaces first") && why.contains("not signed in")),
        "{a}"
    );
    let events = home.ok(&["events", "a"]);
    assert!(
        events.contains("run.requeued") && events.contains("replaces first"),
        "{events}"
    );
    // Without an alternative that was not tried, the failure stands.
    says(&home, "second", NOT_SIGNED_IN);
    home.ok(&["run", "-d", "--pool", "heavy", "-n", "b", "Do it"]);
    let b = home.finished("b");
    assert_eq!(
        (&b["agent"], &b["outcome"], &b["cause"], &b["attempt"]),
        (
            &json!("second"),
            &json!("failed"),
            &json!("not_signed_in"),
            &json!(2)
        ),
        "{b}"
    );
    // A single agent has none.
    home.ok(&["run", "-d", "-a", "first", "-n", "c", "Do it"]);
    assert_eq!(home.finished("c")["cause"], "not_signed_in");
}

#[test]
fn run_can_disable_automatic_resumption() {
    let home = with_players("rate_limits = { pause = \"100ms\" }\n");
    says(&home, "first", "API Error: 429 rate limit");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "first",
        "--no-auto-resume",
        "-n",
        "asked",
        "Do it",
    ]);
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    session.done(
        "run_subagent",
        json!({"agent": "first", "name": "over-mcp", "prompt": "Do it", "no_auto_resume": true}),
    );
    home.ok(&["run", "-d", "-a", "first", "-n", "resumes", "Do it"]);
    home.until("the other one is tried again", || {
        (home.show("resumes")["attempt"].as_u64() > Some(2)).then_some(())
    });
    for name in ["asked", "over-mcp"] {
        let stopped = home.until_status(name, "stopped");
        assert_eq!(
            (
                &stopped["attempt"],
                &stopped["end_reason"],
                &stopped["resumes_at"]
            ),
            (&json!(1), &json!("error"), &Value::Null),
            "{stopped}"
        );
        assert!(
            stopped["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("auto_resume = false")),
            "{stopped}"
        );
    }
    says(&home, "first", "");
    home.ok(&["resume", "asked"]);
    assert_eq!(home.finished("asked")["outcome"], "succeeded");
    home.finished("resumes");
    let config = std::fs::read_to_string(home.home.dir.join("config.toml")).expect("a file");
    says(&home, "second", "API Error: 429 rate limit");
    std::fs::write(
        home.home.dir.join("config.toml"),
        format!("{config}auto_resume = false\n"),
    )
    .expect("a file");
    home.ok(&["run", "-d", "-a", "second", "-n", "configured", "Do it"]);
    assert_eq!(
        home.until_status("configured", "stopped")["end_reason"],
        "error"
    );
}

#[test]
fn reported_usage_limit_holds_or_moves_the_runs_of_an_agent() {
    let home = with_players("");
    says(
        &home,
        "first",
        "API Error: 429 rate limit, try again in 2 hours",
    );
    home.ok(&["run", "-d", "-a", "first", "-n", "parked", "Do it"]);
    let parked = home.until("it is parked", || {
        Some(home.show("parked")).filter(|run| run["status"] == "stopped")
    });
    assert!(parked["resumes_at"].is_string(), "{parked}");
    home.ok(&["run", "-d", "-a", "first", "-n", "waits", "Do it"]);
    let waits = home.show("waits");
    assert_eq!(
        (&waits["state"], &waits["queue"]["waiting_for"]),
        (&json!("queued"), &json!("quota")),
        "{waits}"
    );
    assert!(
        waits["queue"]["starts_about"].is_string()
            && home.ok(&["ps"]).contains("queued: usage limit"),
        "{waits}"
    );
    let agent = home.json(&["agents", "first"]);
    assert!(
        agent["limited_until"].is_string() && agent["limit_reported_at"].is_string(),
        "{agent}"
    );
    home.ok(&["run", "-d", "-a", "first,second", "-n", "moves", "Do it"]);
    let moves = home.finished("moves");
    assert_eq!(moves["agent"], "second", "{moves}");
    assert!(
        moves["agent_why"]
            .as_str()
            .is_some_and(|why| why.contains("others have reached their usage limit")),
        "{moves}"
    );
    kill(home.hub_pid());
    assert_eq!(
        home.show("waits")["queue"]["waiting_for"],
        "quota",
        "the next hub knows it too"
    );
    // Resuming a run by hand tries the agent at once.
    says(&home, "first", "");
    home.ok(&["resume", "parked"]);
    assert_eq!(home.finished("parked")["outcome"], "succeeded");
    assert_eq!(home.finished("waits")["outcome"], "succeeded");
}

#[test]
fn builds_of_a_pool_share_its_jobs() {
    let sh = "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh\"]\n";
    let own = "[agents.own]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"env\"]\nenv = { CARGO_BUILD_JOBS = \"7\" }\n";
    let home = TestHome::with_config(&format!(
        "{sh}{own}[pools.builds]\nslots = 2\nbuild_jobs = 5\n"
    ));
    // Each job counts the concurrent jobs of both builds, which may have the same process ids.
    let job = "\t@f=$$(mktemp jobs/XXXXXX); ls jobs | wc -l >> counts; n=0; while [ $$n -lt 20000 ]; do n=$$((n+1)); done; ls jobs | wc -l >> counts; rm $$f\n";
    let targets: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let makefile = format!("all: {all}\n{all}:\n{job}", all = targets.join(" "));
    std::fs::write(home.work().join("Makefile"), makefile).expect("a file");
    std::fs::create_dir(home.work().join("jobs")).expect("a directory");
    for name in ["a", "b"] {
        home.ok(&[
            "run",
            "-d",
            "-a",
            "sh",
            "-n",
            name,
            "--pool",
            "builds",
            "do echo \"has $CARGO_BUILD_JOBS $MAKEFLAGS $CMAKE_BUILD_PARALLEL_LEVEL\"; make all",
        ]);
    }
    for name in ["a", "b"] {
        assert_eq!(
            home.finished(name)["outcome"],
            "succeeded",
            "{}",
            home.log(name)
        );
        assert!(home.log(name).contains("has 2 -j2 2"), "{}", home.log(name));
    }
    let counts = std::fs::read_to_string(home.work().join("counts")).expect("they have run");
    let counts: Vec<u64> = counts
        .lines()
        .map(|line| line.trim().parse().expect("a number"))
        .collect();
    assert!(
        counts.len() == 48 && counts.iter().all(|count| (1..=4).contains(count)),
        "{counts:?}"
    );
    assert!(
        counts.iter().any(|count| *count > 1),
        "nothing ran side by side: {counts:?}"
    );
    home.ok(&[
        "run", "-w", "-a", "own", "-n", "own", "--pool", "builds", "x",
    ]);
    assert!(
        home.log("own").contains("CARGO_BUILD_JOBS=7") && home.log("own").contains("MAKEFLAGS=-j2"),
        "{}",
        home.log("own")
    );
    home.ok(&[
        "run",
        "-w",
        "-a",
        "sh",
        "-n",
        "free",
        "do echo \"has ${MAKEFLAGS-nothing}\"",
    ]);
    assert!(
        home.log("free").contains("has nothing"),
        "{}",
        home.log("free")
    );
}

#[test]
fn changes_of_a_pool_are_in_the_history() {
    let home = TestHome::with_config(GPU);
    for args in [
        &["pause", "gpu"][..],
        &["pause", "gpu"],
        &["set", "gpu", "--slots", "3"],
    ] {
        home.ok(&[&["pools"], args].concat());
    }
    start(&home, "a", "say a", &["--pool", "gpu"]);
    kill(home.hub_pid());
    home.ok(&["pools", "resume", "gpu"]);
    home.finished("a");
    home.ok(&["pools", "set", "gpu", "--slots", "configured"]);
    let all = home.json(&["events", "-n", "100"]);
    let all = all.as_array().expect("events");
    let of_pool: Vec<_> = all
        .iter()
        .filter(|event| event["pool"] == "gpu")
        .map(|event| (&event["kind"], &event["text"], &event["by"]))
        .collect();
    let expected = [
        (json!("pool.paused"), json!("pool gpu is paused")),
        (
            json!("pool.changed"),
            json!("pool gpu has 3 slots, before: 1"),
        ),
        (json!("pool.resumed"), json!("pool gpu is resumed")),
        (
            json!("pool.changed"),
            json!("pool gpu has 1 slot, before: 3"),
        ),
    ];
    let person = json!("person");
    assert_eq!(
        of_pool,
        expected
            .iter()
            .map(|(kind, text)| (kind, text, &person))
            .collect::<Vec<_>>()
    );
    let seqs: Vec<i64> = all
        .iter()
        .filter_map(|event| event["seq"].as_i64())
        .collect();
    assert!(
        seqs.len() == all.len() && seqs.is_sorted_by(|one, next| one < next),
        "{seqs:?}"
    );
    let at = |kind: &str| {
        all.iter()
            .position(|event| event["kind"] == kind)
            .expect("an event")
    };
    assert!(
        at("run.queued") < at("pool.resumed") && at("pool.resumed") < at("run.started"),
        "{all:?}"
    );
    assert!(
        home.ok(&["events"])
            .contains(" gpu pool.paused       pool gpu is paused (you)"),
        "{}",
        home.ok(&["events"])
    );
    assert!(
        !home.ok(&["events", "a"]).contains("pool."),
        "a run's events are its own"
    );
}
