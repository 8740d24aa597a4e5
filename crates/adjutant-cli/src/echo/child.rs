//! Descendants of the echo agent that try to escape from supervision in different ways.

use super::script::Kind;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Starts a descendant and returns its pid. It runs until it is killed.
pub(super) fn spawn(kind: Kind, ignore_term: bool, run: &str) -> io::Result<u32> {
    let mut command = own_binary(kind.word(), ignore_term, run);
    match kind {
        Kind::Group | Kind::Setsid => command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(|child| child.id()),
        Kind::KeepStdout => command.stdin(Stdio::null()).spawn().map(|child| child.id()),
        Kind::DoubleFork | Kind::ClosedFds => {
            // The intermediate process prints the pid of its child, and exits.
            let mut between: Child = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let mut printed = String::new();
            if let Some(out) = &mut between.stdout {
                out.read_to_string(&mut printed)?;
            }
            between.wait()?;
            printed.trim().parse().map_err(|_| {
                io::Error::other(format!("the intermediate process printed {printed:?}"))
            })
        }
    }
}

/// Runs a descendant: `adj __echo --child KIND RUN [--ignore-term]`.
pub(super) fn main(kind: &str, run: &str, ignore_term: bool) -> io::Result<()> {
    match Kind::from_word(kind) {
        Some(Kind::Setsid | Kind::KeepStdout) => {
            rustix::process::setsid()?;
        }
        Some(kind @ (Kind::DoubleFork | Kind::ClosedFds)) => {
            rustix::process::setsid()?;
            let mut command = own_binary("grandchild", ignore_term, run);
            if kind == Kind::ClosedFds {
                command.env_clear().current_dir("/");
            }
            let child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            super::out::line(&child.id().to_string());
            return Ok(());
        }
        Some(Kind::Group) | None => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        if ignore_term {
            ignore_terminate()?;
        }
        std::future::pending::<io::Result<()>>().await
    })
}

/// Ignores TERM from now on. Requires the runtime.
pub(crate) fn ignore_terminate() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    // The handler stays installed when its stream is dropped, and then does nothing.
    signal(SignalKind::terminate()).map(drop)
}

fn own_binary(kind: &str, ignore_term: bool, run: &str) -> Command {
    let mut command = program();
    command.args(["__echo", "--child", kind, run]);
    if ignore_term {
        command.arg("--ignore-term");
    }
    command
}

/// Returns a command that starts this binary, as any program could.
#[expect(
    clippy::disallowed_methods,
    reason = "the echo agent stands for a foreign program, which spawns without Adjutant's rules"
)]
pub(super) fn program() -> Command {
    const OURSELVES: &str = "/proc/self/exe";
    if std::path::Path::new(OURSELVES).exists() {
        let mut command = Command::new(OURSELVES);
        command.arg0("adj");
        return command;
    }
    Command::new(std::env::current_exe().unwrap_or_else(|_| "adj".into()))
}
