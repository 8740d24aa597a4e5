//! How this program was installed, and the commands that update and remove it. It is read from
//! files; nothing is asked of a package manager or of the network.

use super::place::on_path;
use crate::config::text_variable;
use crate::files;
use std::path::{Path, PathBuf};

/// The package's name in cargo and Debian.
const PACKAGE: &str = "adjutant";
/// Its name in npm and PyPI, and the beginning of the metadata that pip writes.
const REGISTRY_PACKAGE: &str = "adjutant-cli";
const WHEEL_METADATA: &str = "adjutant_cli-";
/// A file of lists that is larger is not read.
const LIST_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Files of shells to which `adj completions` says to add a line, below the user's home.
const SHELL_FILES: [&str; 4] = [
    ".bashrc",
    ".bash_profile",
    ".zshrc",
    ".config/fish/completions/adj.fish",
];
/// What such a line contains.
const COMPLETIONS: &str = "adj completions";

/// Where this program comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installation {
    /// Built in a clone of the repository.
    Clone {
        root: PathBuf,
    },
    /// `cargo install`. `source`: the directory of the crate, if it was installed from one.
    Cargo {
        source: Option<PathBuf>,
    },
    Debian,
    Npm,
    /// A Python environment, by its `bin`.
    Wheel {
        bin: PathBuf,
    },
    /// A file that was copied: from an archive, or by the install script.
    File,
}

impl Installation {
    /// Finds how a program was installed.
    #[must_use]
    pub fn of(exe: &Path) -> Self {
        let dir = exe.parent().unwrap_or(exe);
        if exe.components().any(|part| {
            part.as_os_str()
                .to_str()
                .is_some_and(|part| part.starts_with(REGISTRY_PACKAGE))
        }) {
            return Self::Npm;
        }
        if let Some(root) = clone_of(exe) {
            return Self::Clone { root };
        }
        if let Some(source) = dir.parent().and_then(cargo_source) {
            return Self::Cargo { source };
        }
        if dir.parent().is_some_and(has_wheel) {
            return Self::Wheel {
                bin: dir.to_owned(),
            };
        }
        let list = read(Path::new("/var/lib/dpkg/info/adjutant.list"));
        if list.is_some_and(|list| list.lines().any(|line| Path::new(line) == exe)) {
            return Self::Debian;
        }
        Self::File
    }

    /// Returns a word for JSON.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Clone { .. } => "clone",
            Self::Cargo { .. } => "cargo",
            Self::Debian => "debian",
            Self::Npm => "npm",
            Self::Wheel { .. } => "wheel",
            Self::File => "file",
        }
    }

    /// Returns how it was installed, in words.
    #[must_use]
    pub fn description(&self) -> String {
        match self {
            Self::Clone { root } => format!("built in {}", root.display()),
            Self::Cargo {
                source: Some(source),
            } => format!("installed by cargo from {}", source.display()),
            Self::Cargo { source: None } => "installed by cargo".to_owned(),
            Self::Debian => "installed by the Debian package adjutant".to_owned(),
            Self::Npm => "installed by the npm package adjutant-cli".to_owned(),
            Self::Wheel { .. } => "installed by the Python package adjutant-cli".to_owned(),
            Self::File => "a copied file (from an archive or the install script)".to_owned(),
        }
    }

    /// Returns the commands that update it. Nothing is published, so packages are files that the
    /// user has built or received.
    #[must_use]
    pub fn update(&self, exe: &Path) -> Vec<String> {
        match self {
            Self::Clone { root } => {
                let profile = match exe
                    .parent()
                    .and_then(Path::file_name)
                    .and_then(std::ffi::OsStr::to_str)
                {
                    Some(profile @ ("dist" | "release")) => format!(" --profile {profile}"),
                    _ => String::new(),
                };
                let manifest = quoted(&root.join("Cargo.toml"));
                vec![
                    format!("git -C {} pull", quoted(root)),
                    format!("cargo build --locked{profile} --manifest-path {manifest}"),
                ]
            }
            Self::Cargo {
                source: Some(source),
            } => {
                vec![
                    format!("git -C {} pull", quoted(source)),
                    format!("cargo install --locked --path {}", quoted(source)),
                ]
            }
            Self::Cargo { source: None } => vec![format!("cargo install --locked {PACKAGE}")],
            Self::Debian => vec!["sudo apt install ./adjutant_VERSION_ARCH.deb".to_owned()],
            Self::Npm => vec!["npm install -g ./adjutant-cli-*.tgz".to_owned()],
            Self::Wheel { bin } => vec![format!(
                "{} -m pip install --upgrade ./adjutant_cli-*.whl",
                quoted(&bin.join("python"))
            )],
            Self::File => vec![format!(
                "tar -xzf adj-VERSION-TARGET.tar.gz && install adj-VERSION-TARGET/adj {}",
                quoted(exe)
            )],
        }
    }

    /// Returns the command that removes it.
    #[must_use]
    pub fn removal(&self, exe: &Path) -> String {
        match self {
            Self::Cargo { .. } => format!("cargo uninstall {PACKAGE}"),
            Self::Debian => format!("sudo apt remove {PACKAGE}"),
            Self::Npm => format!("npm uninstall -g {REGISTRY_PACKAGE}"),
            Self::Wheel { bin } => format!(
                "{} -m pip uninstall {REGISTRY_PACKAGE}",
                quoted(&bin.join("python"))
            ),
            Self::Clone { .. } | Self::File => format!("rm {}", quoted(exe)),
        }
    }
}

/// Returns the different programs named `adj` in `PATH`, in its order. A link and its target are
/// one.
#[must_use]
pub fn all_on_path() -> Vec<PathBuf> {
    let path = text_variable("PATH").unwrap_or_default();
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for dir in std::env::split_paths(&path) {
        let Some(program) = dir.to_str().and_then(|dir| on_path("adj", dir)) else {
            continue;
        };
        let Ok(real) = program.canonicalize() else {
            continue;
        };
        if found.iter().all(|(_, other)| *other != real) {
            found.push((program, real));
        }
    }
    found.into_iter().map(|(program, _)| program).collect()
}

/// Returns the lines (counted from 1) of the user's shells that load the completion. A file that
/// cannot be read has none.
#[must_use]
pub fn completion_lines() -> Vec<(PathBuf, usize)> {
    let Some(home) = text_variable("HOME").map(PathBuf::from) else {
        return Vec::new();
    };
    let line_in = |file: PathBuf| {
        let at = read(&file)?
            .lines()
            .position(|line| line.contains(COMPLETIONS))?;
        Some((file, at + 1))
    };
    SHELL_FILES
        .iter()
        .filter_map(|file| line_in(home.join(file)))
        .collect()
}

/// Returns a path for a command line.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@~".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn read(path: &Path) -> Option<String> {
    String::from_utf8(files::read_named(path, LIST_BYTES_MAX).ok()?).ok()
}

/// Returns the clone in whose build directory a program is.
fn clone_of(exe: &Path) -> Option<PathBuf> {
    let root = exe
        .ancestors()
        .find(|dir| dir.file_name().is_some_and(|name| name == "target"))?
        .parent()?;
    root.join("crates/adjutant/Cargo.toml")
        .exists()
        .then(|| root.to_owned())
}

/// Reads cargo's list of installed programs. `Some(None)`: installed, but not from a directory.
fn cargo_source(root: &Path) -> Option<Option<PathBuf>> {
    let list = read(&root.join(".crates.toml"))?;
    let line = list
        .lines()
        .find(|line| line.trim_start().starts_with(&format!("\"{PACKAGE} ")))?;
    let source = line
        .split_once("(path+file://")
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(path, _)| PathBuf::from(path));
    Some(source)
}

/// Returns whether a Python environment has the package.
fn has_wheel(root: &Path) -> bool {
    let is_metadata = |name: &str| name.starts_with(WHEEL_METADATA) && name.ends_with(".dist-info");
    let named = |dir: &Path, test: &dyn Fn(&str) -> bool| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(test))
            .map(|entry| entry.path())
            .collect()
    };
    let libraries = named(&root.join("lib"), &|name| name.starts_with("python"));
    let packages = libraries
        .iter()
        .flat_map(|dir| [dir.join("site-packages"), dir.join("dist-packages")]);
    packages
        .into_iter()
        .any(|dir| !named(&dir, &is_metadata).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn program(root: &Path, path: &str) -> PathBuf {
        let file = root.join(path);
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        fs::write(&file, "").expect("a file");
        file
    }

    #[test]
    fn installation_is_found_by_its_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        let of = |path: &str| Installation::of(&program(root, path));
        assert_eq!(of("copied/bin/adj"), Installation::File);
        assert_eq!(
            of("node/lib/node_modules/adjutant-cli-linux-x64/bin/adj"),
            Installation::Npm
        );
        program(root, "clone/crates/adjutant/Cargo.toml");
        assert_eq!(
            of("clone/target/release/adj"),
            Installation::Clone {
                root: root.join("clone")
            }
        );
        fs::create_dir(root.join("cargo")).expect("a directory");
        fs::write(
            root.join("cargo/.crates.toml"),
            "[v1]\n\"adjutant 0.1.0 (path+file:///src/a b/crates/adjutant)\" = [\"adj\"]\n",
        )
        .expect("a file");
        assert_eq!(
            of("cargo/bin/adj"),
            Installation::Cargo {
                source: Some("/src/a b/crates/adjutant".into())
            }
        );
        fs::write(
            root.join("cargo/.crates.toml"),
            "[v1]\n\"other 0.1.0 (registry+x)\" = [\"other\"]\n",
        )
        .expect("a file");
        assert_eq!(of("cargo/bin/adj"), Installation::File);
        program(
            root,
            "venv/lib/python3.13/site-packages/adjutant_cli-0.1.0.dist-info/RECORD",
        );
        assert_eq!(
            of("venv/bin/adj"),
            Installation::Wheel {
                bin: root.join("venv/bin")
            }
        );
    }

    #[test]
    fn commands_quote_paths() {
        let exe = Path::new("/home/a b/adj");
        assert_eq!(Installation::File.removal(exe), "rm '/home/a b/adj'");
        let clone = Installation::Clone {
            root: "/src".into(),
        };
        assert_eq!(
            clone.update(Path::new("/src/target/release/adj"))[1],
            "cargo build --locked --profile release --manifest-path /src/Cargo.toml"
        );
        assert_eq!(
            clone.update(Path::new("/src/target/x86_64-unknown-linux-gnu/dist/adj"))[1],
            "cargo build --locked --profile dist --manifest-path /src/Cargo.toml"
        );
        assert_eq!(
            clone.update(Path::new("/dist/src/target/debug/adj"))[1],
            "cargo build --locked --manifest-path /src/Cargo.toml"
        );
    }
}
