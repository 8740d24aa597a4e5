//! The vendors' real CLIs with a scripted model. `.ci/clis` installs them; `ADJ_CLIS` names their
//! directory. No CLI is signed in: keys are dummies, homes contain only what a user would have
//! there, and everything is on loopback.

mod adapters;
mod aider;
mod bare;
mod case;
mod chat;
mod connect;
mod driven;
mod facade;
mod failures;
mod fence;
mod gate;
mod install;
mod named_model;
mod offered;
mod pi;
mod profiles;
mod prompts;
mod recorded;
mod silence;
mod subagents;
mod trial;
mod user;
mod workspaces;

use crate::support::skip;
use adjutant_api::preset;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex};

/// The CLIs that are driven for real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cli {
    Claude,
    Codex,
    Gemini,
    Goose,
    Opencode,
    Kilo,
    Cline,
    Qwen,
    Copilot,
    Pi,
    Kimi,
    Aider,
    Droid,
    Amp,
}

impl Cli {
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Goose => "goose",
            Self::Opencode => "opencode",
            Self::Kilo => "kilo",
            Self::Cline => "cline",
            Self::Qwen => "qwen",
            Self::Copilot => "copilot",
            Self::Pi => "pi",
            Self::Kimi => "kimi",
            Self::Aider => "aider",
            Self::Droid => "droid",
            Self::Amp => "amp",
        }
    }

    /// The profile of a run that may write in its directory.
    pub fn writing(self) -> &'static str {
        if matches!(self, Self::Droid | Self::Aider | Self::Kilo | Self::Cline) {
            "full"
        } else {
            "edit"
        }
    }

    /// Returns whether it asks before a command in the profile `edit`. Droid has no such profile.
    pub fn asks_for_commands(self) -> bool {
        !matches!(self, Self::Droid | Self::Aider | Self::Amp)
    }

    /// Returns whether it asks before it edits a file in the profile `edit`.
    pub fn asks_for_edits(self) -> bool {
        matches!(self, Self::Kilo | Self::Cline)
    }

    /// Returns whether it repeats a call that the model refuses because of a rate limit.
    pub fn retries_when_limited(self) -> bool {
        !matches!(self, Self::Claude | Self::Codex | Self::Amp)
    }

    /// Returns whether its preset says that it reports usage.
    pub fn tells_usage(self) -> bool {
        preset::builtin(self.name())
            .expect("it is built in")
            .can
            .usage
    }
}

/// How many CLIs run at a time. Each takes 150 to 300 MB, and seconds to start.
const AT_ONCE: isize = 2;

static FREE: Mutex<isize> = Mutex::new(AT_ONCE);
static FREED: Condvar = Condvar::new();

/// The permit to start CLIs, with their directory.
#[derive(Debug)]
pub struct Turnstile {
    pub bin: PathBuf,
}

impl Turnstile {
    /// Waits for a permit. `None`: the CLIs are not installed, and the test has reported that.
    pub fn enter() -> Option<Self> {
        let bin = installed()?;
        let free = FREE.lock().expect("nobody panics while holding it");
        *FREED
            .wait_while(free, |free| *free <= 0)
            .expect("nobody panics while holding it") -= 1;
        Some(Self { bin })
    }
}

impl Turnstile {
    /// Takes a permit without waiting, for CLIs that are idle. Waiting tests wait longer.
    pub fn beside() -> Option<Self> {
        let bin = installed()?;
        *FREE.lock().expect("nobody panics while holding it") -= 1;
        Some(Self { bin })
    }
}

fn installed() -> Option<PathBuf> {
    let bin = std::env::var_os("ADJ_CLIS").map(PathBuf::from);
    if bin.is_none() {
        skip("ADJ_CLIS names no directory with the vendors' CLIs; run .ci/clis");
    }
    bin
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        *FREE.lock().expect("nobody panics while holding it") += 1;
        FREED.notify_one();
    }
}
