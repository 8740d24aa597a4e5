//! A scripted model on loopback: it plays a scenario to a vendor's CLI in that vendor's streaming
//! API, and keeps every request, so that a test can check what the model received.
//!
//! A request with tools belongs to the conversation, and gets the scenario's next turn. Other
//! requests (a title, a token count, a list of models) are answered and not counted.

mod anthropic;
mod gemini;
mod offered;
mod openai;
mod serve;
mod turn;

pub use offered::Offered;
pub use serve::{SEARCHED, WORDS_ONLY};
pub use turn::Turn;

use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Timeout of each step of a real CLI. They start slowly on a machine under load.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The wire format of one vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Messages,
    Responses,
    Chat,
    Gemini,
}

/// One request of the conversation.
#[derive(Debug, Clone)]
pub struct Seen {
    pub dialect: Dialect,
    /// The tools that the CLI offered, by its names.
    pub tools: Vec<String>,
    /// The results of all tool calls of the conversation, in order.
    pub results: Vec<String>,
    /// The key that the CLI presented.
    pub key: String,
    /// The name of the model that the CLI asked for.
    pub model: String,
    pub body: Value,
}

impl Seen {
    /// Returns the newest result.
    pub fn last_result(&self) -> &str {
        self.results.last().map_or("", String::as_str)
    }
}

/// The history of the model's requests.
#[derive(Debug, Default)]
struct Story {
    turns: Vec<Turn>,
    seen: Vec<Seen>,
    /// Numbers of the turns for which the CLI offered no tool.
    turns_without_tool: Vec<usize>,
    /// Number of all answers. The ids of the next answer contain it.
    answers: usize,
    /// Requests outside of the conversation and unknown ones: method and path.
    aside: Vec<String>,
    /// Number of streams that the CLI closed while the model was hanging.
    left: usize,
}

#[derive(Debug, Default)]
struct Stage {
    story: Mutex<Story>,
    changed: Condvar,
    /// Whether answers of the conversation wait.
    holds: watch::Sender<bool>,
}

impl Stage {
    fn story(&self) -> MutexGuard<'_, Story> {
        self.story
            .lock()
            .expect("no test panics while it holds this")
    }

    fn change<T>(&self, change: impl FnOnce(&mut Story) -> T) -> T {
        let told = change(&mut self.story());
        self.changed.notify_all();
        told
    }
}

/// A model that serves until it is dropped.
#[derive(Debug)]
pub struct Model {
    stage: Arc<Stage>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    /// Starts a model with these turns, one for each request of the conversation.
    pub fn plays(turns: impl Into<Vec<Turn>>) -> Self {
        let stage = Arc::new(Stage::default());
        stage.change(|story| story.turns = turns.into());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        listener
            .set_nonblocking(true)
            .expect("a socket that does not block");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let served = stage.clone();
        let thread = std::thread::spawn(move || serve::until(listener, served, stopped));
        Self {
            stage,
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Returns the base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests of the conversation so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.stage.story().seen.clone()
    }

    /// Returns how many answers were given, to requests of the conversation and others. Each states
    /// 100 tokens of input and 10 of output.
    pub fn answers(&self) -> usize {
        self.stage.story().answers
    }

    /// Returns all other requests: method and path.
    pub fn aside(&self) -> Vec<String> {
        self.stage.story().aside.clone()
    }

    /// Returns the numbers of the turns for which the CLI offered no tool.
    pub fn turns_without_tool(&self) -> Vec<usize> {
        self.stage.story().turns_without_tool.clone()
    }

    /// Adds turns, for a session that is resumed.
    pub fn add_turns(&self, turns: impl IntoIterator<Item = Turn>) {
        self.stage.change(|story| story.turns.extend(turns));
    }

    /// Lets the answers of the conversation wait, or no longer wait.
    pub fn holds_answers(&self, holds: bool) {
        self.stage.holds.send_replace(holds);
    }

    /// Waits until the conversation has this many requests, and returns the last of them.
    pub fn until_asked(&self, times: usize) -> Seen {
        self.until(&format!("asked {times} times"), |story| {
            story.seen.get(times.checked_sub(1)?).cloned()
        })
    }

    /// Waits until the CLI has left the streams of this many hanging answers.
    pub fn until_left(&self, times: usize) {
        self.until("left", |story| (story.left >= times).then_some(()));
    }

    fn until<T>(&self, what: &str, mut found: impl FnMut(&Story) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut story = self.stage.story();
        loop {
            if let Some(found) = found(&story) {
                return found;
            }
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                drop(story);
                panic!("the model was not {what} within {PATIENCE:?}");
            }
            story = self
                .stage
                .changed
                .wait_timeout(story, rest)
                .expect("no test panics while it holds this")
                .0;
        }
    }
}

fn summary(story: &Story) -> String {
    let seen: Vec<_> = story
        .seen
        .iter()
        .map(|seen| (seen.dialect, seen.last_result()))
        .collect();
    format!(
        "the conversation: {seen:?}, aside: {:?}, streams left: {}",
        story.aside, story.left
    )
}

impl Drop for Model {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("at the model, {}", summary(&self.stage.story()));
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the model's server panicked");
        }
    }
}
