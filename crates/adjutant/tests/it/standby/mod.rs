//! Hubs that share a store on a real PostgreSQL server: standby hubs pass calls to the leader.

mod launches;
mod logs;
mod runs;
mod set_back;
mod weather;
mod work;

use crate::postgres::server::Server;
use crate::postgres::{self};
use crate::support::{TestHome, kill, tls_fixture};
use adjutant_api::view::{GetHub, HubView};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A hub that is killed or silent is replaced within this time, and a few calls.
const FAILOVER_MAX: Duration = Duration::from_secs(5);
/// The calls that a failover takes, at most. A machine that is loaded is slow in both.
const FAILOVER_CALLS: u32 = 10;

/// Two hubs, of which the first leads.
struct Group {
    server: Server,
    hubs: [TestHome; 2],
    urls: [String; 2],
}

impl Group {
    /// Starts the hubs. `None`: PostgreSQL is not installed.
    fn new() -> Option<Self> {
        let group = Self::without_hubs("")?;
        group.hubs[0].ok(&["ps"]);
        group.until_standby(1);
        Some(group)
    }

    fn without_hubs(more: &str) -> Option<Self> {
        let server = postgres::server()?;
        server.create_database("hub");
        let ports = [(); 2].map(|()| {
            TcpListener::bind("127.0.0.1:0")
                .and_then(|free| free.local_addr())
                .expect("a free port")
                .port()
        });
        let store = format!("store = \"{}\"\nstore_shared = true\n", server.url("hub"));
        let hubs = ports.map(|port| {
            TestHome::with_config(&format!("{store}listen = \"127.0.0.1:{port}\"\n{more}"))
        });
        Some(Self {
            server,
            hubs,
            urls: ports.map(|port| format!("http://127.0.0.1:{port}")),
        })
    }

    fn hub(&self, n: usize) -> HubView {
        self.hubs[n].call(&GetHub {}, "").expect("a hub runs")
    }

    /// Starts a hub, if necessary, and waits until it is a standby hub of the other one.
    fn until_standby(&self, n: usize) {
        self.hubs[n].ok(&["ps"]);
        let other = &self.urls[1 - n];
        let is_standby = || {
            self.hub(n)
                .leader
                .is_some_and(|leader| leader.url.as_ref() == Some(other))
                .then_some(())
        };
        self.hubs[n].until("the hub is on standby", is_standby);
    }

    fn until_leads(&self, n: usize) {
        self.hubs[n].until("the hub leads", || {
            self.hubs[n]
                .call(&GetHub {}, "")
                .is_ok_and(|hub| hub.leader.is_none() && hub.url.is_some())
                .then_some(())
        });
    }

    /// Kills the first hub, which leads.
    fn kill_leader(&self) {
        let pid = self.hub(0).pid;
        kill(pid);
        self.hubs[0].until("the hub is dead", || {
            (!TestHome::is_alive(pid)).then_some(())
        });
    }

    /// Returns how long a failover may take on this machine as it is now.
    fn failover_max(&self) -> Duration {
        let began = Instant::now();
        self.hubs[1].ok(&["ps"]);
        FAILOVER_MAX + began.elapsed() * FAILOVER_CALLS
    }

    fn signal(&self, n: usize, signal: Signal) {
        let pid = i32::try_from(self.hub(n).pid)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a pid");
        kill_process(pid, signal).expect("the hub lives");
    }
}

fn texts(home: &TestHome) -> Vec<String> {
    let chat = home.json(&["chat", "show", "1"]);
    chat["messages"]
        .as_array()
        .unwrap_or_else(|| panic!("{chat}"))
        .iter()
        .filter_map(|entry| entry["text"].as_str().map(ToOwned::to_owned))
        .collect()
}

#[test]
fn standby_hub_passes_calls_to_the_leader() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    second.ok(&["chat", "start", "plans"]);
    second.ok(&["chat", "post", "1", "from the second"]);
    first.ok(&["chat", "post", "1", "from the first"]);
    assert_eq!(texts(first), ["from the second", "from the first"]);
    assert_eq!(texts(second), texts(first));
    // An error of the leader is passed on as it is.
    let refused = second.adj(&["chat", "show", "nonsense"]);
    assert_eq!((refused.code, refused.err.clone()), {
        (
            first.adj(&["chat", "show", "nonsense"]).code,
            first.adj(&["chat", "show", "nonsense"]).err,
        )
    });
    assert_ne!(refused.code, 0);
    // It names the leader.
    let view = group.hub(1);
    assert_eq!(view.home, second.home.dir.display().to_string());
    assert!(
        view.leader
            .is_some_and(|leader| leader.url.as_ref() == Some(&group.urls[0]))
            && group.hub(0).leader.is_none()
    );
    let doctor = second.adj(&["doctor"]).out;
    assert!(
        doctor.contains(&format!("at {}", group.urls[0])),
        "{doctor}"
    );
    // A stop concerns only the hub that is asked.
    let leads = group.hub(0).pid;
    second.ok(&["stop"]);
    assert_eq!(group.hub(0).pid, leads);
}

#[test]
fn caller_keeps_its_identity_through_a_standby_hub() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let as_client = |home: &TestHome| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let name = adjutant_core::ClientName::parse("planner").expect("a name");
        let client = adjutant_net::hub_client::Client::hub(&home.home, Some(name));
        runtime
            .block_on(client.call(&adjutant_api::view::ListTokens::default()))
            .map(|_| ())
    };
    // A client may not manage the hub, wherever it asks.
    let refused = as_client(first).expect_err("refused");
    assert_eq!(as_client(second).expect_err("refused"), refused);
    second.ok(&["token", "new", "browser"]);
    let made = second.adj(&["token", "new", "gpu1", "--role", "runner"]);
    assert!(
        made.err
            .contains(&format!("adj runner --join {}", group.urls[0]))
            && made.err.contains("this hub is on standby"),
        "{made:?}"
    );
    assert!(first.ok(&["token", "list"]).contains("browser"));
}

#[test]
fn calls_of_hubs_need_the_token_of_a_standby_hub() {
    let Some(group) = Group::new() else { return };
    let post = |token: Option<&str>, path: &str| {
        let mut call = Command::new("curl");
        call.args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-X",
            "POST",
            "-H",
            "content-type: application/json",
            "-d",
            "{}",
        ]);
        if let Some(token) = token {
            call.args(["-H", &format!("adj-hub-token: {token}")]);
        }
        let done = call
            .arg(format!("{}{path}", group.urls[0]))
            .output()
            .expect("curl starts");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert_eq!(post(None, "/hub/api/v1/runs"), "401");
    assert_eq!(post(Some(&"0".repeat(64)), "/hub/api/v1/runs"), "401");
    // A token that the store knows, of a session that has ended, is refused too.
    group.server.sql(
        "hub",
        "INSERT INTO hubs VALUES (1, encode(sha256('gone'::bytea), 'hex'))",
    );
    assert_eq!(post(Some("gone"), "/hub/api/v1/runs"), "401");
    group
        .server
        .sql("hub", "INSERT INTO hubs SELECT pid, encode(sha256('here'::bytea), 'hex') FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
    assert_eq!(post(Some("here"), "/hub/api/v1/runs"), "200");
    assert_eq!(post(Some("here"), "/hub/api/v1/nonsense"), "404");
    // A token of a caller is not that of a hub.
    let token = group.hubs[0].json(&["token", "new", "browser"]);
    assert_eq!(post(token["token"].as_str(), "/hub/api/v1/runs"), "401");
}

#[test]
fn calls_go_only_to_the_certificate_of_the_leader() {
    let Some(mut group) =
        Group::without_hubs("[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n")
    else {
        return;
    };
    for (hub, fixture) in group
        .hubs
        .iter()
        .flat_map(|hub| [(hub, "server.pem"), (hub, "server.key")])
    {
        let file = hub.home.dir.join(fixture);
        std::fs::copy(tls_fixture(fixture), &file).expect("copied");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("private");
    }
    group.urls = group.urls.map(|url| url.replace("http:", "https:"));
    group.hubs[0].ok(&["ps"]);
    group.until_standby(1);
    group.hubs[1].ok(&["chat", "start", "plans"]);
    group.hubs[1].ok(&["stop"]);
    // Another server at this address would have another certificate.
    group.server.sql("hub", "UPDATE hub SET leader = jsonb_set(leader::jsonb, '{fingerprint}', to_jsonb(repeat('0', 64)))::text");
    let refused = group.hubs[1].adj(&["chat", "show", "1"]);
    assert!(
        refused.code != 0
            && refused.err.contains("TLS")
            && refused.err.contains("cannot be reached"),
        "{refused:?}"
    );
    assert_eq!(texts(&group.hubs[0]), [""; 0]);
}

#[test]
fn standby_hub_leads_at_once_after_an_orderly_stop() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    first.ok(&["chat", "start", "plans"]);
    let failover_max = group.failover_max();
    first.ok(&["stop"]);
    let began = Instant::now();
    second.ok(&["chat", "post", "1", "on it goes"]);
    assert!(began.elapsed() < failover_max, "{:?}", began.elapsed());
    group.until_leads(1);
    group.until_standby(0);
    assert_eq!(texts(first), ["on it goes"]);
}

#[test]
fn suspended_leader_answers_nothing_and_becomes_a_standby_hub() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    first.ok(&["chat", "start", "plans"]);
    let failover_max = group.failover_max();
    group.signal(0, Signal::STOP);
    let began = Instant::now();
    second.ok(&["chat", "post", "1", "by the second"]);
    let failover = began.elapsed();
    group.until_leads(1);
    assert!(failover < failover_max, "{failover:?}");
    // A read that has reached the stopped hub is not answered by it.
    let token = second.json(&["token", "new", "reader"]);
    let late = Command::new("curl")
        .args([
            "-s",
            "-m",
            "30",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-X",
            "POST",
            "-H",
            "content-type: application/json",
            "-d",
            "{}",
        ])
        .args([
            "-H",
            &format!(
                "authorization: Bearer {}",
                token["token"].as_str().expect("a token")
            ),
            &format!("{}/api/v1/runs", group.urls[0]),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl starts");
    // This call reaches the stopped hub. It is answered once, and by the leader.
    let mut posting = first
        .command(&["chat", "post", "1", "through the first"])
        .spawn()
        .expect("adj starts");
    let pid = i32::try_from(
        std::fs::read_to_string(first.home.hub_lock())
            .expect("a lock")
            .trim()
            .parse::<u32>()
            .expect("a pid"),
    )
    .expect("small");
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::CONT).expect("it continues");
    assert!(posting.wait().expect("it ends").success());
    let late = late.wait_with_output().expect("curl ends");
    let code = String::from_utf8_lossy(&late.stdout).into_owned();
    assert!(code == "503" || code == "000", "{code}");
    group.until_standby(0);
    assert_eq!(
        i32::try_from(group.hub(0).pid).ok(),
        Some(pid),
        "the process went on"
    );
    assert_eq!(texts(second), ["by the second", "through the first"]);
    assert_eq!(texts(first), texts(second));
}

#[test]
fn restart_of_postgresql_is_a_pause() {
    let Some(mut group) = Group::new() else {
        return;
    };
    group.hubs[0].ok(&["chat", "start", "plans"]);
    for round in 0..2 {
        group.server.kill();
        std::thread::scope(|scope| {
            let hubs = &group.hubs;
            let posting: Vec<_> = [0, 1]
                .into_iter()
                .map(|n| {
                    scope.spawn(move || hubs[n].ok(&["chat", "post", "1", &format!("{round} {n}")]))
                })
                .collect();
            group.server.resume();
            posting
                .into_iter()
                .for_each(|posting| drop(posting.join().expect("posted")));
        });
    }
    let mut posted = texts(&group.hubs[0]);
    posted.sort();
    assert_eq!(posted, ["0 0", "0 1", "1 0", "1 1"]);
    assert_eq!(
        [0, 1]
            .into_iter()
            .filter(|n| group.hub(*n).leader.is_none())
            .count(),
        1
    );
}

#[test]
fn hub_that_does_not_share_the_store_is_named_and_left_alone() {
    let Some(group) = Group::without_hubs("") else {
        return;
    };
    let own = TestHome::with_config(&format!("store = \"{}\"\n", group.server.url("hub")));
    own.start("local", "ask \"Which?\"\ndone yes");
    own.until_status("local", "waiting_parent_reply");
    let refused = group.hubs[0].adj(&["ps"]);
    assert!(
        refused.code != 0
            && refused.err.contains("does not share the store")
            && refused.err.contains("store_shared = true"),
        "{refused:?}"
    );
    // Its runs are on its machine: another hub cannot know their state.
    own.ok(&["stop"]);
    let refused = group.hubs[0].adj(&["ps"]);
    assert!(
        refused.code != 0 && refused.err.contains("started by a hub in another home"),
        "{refused:?}"
    );
    own.ok(&["reply", "local", "this"]);
    assert_eq!(own.finished("local")["outcome"], "succeeded");
    own.ok(&["stop"]);
    group.hubs[0].ok(&["ps"]);
}

#[test]
fn setting_needs_a_database() {
    let home = TestHome::with_config("store_shared = true\n");
    let refused = home.adj(&["config"]);
    assert!(
        refused.code != 0
            && refused.err.contains("store_shared")
            && refused.err.contains("postgres://"),
        "{refused:?}"
    );
}

#[test]
fn hub_ends_when_asked_to_while_its_server_does_not_answer() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    let home = TestHome::with_config(&format!("store = \"postgres://adj@{address}/hub\"\n"));
    let mut hub = home
        .command(&["__hub"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a hub");
    let open = server.accept().expect("it connects");
    let pid = i32::try_from(hub.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid");
    kill_process(pid, Signal::TERM).expect("it lives");
    assert!(hub.wait().expect("it ends").success());
    drop(open);
}

#[test]
fn standby_hub_without_a_server_says_so_and_stops() {
    let Some(mut group) = Group::new() else {
        return;
    };
    let doctor = group.hubs[1].adj(&["doctor"]).out;
    assert!(doctor.contains("OK (PostgreSQL)"), "{doctor}");
    group.server.kill();
    let second = &group.hubs[1];
    second.until("the standby hub knows it", || group.hub(1).store_problem);
    let doctor = second.adj(&["doctor"]);
    assert!(
        !doctor.out.contains("OK (PostgreSQL)") && doctor.out.contains("no leader is known"),
        "{doctor:?}"
    );
    let store = doctor
        .out
        .lines()
        .find(|line| line.contains("store"))
        .unwrap_or_default();
    assert!(
        store.contains("cannot be used") && doctor.code != 0,
        "{doctor:?}"
    );
    let pid = group.hub(1).pid;
    let stopped = second.ok(&["stop"]);
    assert!(
        stopped.contains(&format!("hub stopped (pid {pid})")),
        "{stopped}"
    );
    assert!(
        second.adj(&["stop"]).err.contains("no hub is running")
            || second.ok(&["stop"]).contains("no hub is running")
    );
    group.server.resume();
}
