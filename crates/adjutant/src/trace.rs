//! Where the processes' own log lines go: to stderr, which is a file for those in the background.

use crate::config;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Begins logging, at the level that `ADJ_LOG` names (else `default`).
pub fn start(default: &str) {
    let wanted = config::text_variable("ADJ_LOG");
    // A library that tells of each connection would fill the file.
    let default = format!("{default},rmcp=warn");
    let parse = |directives: &str| directives.parse::<Targets>();
    let filter = wanted.as_deref().and_then(|wanted| parse(wanted).ok()).or_else(|| parse(&default).ok()).unwrap_or_default();
    // A line that the full disk does not take is lost; complaining about it would end the process.
    let lines = fmt::layer().log_internal_errors(false).with_writer(std::io::stderr).with_ansi(false).compact();
    if tracing_subscriber::registry().with(lines).with(filter).try_init().is_err() {
        tracing::debug!("logging was begun already");
    }
}
