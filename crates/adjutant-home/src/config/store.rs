//! The `store` setting: a PostgreSQL database instead of the file in the home.

use super::environment::{text_variable, variable};
use super::values::UnusableValues;
use crate::files;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

const PORT_DEFAULT: u16 = 5432;
/// Largest password file, in bytes.
const PASSWORD_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A database on a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    /// A name, an address, or the directory of a Unix socket.
    pub host: String,
    pub port: u16,
    pub user: String,
    pub database: String,
    /// Not part of the setting. Read when a connection is made.
    pub password: Option<Password>,
    /// Connect with TLS and verify the server's certificate and name. `false`: without TLS.
    pub verifies_tls: bool,
    /// A file of CA certificates. `None`: those of this machine.
    pub root_certificates: Option<PathBuf>,
}

/// A password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// The address without anything secret.
impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            user,
            database,
            ..
        } = self;
        match host.strip_prefix('/') {
            Some(_) => write!(f, "postgres://{user}@/{database}?host={host}&port={port}"),
            None if host.contains(':') => write!(f, "postgres://{user}@[{host}]:{port}/{database}"),
            None => write!(f, "postgres://{user}@{host}:{port}/{database}"),
        }
    }
}

impl PostgresAddress {
    /// Adds the password of the environment: `PGPASSWORD`, or the matching line of the file
    /// `PGPASSFILE` or `~/.pgpass`.
    ///
    /// # Errors
    /// The file can be read by other users, or not at all.
    pub fn with_password(mut self) -> Result<Self, PasswordError> {
        self.password = match text_variable("PGPASSWORD") {
            Some(password) => Some(Password(password)),
            None => self.password_of_file()?,
        };
        Ok(self)
    }

    fn password_of_file(&self) -> Result<Option<Password>, PasswordError> {
        let named = variable("PGPASSFILE").map(PathBuf::from);
        let Some(file) = named
            .clone()
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pgpass")))
        else {
            return Ok(None);
        };
        if named.is_none() && !file.exists() {
            return Ok(None);
        }
        check_private(&file)?;
        let bytes = files::read_named(&file, PASSWORD_FILE_BYTES_MAX)?;
        Ok(self
            .password_in(&String::from_utf8_lossy(&bytes))
            .map(Password))
    }

    /// Finds the first line `host:port:database:user:password` for this address. `*` matches
    /// everything.
    fn password_in(&self, lines: &str) -> Option<String> {
        let host = if self.host.starts_with('/') {
            "localhost"
        } else {
            &self.host
        };
        let port = self.port.to_string();
        let wanted = [host, &port, &self.database, &self.user];
        lines
            .lines()
            .filter(|line| !line.starts_with('#'))
            .find_map(|line| {
                let fields = fields(line);
                let is_match = fields.len() == 5
                    && fields
                        .iter()
                        .zip(wanted)
                        .all(|(field, wanted)| field == "*" || field == wanted);
                is_match.then(|| fields[4].clone())
            })
    }
}

/// Splits a line of a password file at its first four colons. A backslash quotes a character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => fields.last_mut().expect("one").extend(chars.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            c => fields.last_mut().expect("one").push(c),
        }
    }
    fields
}

/// Why the password of a database cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error(transparent)]
    NotPrivate(#[from] PrivateFileError),
    /// The error contains the path.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a file is not one that only its user can read.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("other users can read {0}: run chmod 600 on it")]
    Readable(PathBuf),
}

/// Checks that only its user can read a file.
pub(super) fn check_private(file: &Path) -> Result<(), PrivateFileError> {
    use std::os::unix::fs::MetadataExt;
    let mode = std::fs::metadata(file)
        .map_err(|source| PrivateFileError::Io {
            path: file.to_owned(),
            source,
        })?
        .mode();
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(PrivateFileError::Readable(file.to_owned()))
    }
}

/// Why a `store` setting cannot be used. It never contains the setting, which could contain a
/// password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreProblem {
    #[error("use postgres://USER@HOST:PORT/DATABASE")]
    Form,
    #[error("leave the password out, and set PGPASSWORD or PGPASSFILE for the hub")]
    HasPassword,
    #[error("port must be a number from 1 to 65535")]
    Port,
    #[error("the options are host, port, sslmode and sslrootcert")]
    Option,
    #[error("sslrootcert is an absolute path")]
    RelativeCertificate,
    #[error("a Unix socket has no TLS: leave sslmode out")]
    SocketWithTls,
    #[error(
        "sslmode=disable sends everything in plain text, so it is for this machine only: use verify-full"
    )]
    PlainText,
    #[error(
        "this sslmode does not verify who the server is: use verify-full, and sslrootcert=FILE for a private CA"
    )]
    Unverified,
}

/// Reads the setting. Invalid values are reported.
pub(super) fn read(
    text: Option<&str>,
    is_shared: bool,
    unusable: &mut UnusableValues,
) -> Option<PostgresAddress> {
    if is_shared && text.is_none() {
        unusable.report(
            "store_shared",
            "hubs can only share a database: set store = \"postgres://…\"",
        );
    }
    unusable.check("store", address(text?))
}

impl std::str::FromStr for PostgresAddress {
    type Err = StoreProblem;

    fn from_str(text: &str) -> Result<Self, StoreProblem> {
        address(text)
    }
}

fn address(text: &str) -> Result<PostgresAddress, StoreProblem> {
    let rest = text
        .strip_prefix("postgres://")
        .or_else(|| text.strip_prefix("postgresql://"))
        .ok_or(StoreProblem::Form)?;
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').ok_or(StoreProblem::Form)?;
    let (user, place) = authority.rsplit_once('@').ok_or(StoreProblem::Form)?;
    if user.contains(':') {
        return Err(StoreProblem::HasPassword);
    }
    let (host, port) = host_and_port(place)?;
    let decoded = |text| decoded(text).ok_or(StoreProblem::Form);
    let mut address = PostgresAddress {
        host: decoded(host)?,
        port: port.unwrap_or(PORT_DEFAULT),
        user: decoded(user)?,
        database: decoded(database)?,
        password: None,
        verifies_tls: false,
        root_certificates: None,
    };
    let mut mode = None;
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = decoded(value)?;
        match name {
            "host" => address.host = value,
            "port" => address.port = value.parse().map_err(|_| StoreProblem::Port)?,
            "sslmode" => mode = Some(value),
            "sslrootcert" => address.root_certificates = Some(PathBuf::from(value)),
            "password" => return Err(StoreProblem::HasPassword),
            _ => return Err(StoreProblem::Option),
        }
    }
    let parts = [&address.host, &address.user, &address.database];
    if parts.iter().any(|part| part.is_empty()) {
        return Err(StoreProblem::Form);
    }
    let certificates = address.root_certificates.as_ref();
    if certificates.is_some_and(|file| !file.is_absolute()) {
        return Err(StoreProblem::RelativeCertificate);
    }
    address.verifies_tls = verifies_tls(&address.host, mode.as_deref())?;
    Ok(address)
}

/// Returns whether a connection to a server uses TLS. Without it, it stays on this machine.
fn verifies_tls(host: &str, mode: Option<&str>) -> Result<bool, StoreProblem> {
    let is_socket = host.starts_with('/');
    let is_local = is_socket || adjutant_core::address::is_loopback(host);
    match mode {
        Some("verify-full") if is_socket => Err(StoreProblem::SocketWithTls),
        Some("verify-full") => Ok(true),
        Some("disable") if is_local => Ok(false),
        Some("disable") => Err(StoreProblem::PlainText),
        Some(_) => Err(StoreProblem::Unverified),
        None => Ok(!is_local),
    }
}

fn host_and_port(place: &str) -> Result<(&str, Option<u16>), StoreProblem> {
    let (host, port) = match place
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => place
            .split_once(':')
            .map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let port = port
        .map(|port| port.parse().map_err(|_| StoreProblem::Form))
        .transpose()?;
    Ok((host, port))
}

/// Decodes `%2F` and the like. `None`: it is not a code, or the text has control characters.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let code = tail
                .get(..2)
                .and_then(|code| std::str::from_utf8(code).ok())
                .and_then(|code| u8::from_str_radix(code, 16).ok())?;
            bytes.push(code);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let remote = address("postgres://adj@db.example.org/adjutant").expect("an address");
        assert!(remote.verifies_tls && remote.port == 5432);
        assert_eq!(
            remote.to_string(),
            "postgres://adj@db.example.org:5432/adjutant"
        );
        let local = address("postgresql://adj@/adjutant?host=%2Frun%2Fpostgresql&port=5433")
            .expect("an address");
        assert_eq!(
            (local.host.as_str(), local.port, local.verifies_tls),
            ("/run/postgresql", 5433, false)
        );
        assert_eq!(address(&local.to_string()), Ok(local));
        assert!(
            !address("postgres://a@127.0.0.1:1/b")
                .expect("an address")
                .verifies_tls
        );
        assert!(
            address("postgres://a@localhost/b?sslmode=verify-full&sslrootcert=/ca.pem")
                .expect("an address")
                .verifies_tls
        );
        assert_eq!(
            address("postgres://a@[::1]:7/b").expect("an address").host,
            "::1"
        );
    }

    #[test]
    fn unverified_and_unusable_addresses_are_refused_without_repeating_them() {
        for text in [
            "postgres://adj:canary@db/x",
            "postgres://adj@db/x?password=canary",
            "postgres://adj@db/x?sslmode=require",
            "postgres://adj@db/x?sslmode=prefer",
            "postgres://adj@db/x?sslmode=verify-ca",
            "postgres://adj@db/x?sslmode=disable",
            "postgres://adj@/x?host=/run&sslmode=verify-full",
            "postgres://adj@db/x?canary=1",
            "postgres://adj@db/x?sslrootcert=ca.pem",
            "postgres://adj@db:canary/x",
            "postgres://adj@db/%zz",
            "postgres://db/x",
            "postgres://adj@db",
            "mysql://adj:canary@db/x",
            "canary",
        ] {
            let error = address(text).expect_err(text).to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn password_is_found_in_its_file() {
        let found = |text: &str, file: &str| address(text).expect("an address").password_in(file);
        let file = "# comment\ndb:5432:other:adj:no\ndb:*:x:adj:a\\:b:c\n*:*:*:*:last\n";
        assert_eq!(found("postgres://adj@db/x", file).as_deref(), Some("a:b:c"));
        assert_eq!(
            found("postgres://adj@elsewhere/x", file).as_deref(),
            Some("last")
        );
        assert_eq!(found("postgres://adj@db/x", "db:5432:x:adj"), None);
        assert_eq!(
            found(
                "postgres://adj@/x?host=/run",
                "localhost:5432:x:adj:socket\n"
            )
            .as_deref(),
            Some("socket")
        );
        let with = PostgresAddress {
            password: Some(Password("canary".to_owned())),
            ..address("postgres://adj@db/x").expect("an address")
        };
        assert!(!format!("{with:?} {with}").contains("canary"));
    }
}
