//! The `log_store` setting: where the hub puts the logs of ended attempts.

use super::environment::text_variable;
use super::store::{PrivateFileError, check_private, decoded};
use super::values::UnusableValues;
use crate::files;
use adjutant_core::words;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file of credentials, in bytes.
const CREDENTIALS_BYTES_MAX: u64 = 64 * 1024;

/// A service that stores objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    S3,
    Google,
    Azure,
}

words!(Provider { S3 = "s3", Google = "gs", Azure = "az" });

impl Provider {
    /// Returns the variables with credentials of this provider, and related settings.
    const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &[
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AWS_REGION",
                "AWS_DEFAULT_REGION",
                "AWS_ROLE_ARN",
                "AWS_ROLE_SESSION_NAME",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            ],
            Self::Google => &[
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GOOGLE_SERVICE_ACCOUNT",
                "GOOGLE_SERVICE_ACCOUNT_KEY",
            ],
            Self::Azure => &[
                "AZURE_STORAGE_ACCOUNT_NAME",
                "AZURE_STORAGE_ACCOUNT_KEY",
                "AZURE_STORAGE_SAS_TOKEN",
                "AZURE_CLIENT_ID",
                "AZURE_CLIENT_SECRET",
                "AZURE_TENANT_ID",
                "AZURE_AUTHORITY_HOST",
                "AZURE_FEDERATED_TOKEN_FILE",
            ],
        }
    }
}

/// Where the hub puts the logs of ended attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogStoreAddress {
    /// A directory that exists.
    Directory(PathBuf),
    Bucket(Bucket),
}

/// A place for objects at a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub provider: Provider,
    /// The bucket, or the container on Azure.
    pub name: String,
    /// The prefix of the name of each object. May be empty.
    pub prefix: String,
    /// The address of a compatible server. `None`: that of the provider.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// The storage account on Azure.
    pub account: Option<String>,
    /// A file with credentials. `None`: they are in the environment.
    pub credentials: Option<PathBuf>,
}

/// The address without anything secret.
impl fmt::Display for LogStoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(dir) => write!(f, "file://{}", dir.display()),
            Self::Bucket(Bucket {
                provider,
                name,
                prefix,
                endpoint,
                region,
                account,
                credentials: _,
            }) => {
                write!(f, "{}://{name}", provider.word())?;
                if !prefix.is_empty() {
                    write!(f, "/{prefix}")?;
                }
                let options = [
                    ("account", account),
                    ("endpoint", endpoint),
                    ("region", region),
                ];
                let given = options
                    .iter()
                    .filter_map(|(name, value)| Some((name, value.as_ref()?)));
                given.enumerate().try_for_each(|(n, (name, value))| {
                    write!(f, "{}{name}={value}", if n == 0 { '?' } else { '&' })
                })
            }
        }
    }
}

impl Bucket {
    /// Returns the variables with credentials: those of the file, and those of the environment that
    /// it does not set.
    ///
    /// # Errors
    /// The file can be read by other users, or not at all, or has other lines.
    pub fn credentials(&self) -> Result<BTreeMap<&'static str, String>, CredentialsError> {
        let names = self.provider.variables();
        let mut found: BTreeMap<_, _> = names
            .iter()
            .filter_map(|name| Some((*name, text_variable(name)?)))
            .collect();
        if let Some(file) = &self.credentials {
            check_private(file)?;
            let bytes = files::read_named(file, CREDENTIALS_BYTES_MAX)?;
            let read = assignments(&String::from_utf8_lossy(&bytes), names).map_err(|source| {
                CredentialsError::Line {
                    path: file.clone(),
                    source,
                }
            })?;
            found.extend(read);
        }
        Ok(found)
    }
}

impl LogStoreAddress {
    /// Returns the names of the variables with credentials that a hub needs.
    #[must_use]
    pub const fn variables(&self) -> &'static [&'static str] {
        match self {
            Self::Directory(_) => &[],
            Self::Bucket(bucket) => bucket.provider.variables(),
        }
    }
}

/// Why the credentials for a bucket cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error(transparent)]
    NotPrivate(#[from] PrivateFileError),
    /// The error contains the path.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{path}: {source}")]
    Line {
        path: PathBuf,
        source: InvalidAssignment,
    },
}

/// A line of a file of credentials that is not one of known names.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: use NAME=value with one of {}", names.join(", "))]
pub struct InvalidAssignment {
    line: usize,
    names: &'static [&'static str],
}

/// Why a `log_store` setting cannot be used. It never contains the setting, which could contain a
/// credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LogStoreProblem {
    #[error(
        "use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY"
    )]
    Form,
    #[error("a directory is an absolute path: file:///DIRECTORY")]
    RelativeDirectory,
    #[error("a directory needs no log_store_credentials")]
    CredentialsForDirectory,
    #[error(
        "leave credentials out: set the provider's variables for the hub, or log_store_credentials"
    )]
    HasCredentials,
    #[error("the bucket and the parts of the prefix consist of letters, digits, -, _ and .")]
    Name,
    #[error("the options are endpoint=URL, region=NAME for s3 and account=NAME for az")]
    Option,
    #[error("endpoint is an address such as https://minio.example.org:9000")]
    Endpoint,
    #[error("logs would cross the network in plain text: use an endpoint with https")]
    PlainEndpoint,
}

/// Reads the setting. `credentials`: a path from the directory of the file, `dir`. Invalid values
/// are reported.
pub(super) fn read(
    text: Option<&str>,
    credentials: Option<&Path>,
    dir: &Path,
    unusable: &mut UnusableValues,
) -> Option<LogStoreAddress> {
    if credentials.is_some() && text.is_none() {
        unusable.report(
            "log_store_credentials",
            "these are for a bucket: set log_store = \"s3://…\"",
        );
    }
    let credentials = credentials.map(|named| dir.join(named));
    unusable.check("log_store", address(text?, credentials.as_deref()))
}

/// Parses lines `NAME=value`. The error contains no value.
fn assignments(
    text: &str,
    names: &'static [&'static str],
) -> Result<BTreeMap<&'static str, String>, InvalidAssignment> {
    let mut found = BTreeMap::new();
    for (n, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    {
        let known = line.split_once('=').and_then(|(name, value)| {
            Some((
                names.iter().find(|known| **known == name.trim())?,
                value.trim(),
            ))
        });
        let (name, value) = known.ok_or(InvalidAssignment { line: n + 1, names })?;
        found.insert(*name, value.trim_matches('"').to_owned());
    }
    Ok(found)
}

/// Parses the setting.
fn address(text: &str, credentials: Option<&Path>) -> Result<LogStoreAddress, LogStoreProblem> {
    let (scheme, rest) = text.split_once("://").ok_or(LogStoreProblem::Form)?;
    if scheme == "file" {
        let dir = PathBuf::from(decoded(rest).ok_or(LogStoreProblem::Form)?);
        return match credentials {
            _ if !dir.is_absolute() => Err(LogStoreProblem::RelativeDirectory),
            Some(_) => Err(LogStoreProblem::CredentialsForDirectory),
            None => Ok(LogStoreAddress::Directory(dir)),
        };
    }
    let provider = Provider::from_word(scheme).ok_or(LogStoreProblem::Form)?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (name, prefix) = bucket_and_prefix(place)?;
    let mut bucket = Bucket {
        provider,
        name: name.to_owned(),
        prefix: prefix.to_owned(),
        endpoint: None,
        region: None,
        account: None,
        credentials: credentials.map(Path::to_owned),
    };
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = decoded(value).ok_or(LogStoreProblem::Form)?;
        match (name, provider) {
            ("endpoint", _) => bucket.endpoint = Some(endpoint(&value)?),
            ("region", Provider::S3) if is_plain(&value) && !value.is_empty() => {
                bucket.region = Some(value)
            }
            ("account", Provider::Azure) if is_plain(&value) && !value.is_empty() => {
                bucket.account = Some(value)
            }
            _ => return Err(LogStoreProblem::Option),
        }
    }
    Ok(LogStoreAddress::Bucket(bucket))
}

fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !text.starts_with('.')
}

/// Splits the place of an address into the bucket and the prefix, which may be empty.
fn bucket_and_prefix(place: &str) -> Result<(&str, &str), LogStoreProblem> {
    let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
    if name.contains(['@', ':']) {
        return Err(LogStoreProblem::HasCredentials);
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let are_parts = |prefix: &str| {
        prefix
            .split('/')
            .all(|part| !part.is_empty() && is_plain(part))
    };
    if name.is_empty() || !is_plain(name) || !prefix.is_empty() && !are_parts(prefix) {
        return Err(LogStoreProblem::Name);
    }
    Ok((name, prefix))
}

fn endpoint(text: &str) -> Result<String, LogStoreProblem> {
    let uri: ::http::Uri = text.parse().map_err(|_| LogStoreProblem::Endpoint)?;
    let host = uri.host().ok_or(LogStoreProblem::Endpoint)?;
    if uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
        || uri.query().is_some()
    {
        return Err(LogStoreProblem::Endpoint);
    }
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if adjutant_core::address::is_loopback(host) => {}
        Some("http") => return Err(LogStoreProblem::PlainEndpoint),
        _ => return Err(LogStoreProblem::Endpoint),
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_shown_as_they_are_written() {
        for text in [
            "s3://logs",
            "s3://logs/team/adj?endpoint=http://127.0.0.1:9000&region=eu-central-1",
            "gs://logs/adj",
            "az://logs/adj?account=team",
            "file:///var/lib/logs",
        ] {
            assert_eq!(address(text, None).expect(text).to_string(), text);
        }
        let LogStoreAddress::Bucket(bucket) =
            address("s3://logs/a/b/?endpoint=https://s3.example.org/", None).expect("an address")
        else {
            panic!("a bucket")
        };
        assert_eq!(
            (bucket.prefix.as_str(), bucket.endpoint.as_deref()),
            ("a/b", Some("https://s3.example.org"))
        );
    }

    #[test]
    fn unusable_addresses_are_refused_without_repeating_them() {
        for text in [
            "",
            "canary",
            "ftp://canary",
            "s3://",
            "s3://key:canary@bucket",
            "s3://bucket/../canary",
            "s3://bucket//canary",
            "s3://bucket?secret=canary",
            "s3://bucket?region=",
            "s3://bucket?account=canary",
            "gs://bucket?region=canary",
            "s3://bucket?endpoint=canary",
            "s3://bucket?endpoint=http://canary.example.org",
            "s3://bucket?endpoint=https://a:canary@example.org",
            "file://canary/logs",
        ] {
            let error = address(text, None).expect_err(text).to_string();
            assert!(!error.contains("canary"), "{error}");
        }
        assert!(address("file:///logs", Some(Path::new("x"))).is_err());
    }

    #[test]
    fn credentials_are_lines_of_known_names() {
        let names = Provider::S3.variables();
        let read = assignments(
            "# for the hub\nAWS_ACCESS_KEY_ID=a\n\nAWS_SECRET_ACCESS_KEY = \"b=c\"\n",
            names,
        )
        .expect("credentials");
        assert_eq!(
            read.into_iter().collect::<Vec<_>>(),
            [
                ("AWS_ACCESS_KEY_ID", "a".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "b=c".to_owned())
            ]
        );
        for text in [
            "canary",
            "AWS_ALLOW_HTTP=canary",
            "AZURE_CLIENT_SECRET=canary",
        ] {
            let error = assignments(text, names).expect_err(text).to_string();
            assert!(
                error.starts_with("line 1: ") && !error.contains("canary"),
                "{error}"
            );
        }
    }
}
