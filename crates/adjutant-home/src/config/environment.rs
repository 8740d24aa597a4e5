//! Reads this process' environment. No other module does.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Variables that are passed to a hub.
const HUB_VARIABLES: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "ADJ_LOG",
    "ADJ_FAILPOINT",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    // The CA certificates for webhooks and gates, if not in the default place.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    // The password of a store on PostgreSQL.
    "PGPASSWORD",
    "PGPASSFILE",
];

/// Variables from which git finds the user's configuration. An agent can have others.
const GIT_VARIABLES: [&str; 2] = ["HOME", "XDG_CONFIG_HOME"];

#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one place that reads the environment"
)]
pub(super) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one place that reads the environment"
)]
pub(super) fn variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

/// Returns a variable as text, for switches of the interfaces (colour, agent mode, markers).
#[must_use]
pub fn text_variable(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Returns the environment for a hub. `credentials`: further variables that it needs.
#[must_use]
pub fn hub_env(credentials: &[&str]) -> Vec<(OsString, OsString)> {
    HUB_VARIABLES
        .iter()
        .chain(credentials)
        .filter_map(|name| Some((OsString::from(name), variable(name)?)))
        .collect()
}

/// Returns the environment for a program that sends e-mail.
#[must_use]
pub fn mail_env() -> Vec<(OsString, OsString)> {
    ["PATH", "HOME", "USER", "LOGNAME", "LANG"]
        .iter()
        .filter_map(|name| Some((OsString::from(name), variable(name)?)))
        .collect()
}

/// Returns the environment for a program that notifies the person, which may need the bus of the
/// user's session.
#[must_use]
pub fn notify_env() -> Vec<(OsString, OsString)> {
    let session = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"]
        .iter()
        .filter_map(|name| Some((OsString::from(name), variable(name)?)));
    mail_env().into_iter().chain(session).collect()
}

/// Returns the environment for a guard and a supervisor. It contains nothing of an agent, since the
/// order contains everything.
#[must_use]
pub fn guard_env() -> Vec<(OsString, OsString)> {
    ["ADJ_LOG", "ADJ_FAILPOINT", "SSL_CERT_FILE", "SSL_CERT_DIR"]
        .iter()
        .chain(&GIT_VARIABLES)
        .filter_map(|name| Some((OsString::from(name), variable(name)?)))
        .collect()
}

/// Returns the environment for the launcher of a pool: this process' own, without Adjutant's
/// variables and the password of the store.
#[must_use]
pub fn launcher_env() -> Vec<(OsString, OsString)> {
    variables()
        .filter(|(name, _)| !name.to_string_lossy().starts_with("ADJ_") && name != "PGPASSWORD")
        .collect()
}

/// Returns the environment in which git is found and reads the user's configuration. `path`: the
/// `PATH`; `None`: that of this process.
#[must_use]
pub fn git_env(path: Option<&String>) -> BTreeMap<String, String> {
    let own = GIT_VARIABLES
        .iter()
        .chain(path.is_none().then_some(&"PATH"));
    let mut env: BTreeMap<String, String> = own
        .filter_map(|name| Some(((*name).to_owned(), text_variable(name)?)))
        .collect();
    env.extend(path.map(|path| ("PATH".to_owned(), path.clone())));
    env
}

/// Returns this process' whole environment, for a process that passes it on unchanged.
#[must_use]
pub fn whole_env() -> Vec<(OsString, OsString)> {
    variables().collect()
}
