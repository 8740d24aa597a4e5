//! The command line options of the hub.

use crate::config::listen_address;
use std::ffi::OsString;
use std::net::SocketAddr;

/// The hub's command line options.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Options {
    /// Stays in the foreground and prints a greeting to stderr.
    pub(super) foreground: bool,
    /// Reports this version instead of its own, for tests of how versions interact.
    pub(super) as_version: Option<String>,
    /// Listens on this address instead of the configured one. The next hub does so too, unless this
    /// one is stopped.
    pub(super) listen: Option<SocketAddr>,
}

/// Why the command line cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionsError {
    #[error("--listen needs an address")]
    NoAddress,
    #[error("--listen {address}: {problem}")]
    Address { address: String, problem: String },
    #[error("unknown argument {}", .0.display())]
    Unknown(OsString),
}

impl Options {
    pub(super) fn parse(args: &[OsString]) -> Result<Self, OptionsError> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--foreground") => options.foreground = true,
                Some("--as-version") => {
                    options.as_version = args
                        .next()
                        .and_then(|version| version.to_str())
                        .map(ToOwned::to_owned)
                }
                Some("--listen") => {
                    let address = args
                        .next()
                        .and_then(|address| address.to_str())
                        .ok_or(OptionsError::NoAddress)?;
                    let listen =
                        listen_address(address).map_err(|problem| OptionsError::Address {
                            address: address.to_owned(),
                            problem: problem.to_string(),
                        })?;
                    options.listen = Some(listen);
                }
                _ => return Err(OptionsError::Unknown(arg.clone())),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Options, OptionsError> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        Options::parse(&args)
    }

    #[test]
    fn options_are_parsed_and_others_refused() {
        let options = parsed(&["--listen", "127.0.0.1:7317", "--foreground"]).expect("options");
        assert_eq!(options.listen.map(|address| address.port()), Some(7317));
        assert!(options.foreground);
        assert_eq!(parsed(&["--listen"]), Err(OptionsError::NoAddress));
        let refused = |args: &[&str]| parsed(args).expect_err("refused").to_string();
        assert_eq!(
            refused(&["--listen", "here"]),
            "--listen here: use an address and a port, such as 127.0.0.1:7317"
        );
        assert_eq!(refused(&["serve"]), "unknown argument serve");
    }
}
