//! Admission by the load of the machine, which these tests simulate.

use crate::support::TestHome;
use adjutant_api::view::Dispatch;
use serde_json::{Value, json};
use std::path::PathBuf;

/// An agent that writes its key to a file and works until it is stopped.
const KEEPS_ITS_KEY: &str = "[pressure]\npause = 40\n[agents.keyed]\nharness = \"plain\"\nenv_pass = [\"CANARY_TOKEN\"]\n\
    command = [\"sh\", \"-c\", \"echo $CANARY_TOKEN >> ../keys; exec sleep 600\"]\n";

/// A home whose hub reads the load of the machine from files.
struct Machine {
    home: TestHome,
    dir: PathBuf,
}

impl Machine {
    fn new(config: &str) -> Self {
        let home = TestHome::with_config(config);
        let dir = home.work().join("../load");
        std::fs::create_dir(&dir).expect("a directory");
        let machine = Self { home, dir };
        machine.set("cpu", 0, 0);
        machine.set("memory", 0, 0);
        machine.set_free(64_000);
        // The first command starts the hub.
        let mut command = machine.home.command(&["ps"]);
        let ran = command
            .env(
                "ADJ_FAILPOINT",
                format!("pressure={}", machine.dir.display()),
            )
            .output()
            .expect("adj can be started");
        assert!(ran.status.success(), "{ran:?}");
        machine
    }

    fn write(&self, name: &str, text: &str) {
        let new = self.dir.join("new");
        std::fs::write(&new, text).expect("the load can be set");
        std::fs::rename(&new, self.dir.join(name)).expect("the load can be set");
    }

    /// Sets the percentages of the last ten seconds in which some tasks, and all tasks, waited.
    fn set(&self, what: &str, some: u32, full: u32) {
        let line = |kind: &str, percent: u32| {
            format!("{kind} avg10={percent}.00 avg60=0.00 avg300=0.00 total=1\n")
        };
        self.write(
            what,
            &format!("{}{}", line("some", some), line("full", full)),
        );
    }

    fn set_free(&self, megabytes: u64) {
        self.write(
            "meminfo",
            &format!(
                "MemTotal: 99999999 kB\nMemAvailable: {} kB\n",
                megabytes * 1_000
            ),
        );
    }

    fn waits_for(&self, run: &str, reason: &str) -> Value {
        self.home.until(&format!("{run} waits for {reason}"), || {
            let run = self.home.show(run);
            (run["queue"]["waiting_for"] == reason).then_some(run)
        })
    }
}

#[test]
fn start_waits_until_the_pressure_has_passed() {
    let machine = Machine::new("[pressure]\ncpu = 50\n");
    let home = &machine.home;
    machine.set("memory", 45, 0);
    home.start("first", "ask \"go?\"");
    home.until_status("first", "waiting_parent_reply");
    home.start("next", "say next");
    let next = machine.waits_for("next", "memory_pressure");
    let why = next["queue"]["why"].as_str().expect("a reason");
    assert!(why.contains("waited for memory 45 % of the last 10s, the limit for a start is 40 % ([pressure] memory)"), "{why}");
    let (listed, shown) = (home.ok(&["ps"]), home.ok(&["show", "next"]));
    assert!(
        listed.contains("queued: for memory")
            && shown.contains("tasks of this machine waited for memory"),
        "{listed}{shown}"
    );
    let pool = home.json(&["pools"])["pools"][0].clone();
    assert_eq!(
        pool["waiting"],
        json!([{"for": "memory_pressure", "runs": 1}])
    );
    machine.set("memory", 0, 0);
    home.finished("next");

    machine.set("cpu", 51, 0);
    home.start("last", "say last");
    let why = machine.waits_for("last", "cpu_pressure")["queue"]["why"].clone();
    assert!(
        why.as_str()
            .is_some_and(|why| why.contains("waited for a CPU 51 %")),
        "{why}"
    );
    // No other run is live then.
    home.ok(&["reply", "first", "go"]);
    home.finished("last");
    assert!(home.ok(&["config", "show"]).contains("[pressure]"));
}

#[test]
fn start_waits_for_the_memory_that_its_agent_has_used() {
    let machine = Machine::new(
        "[pressure]\npause = 0\n[agents.heavy]\nharness = \"plain\"\ncommand = [\"sh\", \"-c\", \"dd if=/dev/zero of=/dev/null bs=96M count=1\"]\n",
    );
    let home = &machine.home;
    home.start_agent("heavy", "measured", "work");
    let peak = home.finished("measured")["resources"]["memory_peak_bytes"]
        .as_u64()
        .expect("it was measured");
    assert!(peak >= 96 << 20, "{peak}");
    machine.set_free(peak / 1_000_000 - 20);
    home.start("first", "ask \"go?\"");
    home.until_status("first", "waiting_parent_reply");
    home.start_agent("heavy", "next", "work");
    let why = machine.waits_for("next", "free_memory")["queue"]["why"].clone();
    assert!(
        why.as_str()
            .is_some_and(|why| why.contains("runs of heavy have used ")),
        "{why}"
    );
    // Runs of another agent start, and so does any run without others.
    home.start("light", "say light");
    home.finished("light");
    home.ok(&["reply", "first", "go"]);
    home.finished("next");
}

#[test]
fn newest_run_is_paused_and_resumes_automatically() {
    let machine = Machine::new(KEEPS_ITS_KEY);
    let home = &machine.home;
    home.start("older", "ask \"go?\"");
    home.until_status("older", "waiting_parent_reply");
    let env = [("PATH", "/usr/bin:/bin"), ("CANARY_TOKEN", "canary")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let (agent, cwd) = ("keyed".to_owned(), home.work().display().to_string());
    let call = Dispatch {
        agent,
        prompt: "work".to_owned(),
        cwd,
        name: Some("newer".to_owned()),
        env,
        ..Dispatch::default()
    };
    home.call(&call, "newer").expect("dispatched");
    home.until_status("newer", "running");
    machine.set("memory", 41, 41);
    // A start triggers a reading of the load.
    home.start("next", "say next");
    machine.waits_for("next", "memory_pressure");
    let newer = home.until_status("newer", "stopped");
    assert!(
        newer["reason"]
            .as_str()
            .is_some_and(|reason| reason.starts_with("memory_pressure")),
        "{newer}"
    );
    assert_eq!(
        (&newer["resumes_by_itself"], newer.get("attention")),
        (&json!(true), None),
        "{newer}"
    );
    assert!(newer["checkpoint"].is_object(), "{newer}");
    assert_eq!(home.show("older")["status"], "waiting_parent_reply");
    let events = home.ok(&["events", "newer"]);
    assert!(
        events.contains("all tasks waited for memory 41 % of the last 10s"),
        "{events}"
    );
    machine.set("memory", 0, 0);
    let newer = home.until_status("newer", "running");
    assert_eq!(newer["attempt"], 2, "{newer}");
    let keys = || std::fs::read_to_string(home.work().join("../keys")).unwrap_or_default();
    assert_eq!(
        home.until("it has its key again", || Some(keys())
            .filter(|keys| keys.lines().count() == 2)),
        "canary\ncanary\n"
    );
    home.finished("next");
    home.ok(&["cancel", "newer", "older"]);
}

#[test]
fn hubs_of_tests_do_not_read_the_load_of_the_host() {
    for failpoint in [None, Some("store.before_commit=/dev/null")] {
        let home = TestHome::with_config("[pressure]\nmemory = 1\n");
        let mut command = home.command(&["ps"]);
        if let Some(failpoint) = failpoint {
            command.env("ADJ_FAILPOINT", failpoint);
        }
        assert!(command.status().expect("adj can be started").success());
        let set = command
            .get_envs()
            .find(|(name, _)| *name == "ADJ_FAILPOINT")
            .and_then(|(_, value)| value);
        assert_eq!(
            set,
            Some(failpoint.unwrap_or("pressure=/dev/null").as_ref())
        );
        let hub = format!("/proc/{}", home.hub_pid());
        let environment = match std::fs::read_to_string(format!("{hub}/environ")) {
            // The hub's own user cannot inspect it; root can.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => continue,
            read => read.expect("the hub lives"),
        };
        assert!(
            environment.contains(&format!(
                "ADJ_FAILPOINT={}",
                failpoint.unwrap_or("pressure=")
            )),
            "{environment}"
        );
        let open = std::fs::read_dir(format!("{hub}/fd"))
            .expect("the hub lives")
            .flatten();
        let open: Vec<PathBuf> = open
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .collect();
        assert!(
            open.iter().all(|path| !path.starts_with("/proc/pressure")),
            "{open:?}"
        );
    }
}

#[test]
fn one_spike_pauses_one_of_six_runs() {
    let machine = Machine::new("live_runs_max = 9\n[pressure]\nmemory = 0\npause = 1\n");
    let home = &machine.home;
    for n in 0..6 {
        home.start(&format!("run-{n}"), "ask \"go?\"\ndone ok");
        home.until_status(&format!("run-{n}"), "waiting_parent_reply");
    }
    machine.set("memory", 100, 100);
    // Each start and each end triggers a reading of the load, which cannot have fallen yet.
    let stopped = || {
        let all = home.json(&["ps", "-a"]);
        all.as_array()
            .expect("runs")
            .iter()
            .filter(|run| run["state"] == "stopped")
            .map(|run| run["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    home.start("first", "say first");
    let paused = home.until("one is paused", || {
        Some(stopped()).filter(|all| !all.is_empty())
    });
    for n in 0..4 {
        home.start(&format!("next-{n}"), "say next");
        home.finished(&format!("next-{n}"));
    }
    assert_eq!(stopped(), paused, "one run is enough for one spike");
    machine.set("memory", 0, 0);
    home.start("last", "say last");
    home.until("it continues", || stopped().is_empty().then_some(()));
}
