//! Patterns for paths: `*` within a name, `**` for any number of directories.

use super::wildcard::Wildcard;
use std::fmt;

/// A pattern for absolute paths, or for paths relative to the run's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    is_absolute: bool,
    parts: Vec<Wildcard>,
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.parts.iter().map(Wildcard::as_str).collect();
        write!(
            f,
            "{}{}",
            if self.is_absolute { "/" } else { "" },
            parts.join("/")
        )
    }
}

/// Why a text is not a pattern for paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {problem}")]
pub struct PathPatternError {
    text: String,
    problem: PathProblem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum PathProblem {
    #[error("is empty or contains control characters")]
    Unprintable,
    #[error("~ and variables are not expanded: write the absolute path")]
    Unexpanded,
    #[error("//, . and .. are not allowed")]
    Indirect,
    #[error("write ** alone between slashes")]
    WildcardWithin,
}

impl PathPattern {
    /// Parses a pattern. A pattern that ends with `/` covers everything below.
    ///
    /// # Errors
    /// The text is not a usable pattern.
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let unusable = |problem| {
            Err(PathPatternError {
                text: text.to_owned(),
                problem,
            })
        };
        if text.is_empty() || text.chars().any(char::is_control) {
            return unusable(PathProblem::Unprintable);
        }
        if text.starts_with('~') || text.contains('$') {
            return unusable(PathProblem::Unexpanded);
        }
        let is_absolute = text.starts_with('/');
        let (text, is_below) = text
            .strip_suffix('/')
            .map_or((text, false), |text| (text, true));
        let mut parts: Vec<&str> = text.strip_prefix('/').unwrap_or(text).split('/').collect();
        if is_below {
            parts.push("**");
        }
        parts.retain(|part| !(is_absolute && is_below && part.is_empty()));
        if parts
            .iter()
            .any(|part| part.is_empty() || *part == "." || *part == "..")
        {
            return unusable(PathProblem::Indirect);
        }
        if parts
            .iter()
            .any(|part| part.contains("**") && *part != "**")
        {
            return unusable(PathProblem::WildcardWithin);
        }
        Ok(Self {
            is_absolute,
            parts: parts.into_iter().map(Wildcard::new).collect(),
        })
    }

    /// Returns whether a real path, with the real path of the run's directory, certainly matches.
    /// What belongs to git matches no wildcard, because hooks and configuration there are programs
    /// that run later.
    #[must_use]
    pub fn matches(&self, real: &str, directory: &str) -> bool {
        let Some(parts) = self.parts_of(real, directory) else {
            return false;
        };
        let is_plain = |part: &&str| !part.is_empty() && *part != "." && *part != "..";
        parts.iter().all(is_plain)
            && matches_parts(&self.parts, &parts, &|pattern, part| {
                (!part.eq_ignore_ascii_case(".git")
                    || pattern.as_str().eq_ignore_ascii_case(".git"))
                    && pattern.matches(part)
            })
    }

    /// Returns whether a path may match, ignoring case. `..` is resolved by name.
    #[must_use]
    pub(crate) fn may_match(&self, path: &str, directory: &str) -> bool {
        let path = absolute(path, directory);
        let Some(parts) = self.parts_of(&path, directory) else {
            return false;
        };
        matches_parts(&self.parts, &parts, &|pattern, part| {
            pattern.matches_any_case(part)
        })
    }

    fn parts_of<'a>(&self, path: &'a str, directory: &str) -> Option<Vec<&'a str>> {
        let below = if self.is_absolute {
            path.strip_prefix('/')?
        } else {
            path.strip_prefix(directory.trim_end_matches('/'))?
                .strip_prefix('/')?
        };
        Some(below.split('/').collect())
    }
}

/// Resolves a path by name, without links.
#[must_use]
pub fn absolute(path: &str, directory: &str) -> String {
    let whole = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{directory}/{path}")
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn matches_parts(
    patterns: &[Wildcard],
    parts: &[&str],
    matches: &impl Fn(&Wildcard, &str) -> bool,
) -> bool {
    // `reached[n]`: the patterns so far match the first `n` parts.
    let mut reached = vec![false; parts.len() + 1];
    reached[0] = true;
    for pattern in patterns {
        let mut next = vec![false; parts.len() + 1];
        let is_any = pattern.as_str() == "**";
        next[0] = is_any && reached[0];
        for (at, part) in parts.iter().enumerate() {
            next[at + 1] = if is_any {
                reached[at + 1] || next[at] && matches(pattern, part)
            } else {
                reached[at] && matches(pattern, part)
            };
        }
        reached = next;
    }
    reached[parts.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).expect("a pattern")
    }

    #[test]
    fn path_matches_below_the_directory() {
        for (text, path) in [
            ("src/**", "/w/src/a.rs"),
            ("src/**", "/w/src/a/b/c.rs"),
            ("src/", "/w/src/a/b"),
            ("**/*.md", "/w/README.md"),
            ("**/*.md", "/w/docs/x/y.md"),
            ("*.md", "/w/README.md"),
            ("**", "/w/x"),
            ("/etc/*", "/etc/hosts"),
            ("/", "/anything/below"),
            (".git/config", "/w/.git/config"),
        ] {
            assert!(pattern(text).matches(path, "/w"), "{text} {path}");
        }
        for (text, path) in [
            ("src/**", "/w/srcs/a"),
            ("src/**", "/x/src/a"),
            ("src/**", "/w/src/../etc"),
            ("*.md", "/w/docs/x.md"),
            ("**", "/wx/y"),
            ("**", "/w/.git/hooks/pre-commit"),
            ("**", "/w/.GIT/config"),
            ("**", "/w"),
            ("src/*", "/w/SRC/a"),
            ("/etc/*", "/etc/a/b"),
            ("src/**", "src/a"),
        ] {
            assert!(!pattern(text).matches(path, "/w"), "{text} {path}");
        }
    }

    #[test]
    fn refused_path_is_found_in_any_spelling() {
        for path in [
            "/w/.env",
            ".env",
            "./.env",
            "a/../.env",
            "/w/x/.ENV",
            "x//.env",
            "/w/./a/../.env",
        ] {
            assert!(pattern("**/.env").may_match(path, "/w"), "{path}");
        }
        assert!(
            pattern("/etc/**").may_match("../../etc/passwd", "/w/x")
                && !pattern("**/.env").may_match(".envrc", "/w")
        );
        assert!(
            pattern("**").may_match(".git/config", "/w"),
            "git's files too"
        );
    }

    #[test]
    fn unusable_patterns_are_refused() {
        for bad in [
            "", "~/x", "$HOME/x", "../x", "a/../b", "a//b", "./a", "a**", "a/**b", "a\nb",
        ] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn certain_match_is_a_possible_match(text in "[a-z*]{1,3}(/[a-z*]{1,2}){0,3}", path in "/w(/[a-z.]{1,3}){0,4}") {
            if let Ok(pattern) = PathPattern::parse(&text) && pattern.matches(&path, "/w") {
                prop_assert!(pattern.may_match(&path, "/w"));
                prop_assert!(path.starts_with("/w/") && !path.split('/').any(|part| part == ".." || part == "."));
            }
        }
    }
}
