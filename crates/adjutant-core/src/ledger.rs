//! The ledger: what runs have announced that they will change (paths and patterns) or provide
//! (interfaces), what overlaps between them, and unannounced changes of a run. Pure functions over
//! texts; they read no files.
//!
//! A pattern is a path relative to the run's directory, or absolute: `*` and `?` match within one
//! name, `**` any number of directories. It covers what it matches and everything below. A last
//! name with an extension (`a.rs`, `*.rs`) is a file, which has nothing below; with a `/` at its
//! end it is a directory.

use crate::quote::is_line_end;
use crate::{Denied, words};
use std::collections::BTreeSet;

/// Maximum number of paths and interfaces that one run has announced.
pub const ITEMS_MAX: usize = 200;
/// Longest path or interface, in bytes.
pub(crate) const ITEM_BYTES_MAX: usize = 512;
/// Maximum number of names in a path.
const NAMES_MAX: usize = 64;
/// Maximum number of overlaps that are named between two runs.
pub(crate) const OVERLAPS_MAX: usize = 20;
/// How many steps the comparisons of one post may take.
pub const STEPS_MAX: u64 = 500_000;

/// What a run has announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnnouncedKind {
    /// It will change files.
    Path,
    /// It has promised to provide an interface: a function, a route, a format.
    Interface,
}

words!(AnnouncedKind { Path = "path", Interface = "interface" });

impl AnnouncedKind {
    /// Returns the form in which an announcement is stored.
    #[must_use]
    pub fn normalised(self, what: &str) -> String {
        match self {
            Self::Path => what.trim().to_owned(),
            Self::Interface => what.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

/// One announcement of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Announcement {
    pub kind: AnnouncedKind,
    /// As the run stated it.
    pub what: String,
    /// The absolute directory that a path is relative to, and in which an interface is known.
    pub place: String,
}

impl Announcement {
    /// Checks what a run announces.
    ///
    /// # Errors
    /// It is empty, too long, has control characters, or is a pattern that cannot be compared.
    pub fn checked(kind: AnnouncedKind, what: &str, place: &str) -> Result<Self, Denied> {
        let field = match kind {
            AnnouncedKind::Path => "paths",
            AnnouncedKind::Interface => "interfaces",
        };
        let what = kind.normalised(what);
        if what.is_empty()
            || what.len() > ITEM_BYTES_MAX
            || what.chars().any(|c| c.is_control() || is_line_end(c))
        {
            return Err(Denied::invalid(
                field,
                format!("use 1 to {ITEM_BYTES_MAX} bytes without control characters"),
            ));
        }
        if kind == AnnouncedKind::Path {
            Pattern::parse(place, &what)
                .map_err(|problem| Denied::invalid(field, format!("{what}: {problem}")))?;
        }
        Ok(Self {
            kind,
            what,
            place: place.to_owned(),
        })
    }

    fn pattern(&self) -> Option<Pattern> {
        match self.kind {
            AnnouncedKind::Path => Pattern::parse(&self.place, &self.what).ok(),
            AnnouncedKind::Interface => None,
        }
    }
}

/// An overlap of two runs' announcements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    pub kind: AnnouncedKind,
    /// In the words of the first run, and in those of the second.
    pub first: String,
    pub second: String,
}

/// Returns the overlaps of two runs' announcements, at most `OVERLAPS_MAX`. With `steps_left` at
/// 0, the rest is not compared: patterns can be made so that comparing them takes long.
#[must_use]
pub fn overlaps(
    first: &[Announcement],
    second: &[Announcement],
    steps_left: &mut u64,
) -> Vec<Overlap> {
    let of = |all: &[Announcement]| {
        all.iter()
            .map(|one| (one.clone(), one.pattern()))
            .collect::<Vec<_>>()
    };
    let (firsts, seconds) = (of(first), of(second));
    let mut found = BTreeSet::new();
    for (one, pattern) in &firsts {
        for (other, other_pattern) in &seconds {
            let meets = match (one.kind == other.kind, pattern, other_pattern) {
                (true, Some(pattern), Some(other)) => pattern.overlaps(other, steps_left),
                (true, None, None) => {
                    one.what == other.what && is_related(&one.place, &other.place)
                }
                _ => false,
            };
            if meets {
                found.insert(Overlap {
                    kind: one.kind,
                    first: one.what.clone(),
                    second: other.what.clone(),
                });
            }
        }
    }
    found.into_iter().take(OVERLAPS_MAX).collect()
}

/// Returns the changed files that no announced path covers. `top` is the absolute directory that
/// they are relative to. A run that has announced no path has nothing to be compared with.
#[must_use]
pub fn unannounced<'a>(
    announced: &[Announcement],
    top: &str,
    changed: &'a [String],
) -> Vec<&'a str> {
    let patterns: Vec<Pattern> = announced.iter().filter_map(Announcement::pattern).collect();
    if patterns.is_empty() {
        return Vec::new();
    }
    let is_covered = |file: &str| {
        let names: Vec<&str> = names_of(top).chain(names_of(file)).collect();
        patterns.iter().any(|pattern| pattern.covers(&names))
    };
    changed
        .iter()
        .map(String::as_str)
        .filter(|file| !is_covered(file))
        .collect()
}

/// Returns whether one directory is the other, or above it.
fn is_related(one: &str, other: &str) -> bool {
    names_of(one).zip(names_of(other)).all(|(a, b)| a == b)
}

fn names_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter(|name| !name.is_empty() && *name != ".")
}

/// A part of a name in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Char(char),
    /// Any one character.
    One,
    /// Any characters.
    Many,
}

/// A name in a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Name(Vec<Token>),
    /// Any number of directories.
    AnyDepth,
}

/// An absolute pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    parts: Vec<Part>,
    /// Its last name has an extension, so nothing is below what it matches.
    is_file: bool,
}

impl Pattern {
    /// Parses a path or pattern that is relative to an absolute directory.
    fn parse(place: &str, given: &str) -> Result<Self, &'static str> {
        if given.contains(['{', '}']) {
            return Err("braces are not supported, announce each path");
        }
        let literal = |name: &str| Part::Name(name.chars().map(Token::Char).collect());
        let mut parts: Vec<Part> = if given.starts_with('/') {
            Vec::new()
        } else {
            names_of(place).map(literal).collect()
        };
        for name in names_of(given) {
            match name {
                "**" => parts.push(Part::AnyDepth),
                ".." => match parts.pop() {
                    Some(Part::Name(tokens))
                        if tokens.iter().all(|token| matches!(token, Token::Char(_))) => {}
                    Some(_) => return Err("`..` cannot follow a pattern"),
                    None => return Err("it leads above the root directory"),
                },
                name => parts.push(Part::Name(tokens_of(name))),
            }
        }
        parts.dedup_by(|next, before| *next == Part::AnyDepth && *before == Part::AnyDepth);
        if parts.len() > NAMES_MAX {
            return Err("the path has too many components");
        }
        let is_file = !given.ends_with('/')
            && matches!(parts.last(), Some(Part::Name(tokens)) if has_extension(tokens));
        Ok(Self { parts, is_file })
    }

    /// Returns whether the pattern matches a path or a directory above it.
    fn covers(&self, names: &[&str]) -> bool {
        let mut at = self.closure(BTreeSet::from([0]));
        for name in names {
            if at.contains(&self.parts.len()) && !self.is_file {
                return true;
            }
            let tokens: Vec<Token> = name.chars().map(Token::Char).collect();
            let next = at.iter().filter_map(|&part| match self.parts.get(part)? {
                Part::AnyDepth => Some(part),
                Part::Name(own) => meet(own, &tokens, &mut u64::from(u32::MAX)).then_some(part + 1),
            });
            at = self.closure(next.collect());
        }
        at.contains(&self.parts.len())
    }

    /// Adds the positions that are reached without a name.
    fn closure(&self, mut at: BTreeSet<usize>) -> BTreeSet<usize> {
        for (part, own) in self.parts.iter().enumerate() {
            if at.contains(&part) && *own == Part::AnyDepth {
                at.insert(part + 1);
            }
        }
        at
    }

    /// Returns whether there is a path that both cover.
    fn overlaps(&self, other: &Self, steps_left: &mut u64) -> bool {
        let (own, others) = (&self.parts, &other.parts);
        // Most pairs differ in a directory above all patterns.
        let is_literal = |part: &Part| matches!(part, Part::Name(tokens) if tokens.iter().all(|token| matches!(token, Token::Char(_))));
        let same = own
            .iter()
            .zip(others)
            .take_while(|(a, b)| a == b && is_literal(a))
            .count();
        *steps_left = steps_left.saturating_sub(1);
        if let (Some(a), Some(b)) = (own.get(same), others.get(same))
            && is_literal(a)
            && is_literal(b)
        {
            return false;
        }
        let mut seen = BTreeSet::from([(same, same)]);
        let mut open = vec![(same, same)];
        while let Some((a, b)) = open.pop() {
            let (first, second) = match (own.get(a), others.get(b)) {
                (Some(first), Some(second)) => (first, second),
                (None, Some(_)) if self.is_file && others[b..] != [Part::AnyDepth] => continue,
                (Some(_), None) if other.is_file && own[a..] != [Part::AnyDepth] => continue,
                // A directory covers everything below, and the rest of the other can always be
                // matched there.
                _ => return true,
            };
            let Some(left) = steps_left.checked_sub(1) else {
                return false;
            };
            *steps_left = left;
            let next: &[(usize, usize)] = match (first, second) {
                (Part::AnyDepth, _) | (_, Part::AnyDepth) => &[(a + 1, b), (a, b + 1)],
                (Part::Name(one), Part::Name(two)) if meet(one, two, steps_left) => {
                    &[(a + 1, b + 1)]
                }
                (Part::Name(_), Part::Name(_)) => &[],
            };
            open.extend(next.iter().copied().filter(|next| seen.insert(*next)));
        }
        false
    }
}

/// Returns whether a name has a stem and an extension of letters and digits.
fn has_extension(name: &[Token]) -> bool {
    let is_extension = |token: &Token| matches!(token, Token::Char(c) if c.is_alphanumeric());
    let dot = name.iter().rposition(|token| *token == Token::Char('.'));
    dot.is_some_and(|dot| {
        dot > 0 && dot + 1 < name.len() && name[dot + 1..].iter().all(is_extension)
    })
}

fn tokens_of(name: &str) -> Vec<Token> {
    let token = |c| match c {
        '*' => Token::Many,
        '?' => Token::One,
        c => Token::Char(c),
    };
    let mut tokens: Vec<Token> = name.chars().map(token).collect();
    tokens.dedup_by(|next, before| *next == Token::Many && *before == Token::Many);
    tokens
}

/// Returns whether there is a name that both match.
fn meet(one: &[Token], two: &[Token], steps_left: &mut u64) -> bool {
    let mut seen = BTreeSet::from([(0, 0)]);
    let mut open = vec![(0, 0)];
    while let Some((a, b)) = open.pop() {
        let Some(left) = steps_left.checked_sub(1) else {
            return false;
        };
        *steps_left = left;
        let mut next: Vec<(usize, usize)> = Vec::with_capacity(3);
        match (one.get(a), two.get(b)) {
            (None, None) => return true,
            (first, second) => {
                if first == Some(&Token::Many) {
                    next.push((a + 1, b));
                    next.extend(second.map(|_| (a, b + 1)));
                }
                if second == Some(&Token::Many) {
                    next.push((a, b + 1));
                    next.extend(first.map(|_| (a + 1, b)));
                }
                match (first, second) {
                    (Some(Token::Char(x)), Some(Token::Char(y))) if x != y => {}
                    (Some(Token::Many) | None, _) | (_, Some(Token::Many) | None) => {}
                    (Some(_), Some(_)) => next.push((a + 1, b + 1)),
                }
            }
        }
        open.extend(next.into_iter().filter(|next| seen.insert(*next)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(place: &str, what: &str) -> Announcement {
        Announcement::checked(AnnouncedKind::Path, what, place).expect("a path")
    }

    fn interface(place: &str, what: &str) -> Announcement {
        Announcement::checked(AnnouncedKind::Interface, what, place).expect("an interface")
    }

    fn compare(first: &[Announcement], second: &[Announcement]) -> Vec<Overlap> {
        overlaps(first, second, &mut STEPS_MAX.clone())
    }

    fn meets(one: &str, other: &str) -> bool {
        !compare(&[path("/repo", one)], &[path("/repo", other)]).is_empty()
    }

    #[test]
    fn directory_covers_everything_below_it() {
        for (one, other) in [
            ("src", "src/parser.rs"),
            ("src/", "./src/parser.rs"),
            ("src/*.rs", "src/parser.rs"),
            ("**/*.rs", "src/a/b.rs"),
            ("src/**", "src"),
            ("src/**/test", "src/a/b/test/c"),
            ("a/../src", "src"),
            ("/repo/src", "src"),
            ("*.md", "README.*"),
            ("[id].tsx", "[id].tsx"),
            (".", "anything"),
            ("**/*.rs", "src"),
            ("**/*.rs", "**/a.rs"),
            ("conf.d/", "conf.d/a"),
            ("src/**/a.rs/**", "src/a.rs"),
        ] {
            assert!(meets(one, other) && meets(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("src", "source"),
            ("src/*.rs", "src/a.md"),
            ("a/b", "b"),
            ("src/a", "src/b"),
            ("/other/src", "src"),
            ("a?", "a"),
        ]
        .into_iter()
        .chain([
            ("**/*.rs", "README.md"),
            ("**/*.rs", "src/*.md"),
            ("a.rs", "a.rs/b"),
            ("src/**/*.rs", "src/a.rsx"),
        ]) {
            assert!(!meets(one, other) && !meets(other, one), "{one} {other}");
        }
        assert!(compare(&[path("/repo/web", "src")], &[path("/repo", "src")]).is_empty());
        assert_eq!(
            compare(&[path("/repo/web", "../src")], &[path("/repo", "src/x")]).len(),
            1
        );
    }

    #[test]
    fn interfaces_overlap_by_name_in_related_directories() {
        let one = interface("/repo", " Parser::parse  v2 ");
        assert_eq!(one.what, "Parser::parse v2");
        assert_eq!(
            compare(
                std::slice::from_ref(&one),
                &[interface("/repo/web", "Parser::parse v2")]
            )
            .len(),
            1
        );
        assert!(
            compare(
                std::slice::from_ref(&one),
                &[interface("/other", "Parser::parse v2")]
            )
            .is_empty()
        );
        assert!(compare(&[one], &[path("/repo", "Parser::parse v2")]).is_empty());
    }

    #[test]
    fn unusable_announcements_are_refused() {
        for what in [
            "",
            " ",
            "a\nb",
            "a\u{2028}b",
            "src/{a,b}",
            "../../../x",
            "*/../x",
            &"x".repeat(ITEM_BYTES_MAX + 1),
            &"a/".repeat(100),
        ] {
            assert!(
                Announcement::checked(AnnouncedKind::Path, what, "/repo").is_err(),
                "{what}"
            );
        }
    }

    #[test]
    fn changed_files_are_compared_with_announced_paths_only() {
        let changed = ["src/a.rs".to_owned(), "docs/b.md".to_owned()];
        assert_eq!(
            unannounced(&[path("/repo/web", "../src")], "/repo", &changed),
            ["docs/b.md"]
        );
        assert!(unannounced(&[interface("/repo", "x")], "/repo", &changed).is_empty());
        assert!(unannounced(&[], "/repo", &changed).is_empty());
    }

    #[test]
    fn comparing_ends_after_its_steps() {
        let evil = |tail: &str| path("/", &format!("{}{tail}", "**/*a*a*a*a/".repeat(30)));
        let (one, other) = (vec![evil("b"); 50], vec![evil("c"); 50]);
        let mut steps = 1_000;
        let found = overlaps(&one, &other, &mut steps);
        assert!(steps == 0 && found.len() <= OVERLAPS_MAX);
        let many: Vec<Announcement> = (0..OVERLAPS_MAX + 5)
            .map(|n| path("/", &format!("**/x{n}")))
            .collect();
        assert_eq!(compare(&many, &many).len(), OVERLAPS_MAX);
        let mut steps = STEPS_MAX;
        assert_eq!(
            overlaps(
                &[path("/repo", "src/a")],
                &[path("/repo", "src/b")],
                &mut steps
            ),
            []
        );
        assert_eq!(steps, STEPS_MAX - 1, "a path that differs costs one step");
    }

    const NAMES: [&str; 9] = ["a", "b", "aa", "ab", "ba", "bb", ".b", "a.b", "b.b"];

    /// All short paths over a small alphabet.
    fn all_paths() -> Vec<Vec<&'static str>> {
        let mut all: Vec<Vec<&str>> = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..4 {
            last = last
                .iter()
                .flat_map(|path| {
                    NAMES
                        .iter()
                        .map(|name| path.iter().copied().chain([*name]).collect())
                })
                .collect();
            all.extend(last.clone());
        }
        all
    }

    fn pattern() -> impl Strategy<Value = String> {
        let name = prop_oneof![
            Just("**".to_owned()),
            "[ab*?]\\.b",
            "[ab*?]{1,2}".prop_map(|name| if name == "**" { "*".to_owned() } else { name })
        ];
        prop::collection::vec(name, 0..3).prop_map(|names| format!("/{}", names.join("/")))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn patterns_overlap_exactly_if_a_path_is_covered_by_both(one in pattern(), other in pattern()) {
            let (first, second) = (Pattern::parse("/", &one).expect("a pattern"), Pattern::parse("/", &other).expect("a pattern"));
            let witness = all_paths().into_iter().find(|path| first.covers(path) && second.covers(path));
            let meets = |one: &Pattern, other: &Pattern| one.overlaps(other, &mut STEPS_MAX.clone());
            prop_assert_eq!(meets(&first, &second), witness.is_some(), "{} {} {:?}", one, other, witness);
            prop_assert_eq!(meets(&first, &second), meets(&second, &first));
            prop_assert!(meets(&first, &first));
        }
    }

    proptest! {
        #[test]
        fn covering_extends_below(one in pattern(), at in prop::collection::vec(0_usize..8, 0..4), more in 0_usize..8) {
            let pattern = Pattern::parse("/", &one).expect("a pattern");
            let names: Vec<&str> = at.iter().map(|at| NAMES[*at]).collect();
            let below: Vec<&str> = names.iter().copied().chain([NAMES[more]]).collect();
            prop_assert!(!pattern.covers(&names) || pattern.is_file || pattern.covers(&below));
        }
    }
}
