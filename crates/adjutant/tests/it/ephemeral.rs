//! `--ephemeral`: a home in memory that ends with its hub.

use crate::support::{Ran, TestHome, kill, skip};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A separate runtime directory for each test, so that tests do not share the user's ephemeral
/// home.
struct Memory {
    dir: tempfile::TempDir,
    home: TestHome,
}

impl Memory {
    fn new() -> Option<Self> {
        let Ok(dir) = tempfile::Builder::new()
            .prefix("adj-test-")
            .tempdir_in("/dev/shm")
        else {
            skip("there is no /dev/shm");
            return None;
        };
        Some(Self {
            dir,
            home: TestHome::new(),
        })
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.home.command(args);
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        command
    }

    fn ok(&self, args: &[&str]) -> String {
        let all: Vec<&str> = ["--ephemeral"].iter().chain(args).copied().collect();
        let ran: Ran = self
            .command(&all)
            .output()
            .expect("adj can be started")
            .into();
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out
    }

    /// Returns the home's directory, if it exists.
    fn place(&self) -> Option<PathBuf> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(self.dir.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(found.len() < 2, "{found:?}");
        found.pop()
    }

    fn hub_pid(&self) -> u32 {
        crate::support::lock_pid(&self.place().expect("a home").join("hub.lock"))
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[test]
fn ephemeral_home_is_removed_with_its_hub() {
    let Some(memory) = Memory::new() else { return };
    let before = entries(&memory.home.home.dir);
    memory.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "otter",
        "say hello\n",
    ]);
    memory.ok(&["wait", "--until", "all", "otter"]);
    assert!(memory.ok(&["logs", "otter"]).contains("hello"));
    memory.ok(&["chat", "start", "a title"]);
    let place = memory.place().expect("a home");
    assert_eq!(
        std::fs::metadata(&place)
            .expect("a directory")
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    // The variable means the same as the option.
    let listed = memory
        .command(&["--json", "ps", "-a"])
        .env("ADJ_EPHEMERAL", "1")
        .output()
        .expect("adj can be started");
    assert_eq!(Ran::from(listed).data()[0]["name"], "otter");
    memory.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "long",
        "spawn setsid\nsleep 600\n",
    ]);
    memory.home.until("it works", || {
        memory
            .ok(&["--json", "show", "long"])
            .contains("\"state\":\"running\"")
            .then_some(())
    });
    let hub = memory.hub_pid();
    let stopped = memory.ok(&["stop"]);
    assert!(stopped.contains("with 1 live run"), "{stopped}");
    assert_eq!(memory.place(), None, "nothing is left");
    assert!(!TestHome::is_alive(hub));
    memory.home.until("nothing of its runs is left", || {
        memory.home.processes().is_empty().then_some(())
    });
    assert_eq!(
        entries(&memory.home.home.dir),
        before,
        "the home of the environment was not touched"
    );
    assert_eq!(
        memory.ok(&["--json", "ps", "-a"]).matches("otter").count(),
        0,
        "the next begins with nothing"
    );
    memory.ok(&["stop"]);
}

#[test]
fn killed_hub_leaves_its_home_and_stop_removes_it() {
    let Some(memory) = Memory::new() else { return };
    memory.ok(&["chat", "start", "a title"]);
    kill(memory.hub_pid());
    assert!(memory.ok(&["chat", "ls"]).contains("a title"));
    let hub = memory.hub_pid();
    kill(hub);
    memory.home.until("the hub is gone", || {
        (!TestHome::is_alive(hub)).then_some(())
    });
    memory.ok(&["stop"]);
    assert_eq!(memory.place(), None);
}

#[test]
fn mcp_server_supports_ephemeral() {
    let Some(memory) = Memory::new() else { return };
    let mut server = memory
        .command(&["mcp", "--ephemeral"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("adj starts");
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"start_chat","arguments":{"title":"from a client"}}}"#,
    ];
    let mut input = server.stdin.take().expect("a pipe");
    input
        .write_all(format!("{}\n", lines.join("\n")).as_bytes())
        .expect("written");
    memory.home.until("the chat is there", || {
        memory
            .ok(&["chat", "ls"])
            .contains("from a client")
            .then_some(())
    });
    drop(input);
    assert!(server.wait().expect("it ends").success());
    memory.ok(&["stop"]);
    assert_eq!(memory.place(), None);
}
