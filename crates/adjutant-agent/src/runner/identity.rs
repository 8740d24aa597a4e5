//! Who a runner is: the token for its hub, and the identity of its home.

use super::error::RunnerError;
use crate::config::Home;
use crate::files;
use crate::hub_client::random_hex;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The name of a token file that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Largest token file, in bytes.
const TOKEN_BYTES_MAX: u64 = 4 * 1024;
/// Largest identity file, in bytes.
const IDENTITY_BYTES_MAX: u64 = 64 * 1024;

/// The identity of a runner's home.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    pub id: String,
}

/// Reads the token from a file that only its user can read, or from standard input.
pub(super) fn read_token(path: &Path) -> Result<String, RunnerError> {
    let described = RunnerError::of_file(path);
    let mut text = String::new();
    if path == Path::new(STANDARD_INPUT) {
        io::stdin()
            .take(TOKEN_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(&described)?;
    } else {
        let file = files::open_named(path).map_err(&described)?;
        let mode = file.metadata().map_err(&described)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(RunnerError::ExposedToken(path.to_owned()));
        }
        file.take(TOKEN_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(described)?;
    }
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(RunnerError::NoToken(path.to_owned()));
    }
    Ok(token.to_owned())
}

/// Reads the identity of the home, or makes it.
pub(super) fn identity(home: &Home) -> Result<Identity, RunnerError> {
    let path = home.runner_identity();
    let described = RunnerError::of_file(&path);
    match files::read(&home.dir, &path, IDENTITY_BYTES_MAX) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| RunnerError::Identity {
            path: path.clone(),
            source,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = Identity {
                id: random_hex::<16>(),
            };
            let bytes = serde_json::to_vec(&identity)?;
            files::write_atomically(&home.dir, &path, &bytes).map_err(described)?;
            Ok(identity)
        }
        Err(error) => Err(described(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn token_file_is_private_and_has_one_word() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            read_token(&path).map_err(|error| error.to_string())
        };
        assert_eq!(
            read(" adj_runner_1\n", 0o600),
            Ok("adj_runner_1".to_owned())
        );
        let name = path.display();
        assert_eq!(
            read("adj_runner_1", 0o640),
            Err(format!("{name} is accessible to other users: chmod 600"))
        );
        for text in ["", "two words", "umlaut-ä"] {
            assert!(
                read(text, 0o600).is_err_and(|why| why.contains("must contain the token")),
                "{text:?}"
            );
        }
        std::fs::remove_file(&path).expect("it exists");
        let missing = read_token(&path).expect_err("no file");
        assert!(matches!(missing, RunnerError::File { .. }), "{missing}");
    }
}
