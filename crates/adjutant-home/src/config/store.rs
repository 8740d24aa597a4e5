//! The `store` setting: a PostgreSQL database instead of the file in the home.

use super::environment::{text_variable, variable};
use crate::files;
use std::fmt;
use std::path::{Path, PathBuf};

const PORT_DEFAULT: u16 = 5432;
/// Largest password file, in bytes.
const PASSWORD_FILE_BYTES_MAX: u64 = 64 * 1024;
const FORM: &str = "use postgres://USER@HOST:PORT/DATABASE";

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
    /// Adds the password of the environment: `PGPASSWORD`, or the matching line of the file `PGPASSFILE` or `~/.pgpass`.
    ///
    /// # Errors
    /// The file can be read by other users, or not at all.
    pub fn with_password(mut self) -> Result<Self, String> {
        self.password = match text_variable("PGPASSWORD") {
            Some(password) => Some(Password(password)),
            None => self.password_of_file()?,
        };
        Ok(self)
    }

    fn password_of_file(&self) -> Result<Option<Password>, String> {
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
        is_private(&file)?;
        let bytes =
            files::read_named(&file, PASSWORD_FILE_BYTES_MAX).map_err(|error| error.to_string())?;
        Ok(self
            .password_in(&String::from_utf8_lossy(&bytes))
            .map(Password))
    }

    /// Finds the first line `host:port:database:user:password` for this address. `*` matches everything.
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

pub(super) fn is_private(file: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let mode = std::fs::metadata(file)
        .map_err(|error| format!("{}: {error}", file.display()))?
        .mode();
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(format!(
            "other users can read {}: run chmod 600 on it",
            file.display()
        ))
    }
}

impl std::str::FromStr for PostgresAddress {
    type Err = String;

    /// Parses the setting. The error never contains it, because it could contain a password.
    fn from_str(text: &str) -> Result<Self, String> {
        address(text)
    }
}

fn address(text: &str) -> Result<PostgresAddress, String> {
    let rest = text
        .strip_prefix("postgres://")
        .or_else(|| text.strip_prefix("postgresql://"))
        .ok_or_else(|| FORM.to_owned())?;
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').ok_or_else(|| FORM.to_owned())?;
    let (user, place) = authority.rsplit_once('@').ok_or_else(|| FORM.to_owned())?;
    if user.contains(':') {
        return Err(
            "leave the password out, and set PGPASSWORD or PGPASSFILE for the hub".to_owned(),
        );
    }
    let (host, port) = host_and_port(place)?;
    let mut address = PostgresAddress {
        host: decoded(host, FORM)?,
        port: port.unwrap_or(PORT_DEFAULT),
        user: decoded(user, FORM)?,
        database: decoded(database, FORM)?,
        password: None,
        verifies_tls: false,
        root_certificates: None,
    };
    let mut mode = None;
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = decoded(value, FORM)?;
        match name {
            "host" => address.host = value,
            "port" => {
                address.port = value
                    .parse()
                    .map_err(|_| "port must be a number from 1 to 65535".to_owned())?
            }
            "sslmode" => mode = Some(value),
            "sslrootcert" => address.root_certificates = Some(PathBuf::from(value)),
            "password" => {
                return Err(
                    "leave the password out, and set PGPASSWORD or PGPASSFILE for the hub"
                        .to_owned(),
                );
            }
            _ => return Err("the options are host, port, sslmode and sslrootcert".to_owned()),
        }
    }
    if [&address.host, &address.user, &address.database]
        .iter()
        .any(|part| part.is_empty())
    {
        return Err(FORM.to_owned());
    }
    if address
        .root_certificates
        .as_ref()
        .is_some_and(|file| !file.is_absolute())
    {
        return Err("sslrootcert is an absolute path".to_owned());
    }
    let is_local =
        address.host.starts_with('/') || adjutant_core::address::is_loopback(&address.host);
    address.verifies_tls = match mode.as_deref() {
        Some("verify-full") if address.host.starts_with('/') => return Err("a Unix socket has no TLS: leave sslmode out".to_owned()),
        Some("verify-full") => true,
        Some("disable") if is_local => false,
        Some("disable") => return Err("sslmode=disable sends everything in plain text, so it is for this machine only: use verify-full".to_owned()),
        Some(_) => return Err("this sslmode does not verify who the server is: use verify-full, and sslrootcert=FILE for a private CA".to_owned()),
        None => !is_local,
    };
    Ok(address)
}

fn host_and_port(place: &str) -> Result<(&str, Option<u16>), String> {
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
        .map(|port| port.parse().map_err(|_| FORM.to_owned()))
        .transpose()?;
    Ok((host, port))
}

/// Decodes `%2F` and the like. `form`: the error.
pub(super) fn decoded(text: &str, form: &str) -> Result<String, String> {
    let refused = || form.to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let code = tail
                .get(..2)
                .and_then(|code| std::str::from_utf8(code).ok())
                .and_then(|code| u8::from_str_radix(code, 16).ok())
                .ok_or_else(refused)?;
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
        .ok_or_else(refused)
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
            let error = address(text).expect_err(text);
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
