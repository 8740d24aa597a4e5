//! A hub that dies before or after it commits a call: the call is repeated with its key, and is
//! made once.

use super::matrix::CALLS;
use super::{Caller, Reply, hub_with, port_of};
use crate::changes::git;
use crate::support::TestHome;
use crate::webhooks::{OK, Receiving, note_failures};
use adjutant_core::token::CallEffect;
use serde_json::{Value, json};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;

/// The calls that share a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Runs,
    Files,
    Chats,
    Rules,
}

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Client,
    Person,
}

/// A call that changes something.
struct Row {
    name: &'static str,
    group: Group,
    by: By,
    body: fn(&World) -> Value,
    /// Counts the effects of the call. It gets the reply, if there is one.
    count: fn(&Caller, &World, Option<&Value>) -> usize,
}

const fn row(
    name: &'static str,
    group: Group,
    by: By,
    body: fn(&World) -> Value,
    count: fn(&Caller, &World, Option<&Value>) -> usize,
) -> Row {
    Row {
        name,
        group,
        by,
        body,
        count,
    }
}

/// The calls in the order in which they are made.
const ROWS: &[Row] = &[
    row(
        "dispatch",
        Group::Runs,
        By::Client,
        |world| dispatch(world, "new", "say hi"),
        |caller, _, _| events(caller, "run.queued"),
    ),
    row(
        "retry",
        Group::Runs,
        By::Client,
        |_| json!({"run": "ended"}),
        |caller, _, _| events(caller, "run.queued"),
    ),
    row(
        "answer",
        Group::Runs,
        By::Client,
        |_| json!({"answers": [{"message_id": "Q1", "answer": "yes"}]}),
        |caller, _, _| events(caller, "request.answered"),
    ),
    row(
        "send",
        Group::Runs,
        By::Client,
        |_| json!({"run": "live", "text": "hello"}),
        |caller, _, _| events(caller, "message.sent"),
    ),
    row(
        "status",
        Group::Runs,
        By::Client,
        |_| json!({"run": "live", "status": "running"}),
        |caller, _, _| events(caller, "run.annotated"),
    ),
    row(
        "budget",
        Group::Runs,
        By::Client,
        |_| json!({"run": "live", "add": "time=1h"}),
        |caller, _, _| events(caller, "budget.changed"),
    ),
    row(
        "pause",
        Group::Runs,
        By::Client,
        |_| json!({"run": "live"}),
        |caller, _, _| events(caller, "run.stopping"),
    ),
    row(
        "resume",
        Group::Runs,
        By::Client,
        |_| json!({"run": "paused"}),
        |caller, _, _| events(caller, "run.queued"),
    ),
    row(
        "cancel",
        Group::Runs,
        By::Client,
        |_| json!({"run": "queued"}),
        |caller, _, _| events(caller, "run.finished"),
    ),
    row(
        "follow-up",
        Group::Runs,
        By::Client,
        |_| json!({"run": "continued", "prompt": "say hi"}),
        |caller, _, _| events(caller, "run.queued"),
    ),
    row(
        "adopt",
        Group::Runs,
        By::Person,
        |_| json!({"runs": ["moved"], "client": "two"}),
        |caller, _, _| {
            usize::from(caller.call("run", &json!({"run": "moved"}))["owner"] == "client:two")
        },
    ),
    row(
        "notified",
        Group::Runs,
        By::Client,
        |world| json!({"until": world.ids["cursor"]}),
        |caller, _, _| {
            let waited = caller.call("wait", &json!({"wait_ms": 0}));
            usize::from(!waited["ended"].to_string().contains("\"seen\""))
        },
    ),
    row(
        "task-start",
        Group::Runs,
        By::Client,
        |_| json!({"wait": {"runs": ["asking"]}, "ttl_ms": 600_000}),
        |caller, _, reply| {
            reply.map_or(0, |reply| {
                usize::from(
                    caller.call("task", &json!({"task_id": reply["task_id"]}))["task_id"]
                        == reply["task_id"],
                )
            })
        },
    ),
    row(
        "task-update",
        Group::Runs,
        By::Client,
        |world| json!({"task_id": world.ids["task"], "declined": [world.ids["request"]]}),
        |caller, world, _| {
            let task = caller.call("task", &json!({"task_id": world.ids["task"]}));
            task["declined"].as_array().map_or(0, Vec::len)
        },
    ),
    row(
        "task-cancel",
        Group::Runs,
        By::Client,
        |world| json!({"task_id": world.ids["task"]}),
        |caller, world, _| {
            usize::from(
                caller.call("task", &json!({"task_id": world.ids["task"]}))["status"]
                    == "cancelled",
            )
        },
    ),
    row(
        "pool-change",
        Group::Runs,
        By::Person,
        |_| json!({"pool": "default", "slots": 3}),
        |caller, _, _| {
            let pools = caller.call("pools", &json!({}))["pools"].clone();
            pools
                .as_array()
                .expect("pools")
                .iter()
                .filter(|pool| pool["name"] == "default" && pool["slots"] == 3)
                .count()
        },
    ),
    row(
        "undo",
        Group::Files,
        By::Person,
        |_| json!({"run": "undone"}),
        |_, world, _| usize::from(!world.home.work().join("undone.txt").exists()),
    ),
    row(
        "comment",
        Group::Files,
        By::Client,
        comment,
        |caller, _, _| runs(caller),
    ),
    row(
        "merge",
        Group::Files,
        By::Client,
        |_| json!({"run": "merged"}),
        |caller, _, _| events(caller, "run.merged"),
    ),
    row(
        "discard",
        Group::Files,
        By::Client,
        |_| json!({"run": "discarded"}),
        |caller, _, _| events(caller, "run.discarded"),
    ),
    row(
        "clean",
        Group::Files,
        By::Person,
        |_| json!({"runs": ["ended"]}),
        |caller, _, _| usize::from(caller.post("run", &json!({"run": "ended"})).status == 404),
    ),
    row(
        "chat-start",
        Group::Chats,
        By::Client,
        |_| json!({"title": "New"}),
        |caller, _, _| chats(caller),
    ),
    row(
        "say",
        Group::Chats,
        By::Client,
        |_| json!({"chat_id": 1, "message": "hello"}),
        |caller, _, _| {
            caller
                .call("chat", &json!({"chat_id": 1, "after": 0, "peek": true}))
                .to_string()
                .matches("\"hello\"")
                .count()
        },
    ),
    row(
        "answers-cancel",
        Group::Chats,
        By::Client,
        |world| json!({"chat_id": 2, "seq": world.ids["asked"]}),
        |_, world, _| {
            let view = world.home.json(&["chat", "show", "2", "--after", "0"]);
            usize::from(view.to_string().contains("cancelled"))
        },
    ),
    row(
        "chat-summarise",
        Group::Chats,
        By::Client,
        |world| json!({"chat_id": 1, "agent": "echo", "cwd": world.home.work()}),
        |_, world, _| {
            world
                .home
                .json(&["ps", "-a"])
                .as_array()
                .map(Vec::len)
                .expect("runs")
        },
    ),
    row(
        "chat-archive",
        Group::Chats,
        By::Client,
        |world| json!({"chat_id": 1, "archived": true, "cwd": world.home.work()}),
        |caller, _, _| {
            usize::from(
                !caller
                    .call("chats", &json!({}))
                    .to_string()
                    .contains("\"Kept\""),
            )
        },
    ),
    row(
        "chat-import",
        Group::Chats,
        By::Person,
        |world| world.ids["export"].clone(),
        |caller, _, _| chats(caller),
    ),
    row(
        "grant-revoke",
        Group::Rules,
        By::Person,
        |_| json!({"grant": "G1"}),
        |caller, _, _| events(caller, "grant.revoked"),
    ),
    row(
        "policies-trust",
        Group::Rules,
        By::Person,
        trust,
        |caller, world, _| {
            let listed = caller.call("policies", &json!({"directory": trust(world)["directory"]}));
            usize::from(listed["repository"]["state"] == "in_effect")
        },
    ),
    row(
        "policies-trust-change",
        Group::Rules,
        By::Person,
        |world| json!({"change": world.ids["change"]}),
        |caller, _, _| usize::from(caller.call("policies", &json!({}))["change"].is_null()),
    ),
    row(
        "webhooks-retry",
        Group::Rules,
        By::Person,
        |_| json!({}),
        |caller, _, _| {
            let hooks = caller.call("webhooks", &json!({}));
            usize::from(hooks["webhooks"][0]["waiting"] == 0)
        },
    ),
];

fn dispatch(world: &World, name: &str, script: &str) -> Value {
    json!({"agent": "echo", "prompt": script, "cwd": world.home.work(), "name": name})
}

fn comment(_: &World) -> Value {
    json!({"run": "commented", "comments": [{"path": "commented.txt", "line": 1, "text": "why?"}]})
}

fn trust(world: &World) -> Value {
    let directory = world.home.work().canonicalize().expect("a directory");
    json!({"directory": directory, "text": POLICIES})
}

const POLICIES: &str = "[[policies]]\nname = \"make\"\ndecision = \"allow\"\ntool = \"request_approval\"\ncommand = \"make\"\n";

fn events(caller: &Caller, kind: &str) -> usize {
    let events = caller.call("events", &json!({"limit": 5000}))["events"].clone();
    events
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["kind"] == kind)
        .count()
}

fn runs(caller: &Caller) -> usize {
    caller.call("runs", &json!({"all": true}))["runs"]
        .as_array()
        .map(Vec::len)
        .expect("runs")
}

fn chats(caller: &Caller) -> usize {
    caller.call("chats", &json!({}))["chats"]
        .as_array()
        .map(Vec::len)
        .expect("chats")
}

/// A home with what the calls of a group change.
struct World {
    home: TestHome,
    hub: Child,
    failpoint: &'static str,
    /// The hub dies at the failpoint as soon as this file is removed.
    fired: PathBuf,
    client: String,
    person: String,
    /// Parts of bodies, by name.
    ids: Value,
    receiver: Receiving,
}

impl World {
    fn new(group: Group, failpoint: &'static str) -> Self {
        let receiver = Receiving::start(&[OK]);
        let hook = format!(
            "[[webhooks]]\nurl = \"http://127.0.0.1:{}/\"\nsecret_file = \"hook.secret\"\nallow_private = true\nevents = [\"run.finished\"]\n",
            receiver.port
        );
        let home = TestHome::with_config(&format!(
            "listen = \"127.0.0.1:0\"\n{}",
            if group == Group::Rules { &hook } else { "" }
        ));
        let secret = home.home.dir.join("hook.secret");
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").expect("a secret");
        // Nothing is delivered while others can read it.
        let protect = |mode| {
            std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode))
                .expect("a secret")
        };
        protect(0o644);
        let token = |args: &[&str]| {
            home.json(args)["token"]
                .as_str()
                .expect("a token")
                .to_owned()
        };
        let (client, person) = (
            token(&["token", "new", "one"]),
            token(&["token", "new", "two", "--role", "person"]),
        );
        let fired = home.home.dir.join("fired");
        std::fs::write(&fired, "").expect("a file");
        home.ok(&["stop"]);
        let hub = hub_with(&home, &format!("{failpoint}={}", fired.display()));
        let mut world = Self {
            home,
            hub,
            failpoint,
            fired,
            client,
            person,
            ids: json!({}),
            receiver,
        };
        match group {
            Group::Runs => world.add_runs(),
            Group::Files => world.add_files(),
            Group::Chats => world.add_chats(),
            Group::Rules => {
                world.add_rules();
                protect(0o600);
            }
        }
        world
    }

    fn caller(&self, by: By) -> Caller {
        let token = if by == By::Client {
            &self.client
        } else {
            &self.person
        };
        Caller {
            port: port_of(&self.home),
            token: token.clone(),
        }
    }

    /// Starts the next hub after the death of one.
    fn revive(&mut self) {
        std::fs::write(&self.fired, "").expect("a file");
        self.hub = hub_with(
            &self.home,
            &format!("{}={}", self.failpoint, self.fired.display()),
        );
    }

    fn dispatch(&self, name: &str, script: &str) {
        self.caller(By::Client)
            .call("dispatch", &dispatch(self, name, script));
    }

    fn add_runs(&mut self) {
        let client = self.caller(By::Client);
        self.dispatch("asking", "---\nask \"Ready?\"\nhang");
        for name in ["ended", "continued", "seen"] {
            self.dispatch(name, "say hi");
            self.home.finished(name);
        }
        let mut live = dispatch(self, "live", "hang");
        live["budget"] = json!("time=1h");
        client.call("dispatch", &live);
        self.dispatch("paused", "hang");
        for name in ["live", "paused"] {
            self.home.until_status(name, "running");
        }
        client.call("pause", &json!({"run": "paused"}));
        self.home.until_status("paused", "stopped");
        self.home.until("it asks", || {
            (self.home.show("asking")["pending_total"] == 1).then_some(())
        });
        // From here on, no run is started.
        self.home.ok(&["pools", "pause", "default"]);
        for name in ["queued", "moved"] {
            self.dispatch(name, "say hi");
        }
        let task = client.call(
            "task-start",
            &json!({"wait": {"runs": ["asking"]}, "ttl_ms": 600_000}),
        )["task_id"]
            .clone();
        let cursor = client.call("wait", &json!({"wait_ms": 0}))["cursor"].clone();
        let request = client.call("requests", &json!({}))["requests"][0]["message_id"].clone();
        assert!(request.is_string(), "an open request");
        self.ids = json!({"task": task, "cursor": cursor, "request": request});
    }

    fn add_files(&mut self) {
        let work = self.home.work();
        std::fs::write(work.join("one.txt"), "1\n").expect("a file");
        for args in [
            &["init", "-q"][..],
            &["config", "user.name", "User"],
            &["config", "user.email", "user@example.org"],
            &["add", "."],
        ] {
            git(&work, args);
        }
        git(&work, &["commit", "-qm", "x"]);
        self.dispatch("undone", "write undone.txt x");
        self.home.finished("undone");
        for name in ["commented", "merged", "discarded"] {
            let mut order = dispatch(self, name, &format!("write {name}.txt x"));
            order["isolation"] = json!("clone");
            self.caller(By::Client).call("dispatch", &order);
            self.home.finished(name);
        }
        self.dispatch("ended", "say hi");
        self.home.finished("ended");
        self.home.ok(&["pools", "pause", "default"]);
    }

    fn add_chats(&mut self) {
        let client = self.caller(By::Client);
        client.call("chat-start", &json!({"title": "Kept"}));
        client.call(
            "chat-start",
            &json!({"title": "Asked", "participants": ["echo"]}),
        );
        self.home.ok(&["pools", "pause", "default"]);
        let cwd = self.home.work();
        let said = client.call(
            "say",
            &json!({"chat_id": 2, "message": "who?", "to": ["echo"], "cwd": cwd}),
        );
        let mut export = client.call("chat-export", &json!({"chat_id": 1}));
        export.as_object_mut().expect("an object").remove("next");
        self.ids = json!({"asked": said["message"]["seq"], "export": export});
    }

    fn add_rules(&mut self) {
        std::fs::write(self.home.work().join(".adjutant.toml"), POLICIES).expect("a file");
        let ask = json!({"action": "run make", "command": "make"});
        self.dispatch("asking", &format!("tool request_approval {ask}"));
        self.home.until("it asks", || {
            (self.home.show("asking")["pending_total"] == 1).then_some(())
        });
        self.home.ok(&["approve", "Q1", "--uses", "5"]);
        self.home.finished("asking");
        self.change_policies_beside_a_run();
        self.home.until("the delivery has failed", || {
            self.home.json(&["webhooks"])["webhooks"][0]["problem"]
                .is_string()
                .then_some(())
        });
        // The next try is an hour or more away.
        self.home.ok(&["stop"]);
        self.hub.wait().expect("it ends");
        note_failures(
            &self.home,
            &format!("http://127.0.0.1:{}/", self.receiver.port),
            5,
        );
        self.revive();
    }

    /// Leaves a change of the policies that waits for the person's trust.
    fn change_policies_beside_a_run(&mut self) {
        self.dispatch("live", "hang");
        self.home.until_status("live", "running");
        let file = self.home.home.dir.join("config.toml");
        let config = std::fs::read_to_string(&file).expect("the configuration");
        std::fs::write(&file, config + &POLICIES.replace("make", "build"))
            .expect("the configuration is writable");
        let change = || {
            self.caller(By::Person).call("policies", &json!({}))["change"]["change"]
                .as_str()
                .map(str::to_owned)
        };
        self.ids = json!({"change": self.home.until("a change waits", change)});
    }
}

/// Returns a reply without what is measured while a run works.
fn without_measures(reply: &Value) -> Value {
    match reply {
        Value::Object(fields) => {
            let kept = fields
                .iter()
                .filter(|(name, _)| !["active_ms", "resources"].contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), without_measures(value)))
                .collect()
        }
        Value::Array(values) => values.iter().map(without_measures).collect(),
        other => other.clone(),
    }
}

/// Makes the calls of a group, each with a hub that dies at the failpoint, and twice more with the
/// next hub.
fn make_once(group: Group) {
    for failpoint in ["store.before_commit", "store.after_commit"] {
        let mut world = World::new(group, failpoint);
        for Row {
            name,
            by,
            body,
            count,
            ..
        } in ROWS.iter().filter(|row| row.group == group)
        {
            let here = world.caller(*by);
            let body = body(&world).to_string();
            let before = count(&here, &world, None);
            let key = format!("once-{name}");
            let send = |caller: &Caller| {
                caller.open(
                    "POST",
                    &format!("/api/v1/{name}"),
                    &[("idempotency-key", &key)],
                    &body,
                )
            };
            std::fs::remove_file(&world.fired).expect("it is there");
            let mut broken = send(&here);
            let mut rest = Vec::new();
            // Closed or reset, and never a reply.
            let _end = broken.read_to_end(&mut rest);
            assert!(
                rest.is_empty(),
                "{failpoint} {name}: {}",
                String::from_utf8_lossy(&rest)
            );
            assert!(!world.hub.wait().expect("it dies").success());
            world.revive();
            let next = world.caller(*by);
            let replies: [Reply; 2] = [0, 1].map(|_| super::reply(&mut send(&next)));
            assert!(
                replies.iter().all(|reply| reply.status == 200),
                "{failpoint} {name}: {replies:?}"
            );
            let [first, second] = replies.map(|reply| reply.json());
            assert_eq!(
                without_measures(&first),
                without_measures(&second),
                "{failpoint} {name}"
            );
            let after = world.home.until(&format!("{name} has its effect"), || {
                Some(count(&next, &world, Some(&first))).filter(|now| *now > before)
            });
            assert_eq!(after, before + 1, "{failpoint} {name}");
            let reused = next.send(
                "POST",
                &format!("/api/v1/{name}"),
                &[("idempotency-key", &key)],
                &format!(" {body}"),
            );
            assert!(
                reused.status == 409 && reused.json()["code"] == "key_reused",
                "{failpoint} {name}: {reused:?}"
            );
            assert_eq!(
                count(&next, &world, Some(&first)),
                after,
                "{failpoint} {name}"
            );
        }
        world.home.ok(&["stop"]);
        world.hub.wait().expect("it ends");
    }
}

#[test]
fn call_about_runs_during_which_the_hub_dies_is_made_once() {
    make_once(Group::Runs);
}

#[test]
fn call_about_files_during_which_the_hub_dies_is_made_once() {
    make_once(Group::Files);
}

#[test]
fn call_about_chats_during_which_the_hub_dies_is_made_once() {
    make_once(Group::Chats);
}

#[test]
fn call_about_rules_during_which_the_hub_dies_is_made_once() {
    make_once(Group::Rules);
}

#[test]
fn every_call_that_changes_something_is_killed() {
    let changing = CALLS
        .iter()
        .filter(|(_, effect)| *effect == CallEffect::Changes)
        .map(|(name, _)| *name);
    let mut rows: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    rows.sort_unstable();
    assert!(changing.eq(rows.iter().copied()), "{rows:?}");
}
