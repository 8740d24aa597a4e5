//! Where the processes' own log lines go: to stderr, which is a file for those in the background.

use crate::config;
use tracing_subscriber::EnvFilter;

/// Begins logging, at the level that `ADJ_LOG` names (else `default`).
pub fn start(default: &str) {
    let wanted = config::text_variable("ADJ_LOG");
    // A library that tells of each connection would fill the file.
    let default = format!("{default},rmcp=warn");
    let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(&default)).unwrap_or_else(|_| EnvFilter::new(&default));
    // A line that the full disk does not take is lost; complaining about it would end the process.
    let logger = tracing_subscriber::fmt().log_internal_errors(false).with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).compact();
    if logger.try_init().is_err() {
        tracing::debug!("logging was begun already");
    }
}
