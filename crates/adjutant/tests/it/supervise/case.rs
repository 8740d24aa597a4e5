//! A minimal hub for tests of the supervisor: it receives facts, sends orders, answers calls, and
//! can disappear and return.

use adjutant_api::protocol::{
    AttemptDir, Fact, FactKind, FactsStored, GetOrders, Order, Orders, PostFacts,
};
use adjutant_home::attempt_processes::{attempt_over, spawn_guard_of};
use adjutant_os::process;
use adjutant_os::sock;
use axum::extract::{Path as UrlPath, State};
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Long enough for a slow machine, short enough not to delay a failing test.
pub const SOON: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-token";

#[derive(Clone)]
struct Seen {
    facts: Arc<watch::Sender<Vec<Fact>>>,
    orders: Arc<watch::Sender<Orders>>,
    /// Every call with its key and attempt.
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

/// One attempt in a separate home.
pub struct Case {
    pub home: PathBuf,
    pub run_id: String,
    pub dir: AttemptDir,
    pub unique: String,
    seen: Seen,
    serving: Mutex<Option<oneshot::Sender<()>>>,
    _temporary: tempfile::TempDir,
}

impl Case {
    pub fn new() -> Self {
        Self::below("home")
    }

    /// Creates a home with this name in a temporary directory.
    pub fn below(name: &str) -> Self {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let home = temporary.path().join(name);
        for dir in ["logs", "runs", "work"] {
            fs::create_dir_all(home.join(dir)).expect("makes");
        }
        let random: [u8; 10] = std::array::from_fn(|_| fastrand());
        let run_id =
            adjutant_core::RunId::new(adjutant_core::Time(1_763_686_923_004), random).to_string();
        let unique = u32::from_le_bytes([random[0], random[1], random[2], random[3]]);
        let case = Self {
            dir: AttemptDir::new(&home, &run_id, 1),
            home,
            run_id,
            unique: format!("{unique:010}7"),
            seen: Seen {
                facts: Arc::new(watch::Sender::new(Vec::new())),
                orders: Arc::new(watch::Sender::new(Orders::default())),
                calls: Arc::default(),
            },
            serving: Mutex::new(None),
            _temporary: temporary,
        };
        case.hub_comes();
        case
    }

    pub fn hub_comes(&self) {
        let router = Router::new()
            .route("/link/facts", post(facts))
            .route("/link/orders", post(orders))
            .route("/api/v1/{name}", post(call))
            .with_state(self.seen.clone());
        let listener = sock::bind(&self.home.join("adj.sock")).expect("binds");
        let (stop, stopped) = oneshot::channel::<()>();
        *self.serving.lock().unwrap() = Some(stop);
        tokio::spawn(async move {
            tokio::select! {
                served = async { axum::serve(listener, router).await } => served.expect("serves"),
                _ = stopped => {}
            }
        });
    }

    /// Ends the hub: its listener and its socket are gone.
    pub fn hub_goes(&self) {
        drop(self.serving.lock().unwrap().take());
        fs::remove_file(self.home.join("adj.sock")).expect("removes");
    }

    pub fn order(&self, script: &str) -> Order {
        Order {
            home: self.home.clone(),
            run_id: self.run_id.clone(),
            run_name: "brave-otter".to_owned(),
            attempt: 1,
            agent: "tester".to_owned(),
            harness: "plain".to_owned(),
            preset: None,
            permissions: "edit".to_owned(),
            trust_repo: false,
            session: None,
            has_tools: true,
            new_session_prompt: None,
            args: Vec::new(),
            model: None,
            last_args: Vec::new(),
            argv: ["/bin/bash", "-c", script].map(str::to_owned).to_vec(),
            prompt_via: "stdin".to_owned(),
            prompt: "the prompt\n".to_owned(),
            cwd: self.home.join("work"),
            workspace: None,
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                ("U".to_owned(), format!("1000.{}", self.unique)),
            ]),
            timeout_ms: None,
            active_ms_before: 0,
            patience_ms: 1_000,
            stall_ms: None,
            memory_bytes_max: None,
            grace_ms: 500,
            report_grace_ms: None,
            ends_after_report: false,
            accept: Vec::new(),
            answer_bytes_max: 0,
            log_bytes_max: 1024 * 1024,
            token: TOKEN.to_owned(),
            containment: "subreaper".to_owned(),
            fence: None,
            gate: None,
            lease_ms: None,
        }
    }

    pub fn start(&self, order: &Order) -> process::Child {
        spawn_guard_of(Path::new(env!("CARGO_BIN_EXE_adj")), &self.dir, order)
            .expect("a guard starts")
    }

    /// Runs an order to the end, and returns the last fact.
    pub async fn run(&self, order: &Order) -> FactKind {
        let guard = self.start(order);
        let status = tokio::time::timeout(SOON, guard.wait())
            .await
            .expect("the guard ends")
            .expect("is reaped");
        assert_eq!(status.exit_status(), Some(0), "{}", self.supervisor_log());
        attempt_over(&self.dir).await.expect("watched");
        self.facts().last().expect("there are facts").what.clone()
    }

    pub fn give(&self, change: impl FnOnce(&mut Orders)) {
        self.seen.orders.send_modify(|orders| {
            orders.version += 1;
            change(orders);
        });
    }

    pub fn facts(&self) -> Vec<Fact> {
        self.seen.facts.borrow().clone()
    }

    pub fn calls(&self) -> Vec<(String, Value)> {
        self.seen.calls.lock().unwrap().clone()
    }

    /// Waits until the hub has a matching fact, and returns it.
    pub async fn fact(&self, wanted: impl Fn(&FactKind) -> bool) -> FactKind {
        let mut facts = self.seen.facts.subscribe();
        let found = facts.wait_for(|facts| facts.iter().any(|fact| wanted(&fact.what)));
        let facts = match tokio::time::timeout(SOON, found).await {
            Ok(facts) => facts.expect("the hub is there"),
            Err(_) => panic!(
                "no such fact came; {:#?}; {}",
                self.facts(),
                self.supervisor_log()
            ),
        };
        facts
            .iter()
            .find(|fact| wanted(&fact.what))
            .expect("the fact that was awaited")
            .what
            .clone()
    }

    pub async fn started(&self) {
        self.fact(|fact| matches!(fact, FactKind::Started { .. }))
            .await;
    }

    pub fn supervisor_pid(&self) -> i32 {
        pid_in(&self.dir.supervisor_lock())
    }

    pub fn guard_pid(&self) -> i32 {
        pid_in(&self.dir.guard_lock())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(adjutant_home::logs::log_path(&self.home, &self.run_id, 1))
            .expect("is text")
    }

    pub fn supervisor_log(&self) -> String {
        fs::read_to_string(self.dir.0.join("supervisor.log")).unwrap_or_default()
    }

    /// Returns the processes with this case's unique number in their command line.
    pub fn alive(&self) -> Vec<String> {
        let mut alive = Vec::new();
        for entry in fs::read_dir("/proc").expect("lists").flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&self.unique)
                && entry
                    .file_name()
                    .to_string_lossy()
                    .bytes()
                    .all(|b| b.is_ascii_digit())
            {
                alive.push(line);
            }
        }
        alive
    }

    /// Waits until `count` of them exist.
    pub async fn wait_alive(&self, count: usize) {
        let until = Instant::now() + SOON;
        while self.alive().len() < count {
            assert!(
                Instant::now() < until,
                "only {:?}; {}",
                self.alive(),
                self.supervisor_log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until none of them is left.
    pub async fn none_left(&self) {
        let until = Instant::now() + SOON;
        loop {
            let alive = self.alive();
            if alive.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "still there: {alive:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kills");
}

fn pid_in(path: &Path) -> i32 {
    fs::read_to_string(path)
        .expect("is there")
        .trim()
        .parse()
        .expect("a pid")
}

pub fn fastrand() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("random bytes");
    byte[0]
}

fn check(headers: &HeaderMap) {
    assert_eq!(
        headers.get("authorization").expect("a bearer"),
        &format!("Bearer {TOKEN}")
    );
    assert!(headers.contains_key("adj-attempt"));
}

async fn facts(
    State(seen): State<Seen>,
    headers: HeaderMap,
    Json(post): Json<PostFacts>,
) -> Json<FactsStored> {
    check(&headers);
    let mut cursor = 0;
    seen.facts.send_modify(|facts| {
        for fact in post.facts {
            let next = facts.len() as u64 + 1;
            assert!(fact.n <= next, "a gap in the facts");
            if fact.n == next {
                facts.push(fact);
            }
        }
        cursor = facts.len() as u64;
    });
    Json(FactsStored { cursor })
}

async fn orders(
    State(seen): State<Seen>,
    headers: HeaderMap,
    Json(ask): Json<GetOrders>,
) -> Json<Orders> {
    check(&headers);
    let mut orders = seen.orders.subscribe();
    let changed = orders.wait_for(|orders| orders.version != ask.known);
    let now = tokio::time::timeout(Duration::from_millis(ask.wait_ms), changed).await;
    match now {
        Ok(now) => Json(now.expect("the hub is there").clone()),
        Err(_) => Json(seen.orders.borrow().clone()),
    }
}

async fn call(
    State(seen): State<Seen>,
    UrlPath(name): UrlPath<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Json<Value> {
    check(&headers);
    let key = headers
        .get("adj-key")
        .expect("a key")
        .to_str()
        .expect("ASCII")
        .to_owned();
    let attempt = headers
        .get("adj-attempt")
        .expect("an attempt")
        .to_str()
        .expect("ASCII")
        .to_owned();
    seen.calls
        .lock()
        .unwrap()
        .push((name.clone(), body.clone()));
    Json(json!({ "name": name, "key": key, "attempt": attempt, "body": body }))
}
