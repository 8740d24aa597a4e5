//! Notifies the person at a terminal: a bell, the terminal's own notification, the window's title.
//! Nothing is written if the stream is not a terminal.

use super::context::Context;
use super::exit::{Exit, cli_codes};
use super::out::{Failure, fail};
use super::run_state;
use crate::config::{Config, NotifySettings, text_variable};
use crate::view::{RequestView, RunView};
use crate::{clock, text};
use adjutant_core::shorten;
use std::io::{self, IsTerminal, Write};
use tokio::signal::unix::{SignalKind, signal};

/// Longest notification or title.
const CHARS_MAX: usize = 120;
/// Pushes the window's title on the terminal's stack, and pops it.
const PUSH_TITLE: &str = "\u{1b}[22;2t";
const POP_TITLE: &str = "\u{1b}[23;2t";

/// The terminal to notify. Dropping it restores the title.
pub(crate) struct Alert {
    settings: NotifySettings,
    stream: Option<Box<dyn Write>>,
    has_title: bool,
}

impl Alert {
    /// Notifies on standard error, for commands whose standard output is data.
    pub(crate) fn on_stderr(cx: &Context) -> Self {
        Self::on(io::stderr(), cx)
    }

    /// Notifies on standard output, for commands that draw there.
    #[cfg(feature = "top")]
    pub(crate) fn on_stdout(cx: &Context) -> Self {
        Self::on(io::stdout(), cx)
    }

    fn on(stream: impl Write + IsTerminal + 'static, cx: &Context) -> Self {
        let is_used = is_read_by_person(&stream, cx);
        // The hub reports a file that cannot be used.
        let settings = if is_used {
            Config::load(&cx.home)
                .map(|config| config.notify)
                .unwrap_or_default()
        } else {
            NotifySettings::default()
        };
        Self {
            settings,
            stream: is_used.then(|| Box::new(stream) as Box<dyn Write>),
            has_title: false,
        }
    }

    /// Notifies of one thing.
    pub(super) fn notify(&mut self, message: &str) {
        let mut sequence = String::new();
        if !self.is_quiet() {
            if self.settings.osc {
                sequence.push_str(&notification(message, text_variable));
            }
            if self.settings.bell {
                sequence.push('\u{7}');
            }
        }
        self.write(&sequence);
    }

    /// Sets the window's title, until the end.
    pub(crate) fn set_title(&mut self, title: &str) {
        if self.settings.title && self.stream.is_some() {
            let push = if std::mem::replace(&mut self.has_title, true) {
                ""
            } else {
                PUSH_TITLE
            };
            self.write(&format!("{push}\u{1b}]2;{}\u{7}", shown(title)));
        }
    }

    /// Does a command's work under a title. A signal that ends the command restores the title
    /// first.
    pub(super) async fn during<T>(
        &mut self,
        title: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        if !self.settings.title || self.stream.is_none() {
            return work.await;
        }
        // Before the title is set, so that no signal leaves it there.
        let taken = |kind| {
            signal(kind)
                .map_err(|error| fail(cli_codes::IO, format!("cannot take signals: {error}")))
        };
        let mut interrupts = taken(SignalKind::interrupt())?;
        let (mut terminations, mut hangups) = (
            taken(SignalKind::terminate())?,
            taken(SignalKind::hangup())?,
        );
        self.set_title(title);
        let exit = tokio::select! {
            done = work => return done,
            _ = interrupts.recv() => Exit::Interrupted,
            _ = terminations.recv() => Exit::Terminated,
            _ = hangups.recv() => Exit::Terminated,
        };
        Err(Failure::Reported(exit))
    }

    fn is_quiet(&self) -> bool {
        let NotifySettings { quiet, zone, .. } = &self.settings;
        quiet.is_some_and(|quiet| quiet.lasts_ms(clock::ms_of_day(zone.as_deref())).is_some())
    }

    fn write(&mut self, sequence: &str) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if let Err(error) = stream
            .write_all(sequence.as_bytes())
            .and_then(|()| stream.flush())
        {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
}

/// Returns whether a person reads a stream on a terminal that understands control sequences.
pub(crate) fn is_read_by_person(stream: &impl IsTerminal, cx: &Context) -> bool {
    stream.is_terminal()
        && !cx.out.json
        && !cx.out.agent_mode
        && text_variable("TERM").as_deref() != Some("dumb")
}

impl Drop for Alert {
    fn drop(&mut self) {
        if self.has_title {
            self.write(POP_TITLE);
        }
    }
}

/// Returns what is asked of the person, for a notification.
pub(super) fn asked(request: &RequestView) -> String {
    format!("{} asks ({})", request.run_name, request.number)
}

/// Returns the state of a run that has ended or stopped, for a notification.
pub(super) fn ended(run: &RunView) -> String {
    format!(
        "{}: {}",
        run.identity.name,
        run_state::label(run, super::context::now()).text
    )
}

/// Returns the sequence of a terminal's own notification. Terminals that know both kinds get one:
/// OSC 777 is that of rxvt, foot and VTE, OSC 9 that of the others.
fn notification(message: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let term = variable("TERM").unwrap_or_default();
    let knows_777 = variable("VTE_VERSION").is_some()
        || ["rxvt", "foot"].iter().any(|name| term.starts_with(name));
    // A semicolon would end a part of it.
    let message = shown(message).replace(';', ",");
    if knows_777 {
        format!("\u{1b}]777;notify;adj;{message}\u{7}")
    } else {
        format!("\u{1b}]9;adj: {message}\u{7}")
    }
}

fn shown(message: &str) -> String {
    shorten::counted(&text::line(message), CHARS_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_is_one_sequence() {
        let hostile = "a\u{7}\u{1b}]2;evil\u{7};b\u{9c}\nc";
        let plain = notification(hostile, |_| None);
        assert!(
            plain.starts_with("\u{1b}]9;adj: a") && plain.ends_with('\u{7}'),
            "{plain:?}"
        );
        let vte = notification(hostile, |name| {
            (name == "VTE_VERSION").then(|| "7600".to_owned())
        });
        assert!(vte.starts_with("\u{1b}]777;notify;adj;a"), "{vte:?}");
        for (sequence, semicolons) in [(plain, 1), (vte, 3)] {
            let count = |c: char| sequence.chars().filter(|other| *other == c).count();
            assert_eq!(
                (count('\u{1b}'), count('\u{7}'), count('\u{9c}'), count(';')),
                (1, 1, 0, semicolons),
                "{sequence:?}"
            );
        }
    }
}
