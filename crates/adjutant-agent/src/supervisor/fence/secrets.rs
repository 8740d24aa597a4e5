//! What a fence hides besides Adjutant's files, as data: the profiles of browsers, which contain
//! cookies, passwords and the sign-ins of the dashboard; and sockets of the user's services, which
//! accept commands.

use crate::sock;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Directories of profiles, relative to the user's home.
const BROWSER_PROFILES: [&str; 39] = [
    ".config/chromium",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/google-chrome-unstable",
    ".config/google-chrome-for-testing",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/microsoft-edge-beta",
    ".config/microsoft-edge-dev",
    ".config/vivaldi",
    ".config/vivaldi-snapshot",
    ".config/opera",
    ".config/opera-beta",
    ".config/opera-developer",
    ".config/yandex-browser",
    ".config/thorium",
    ".config/ungoogled-chromium",
    ".config/epiphany",
    ".config/falkon",
    ".config/qutebrowser",
    ".config/mozilla",
    ".mozilla",
    ".zen",
    ".librewolf",
    ".floorp",
    ".waterfox",
    ".thunderbird",
    ".tor-browser",
    ".local/share/epiphany",
    ".local/share/falkon",
    ".local/share/qutebrowser",
    ".local/share/torbrowser",
    ".local/share/vivaldi",
    ".cache/mozilla",
    ".cache/chromium",
    ".cache/google-chrome",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
    "Library/Safari",
];
/// Where packages of browsers keep their profiles, and how their names contain that of the browser.
const PACKAGE_DIRS: [&str; 2] = [".var/app", "snap"];
const PACKAGED_BROWSERS: [&str; 14] = [
    "chromium",
    "chrome",
    "firefox",
    "brave",
    "edge",
    "vivaldi",
    "opera",
    "librewolf",
    "zen",
    "floorp",
    "waterfox",
    "epiphany",
    "torbrowser",
    "thunderbird",
];
/// Maximum number of hidden sockets.
const SOCKETS_MAX: usize = 256;

/// Returns the directories of browsers' profiles that exist, without links.
pub(super) fn browser_profiles(user_home: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = BROWSER_PROFILES
        .iter()
        .map(|profile| user_home.join(profile))
        .collect();
    for packages in PACKAGE_DIRS {
        // A missing directory has no packages.
        let Ok(entries) = std::fs::read_dir(user_home.join(packages)) else {
            continue;
        };
        let is_browser = |name: &str| {
            PACKAGED_BROWSERS
                .iter()
                .any(|browser| name.contains(browser))
        };
        found.extend(
            entries
                .flatten()
                .filter(|entry| {
                    is_browser(&entry.file_name().to_string_lossy().to_ascii_lowercase())
                })
                .map(|entry| entry.path()),
        );
    }
    found
        .into_iter()
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| path.is_dir())
        .collect()
}

/// Returns the sockets below the user's home to which programs can connect now.
///
/// # Errors
/// As [`sock::bound_paths`].
pub(super) fn sockets(user_home: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = sock::bound_paths()?
        .into_iter()
        .filter(|path| path.starts_with(user_home))
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    found.retain(|path| is_socket(path));
    found.sort();
    found.dedup();
    found.truncate(SOCKETS_MAX);
    Ok(found)
}

pub(super) fn is_socket(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_and_sockets_of_the_user_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("it exists");
        for name in [
            ".config/chromium/Default",
            ".var/app/org.mozilla.firefox/x",
            "snap/chromium",
            "snap/code",
            ".config/other",
            "real",
        ] {
            std::fs::create_dir_all(home.join(name)).expect("made");
        }
        std::os::unix::fs::symlink(home.join("real"), home.join(".mozilla")).expect("a link");
        let mut found = browser_profiles(&home);
        found.sort();
        let expected = [
            ".config/chromium",
            ".var/app/org.mozilla.firefox",
            "real",
            "snap/chromium",
        ]
        .map(|name| home.join(name));
        assert_eq!(found, expected);
        let at = home.join("real/agent socket");
        let _listener = std::os::unix::net::UnixListener::bind(&at).expect("bound");
        assert_eq!(sockets(&home).expect("the list"), [at]);
    }
}
