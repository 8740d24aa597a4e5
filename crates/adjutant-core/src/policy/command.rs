//! Patterns of commands: which commands they allow with certainty, and which command lines may
//! contain such a command.

use super::command_words::{base_name, searched_words, simple_command, split_command};
use super::wildcard::Wildcard;
use super::{directory, programs};
use std::collections::BTreeMap;
use std::fmt;

/// A pattern for command lines: words in which `*` stands for any characters. A last word `**`
/// stands for any number of further words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern {
    words: Vec<Wildcard>,
    has_open_end: bool,
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, word) in self.words.iter().map(Wildcard::as_str).enumerate() {
            let before = if place == 0 { "" } else { " " };
            if word.is_empty() || word.contains(|c: char| !c.is_ascii_graphic()) {
                write!(f, "{before}'{word}'")?
            } else {
                write!(f, "{before}{word}")?
            }
        }
        f.write_str(if self.has_open_end { " **" } else { "" })
    }
}

/// Why a text is not a pattern for commands, or must not allow commands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandPatternError {
    #[error(
        "{0:?} is not one simple command: use words and *, without shell operators, variables or assignments"
    )]
    NotSimple(String),
    #[error("{0:?}: ** stands for any further words, and only at the end")]
    OpenWithin(String),
    #[error("{0:?}: a pattern that allows must name the program")]
    AnyProgram(String),
    #[error("{0:?} runs other programs: to allow it, spell out the whole command, without *")]
    Runner(String),
    #[error(
        "{0:?} has options that run other programs: ** would allow them; list the words, with * for one word"
    )]
    OpenOptions(String),
    #[error(
        "{program:?} has options that run other programs: write out the option instead of {word:?}"
    )]
    OpenOption { program: String, word: String },
}

impl CommandPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is not one simple command.
    pub fn parse(text: &str) -> Result<Self, CommandPatternError> {
        // Here `*` is a wildcard, not shell syntax.
        let mut words = split_command(text, |c| c == '*')
            .ok_or_else(|| CommandPatternError::NotSimple(text.to_owned()))?;
        let has_open_end = words.last().is_some_and(|word| word == "**");
        if has_open_end {
            words.pop();
        }
        if words.is_empty() || words.iter().any(|word| word.contains("**")) {
            return Err(CommandPatternError::OpenWithin(text.to_owned()));
        }
        Ok(Self {
            words: words.iter().map(|word| Wildcard::new(word)).collect(),
            has_open_end,
        })
    }

    /// Checks that the pattern can allow something with certainty.
    ///
    /// # Errors
    /// It would allow any program.
    pub fn check_allows(&self) -> Result<(), CommandPatternError> {
        let program = &self.words[0];
        let owned = || program.as_str().to_owned();
        if !program.is_literal() {
            return Err(CommandPatternError::AnyProgram(owned()));
        }
        let is_spelled_out = !self.has_open_end && self.words.iter().all(Wildcard::is_literal);
        let name = program.as_str();
        if programs::is_runner(name) && !is_spelled_out {
            return Err(CommandPatternError::Runner(owned()));
        }
        if programs::has_running_options(name) {
            if self.has_open_end {
                return Err(CommandPatternError::OpenOptions(owned()));
            }
            if let Some(open) = self.words.iter().find(|word| leaves_option_open(word)) {
                return Err(CommandPatternError::OpenOption {
                    program: owned(),
                    word: open.as_str().to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Returns whether the program is named by a path relative to the working directory.
    pub(super) fn depends_on_directory(&self) -> bool {
        let program = self.words[0].as_str();
        program.contains('/') && !program.starts_with('/')
    }

    /// Returns whether the pattern certainly allows a command. If the program has options that run
    /// other programs, `*` covers no option and no assignment that is not written out.
    #[must_use]
    pub fn allows(&self, words: &[String]) -> bool {
        let is_safe = |pattern: &Wildcard, word: &String| {
            !pattern.as_str().starts_with('*') || !word.starts_with('-') && !word.contains('=')
        };
        self.check_allows().is_ok()
            && self.matches(words)
            && (!programs::has_running_options(self.words[0].as_str())
                || self
                    .words
                    .iter()
                    .zip(words)
                    .all(|(pattern, word)| is_safe(pattern, word)))
    }

    /// Returns whether the words are a command that the pattern describes completely.
    #[must_use]
    pub fn matches(&self, words: &[String]) -> bool {
        let counts_fit = if self.has_open_end {
            words.len() >= self.words.len()
        } else {
            words.len() == self.words.len()
        };
        counts_fit
            && self
                .words
                .iter()
                .zip(words)
                .all(|(pattern, word)| pattern.matches(word))
    }

    /// Decides whether a command line contains a command that begins as the pattern does. Options
    /// may be between its words.
    #[must_use]
    pub(crate) fn occurrence(&self, text: &str) -> Occurrence {
        let within = |words: &[String]| {
            (0..words.len())
                .map(|at| self.begins(&words[at..]))
                .max()
                .unwrap_or(Occurrence::None)
        };
        let searched = searched_words(text);
        let simple = simple_command(text);
        let quoted = directory::words_of_commands(text);
        searched
            .iter()
            .chain(simple.as_ref())
            .chain(&quoted)
            .map(|words| within(words))
            .max()
            .unwrap_or(Occurrence::None)
    }

    fn begins(&self, words: &[String]) -> Occurrence {
        let Some((program, rest)) = words.split_first() else {
            return Occurrence::None;
        };
        if !self.words[0].matches(program) && !self.words[0].matches(base_name(program)) {
            return Occurrence::None;
        }
        // Where the next word of the pattern may be, with how certain that is.
        let mut places = BTreeMap::from([(0, Occurrence::Certain)]);
        for pattern in &self.words[1..] {
            let mut after = BTreeMap::new();
            while let Some((at, occurrence)) = places.pop_first() {
                let Some(word) = rest.get(at) else { continue };
                if pattern.matches(word) {
                    reach(&mut after, at + 1, occurrence);
                }
                // A toolchain of cargo is an option too.
                if !word.starts_with(['-', '+']) {
                    continue;
                }
                let has_value = !word.contains('=')
                    && rest.get(at + 1).is_some_and(|next| !next.starts_with('-'));
                let takes_value = has_value && programs::takes_value(word);
                reach(
                    &mut places,
                    at + 1,
                    if takes_value {
                        Occurrence::Possible
                    } else {
                        occurrence
                    },
                );
                if has_value {
                    reach(
                        &mut places,
                        at + 2,
                        if takes_value {
                            occurrence
                        } else {
                            Occurrence::Possible
                        },
                    );
                }
            }
            places = after;
        }
        places.into_values().max().unwrap_or(Occurrence::None)
    }
}

/// Adds a place, with the more certain way to it.
fn reach(places: &mut BTreeMap<usize, Occurrence>, at: usize, occurrence: Occurrence) {
    let known = places.entry(at).or_insert(occurrence);
    *known = occurrence.max(*known);
}

/// Whether a command line contains a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Occurrence {
    None,
    /// Its words are there in this order, between options whose meaning is not known.
    Possible,
    Certain,
}

/// Returns whether a word of a pattern covers options that it does not name.
fn leaves_option_open(word: &Wildcard) -> bool {
    word.as_str().starts_with('-')
        && word
            .as_str()
            .split('=')
            .next()
            .is_some_and(|name| name.contains('*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::parse(text).expect("a pattern")
    }

    fn allows(allowed: &str, text: &str) -> bool {
        simple_command(text).is_some_and(|words| pattern(allowed).allows(&words))
    }

    #[test]
    fn simple_commands_are_split_as_a_shell_does() {
        let words = |text: &str| simple_command(text).map(|words| words.join("|"));
        assert_eq!(words("git status").as_deref(), Some("git|status"));
        assert_eq!(
            words("  git\tlog  --format='%h %s' ").as_deref(),
            Some("git|log|--format=%h %s")
        );
        assert_eq!(
            words("echo \"a b\"c '' x=1").as_deref(),
            Some("echo|a bc||x=1")
        );
        assert_eq!(words("grep 'a;b|c' f").as_deref(), Some("grep|a;b|c|f"));
    }

    #[test]
    fn shell_syntax_is_never_a_simple_command() {
        for text in [
            "",
            " ",
            "''",
            "git status; rm -rf /",
            "git status && x",
            "git status | sh",
            "git status &",
            "git $(x)",
            "git `x`",
            "git \"$(x)\"",
            "git \"`x`\"",
            "git > f",
            "git < f",
            "git <(x)",
            "A=1 git",
            "git\nrm",
            "git status\r\nrm",
            "git {a,b}",
            "git *",
            "git a?",
            "git [a]",
            "git ~",
            "git ~/x",
            "git #x",
            "git !x",
            "git \\; x",
            "git 'open",
            "git \"open",
            "git $HOME",
            "=git",
            "git =rm",
            "(git)",
            "git \u{a0}x",
            "git \u{2028}x",
            "git a\u{0}b",
            "git 'a\u{7}b'",
            "git ^x",
            "! git",
            "git \"!x\"",
            "gi\\t x",
            "a=b",
            "a=b git",
        ] {
            assert_eq!(simple_command(text), None, "{text:?}");
        }
    }

    #[test]
    fn pattern_matches_word_by_word() {
        assert!(
            allows("git status", "git status")
                && allows("ls -l **", "ls -l")
                && allows("ls -l **", "ls -l -a --size")
        );
        assert!(
            allows("cargo test -p *", "cargo test -p core")
                && allows("curl --max-time=* *", "curl --max-time=3 x")
        );
        for (allowed, text) in [
            ("git status", "git status -s"),
            ("git status", "gitstatus"),
            ("git status", "'git status'"),
            ("ls -l **", "ls -c core.pager=x -l"),
            ("ls -l **", "env ls -l"),
            ("ls -l **", "./ls -l"),
            ("ls -l **", "/tmp/ls -l"),
            ("ls -l **", "LS -l"),
            ("ls -l **", "ls -l; rm -rf /"),
            ("ls -l **", "ls -l 'x' && y"),
            ("cargo test -p *", "cargo test -p a b"),
            ("ls -l **", "bash -c 'ls -l'"),
        ] {
            assert!(!allows(allowed, text), "{allowed} {text}");
        }
    }

    #[test]
    fn patterns_that_allow_name_their_program() {
        let refused = |text: &str| {
            CommandPattern::parse(text)
                .and_then(|pattern| pattern.check_allows())
                .is_err()
        };
        for bad in [
            "",
            "*",
            "**",
            "* status",
            "gi* status",
            "bash -c *",
            "sudo **",
            "/usr/bin/env *",
            "a; b",
            "a ** b",
            "a b**",
            "X=1 a",
            "git $x",
        ] {
            assert!(refused(bad), "{bad}");
        }
        for good in [
            "git status",
            "ls **",
            "grep **",
            "sh scripts/test.sh",
            "npm run *",
            "cargo test -p *",
            "cargo test --package=*",
        ] {
            assert!(!refused(good), "{good}");
        }
        assert!(
            CommandPattern::parse("* --force **").is_ok(),
            "a pattern that refuses may"
        );
    }

    #[test]
    fn refused_words_are_found_anywhere() {
        for text in [
            "git push",
            "git push --force origin",
            "cd x && git push",
            "x;git push",
            "echo $(git push)",
            "`git push`",
            "sh -c 'git push'",
            "/usr/bin/git push",
            "g\"i\"t push",
            "g\\it push",
            "git${IFS}push",
            "env A=1 git push",
            "a|git\tpush",
            "git\npush",
        ] {
            assert_eq!(
                pattern("git push").occurrence(text),
                Occurrence::Certain,
                "{text}"
            );
        }
        for text in ["git pull", "push git", "mygit push", "git stash push"] {
            assert_eq!(
                pattern("git push").occurrence(text),
                Occurrence::None,
                "{text}"
            );
        }
    }

    #[test]
    fn options_may_be_between_refused_words() {
        for (refused, text) in [
            ("git push", "git -C . push"),
            ("git push", "git --no-pager push origin main"),
            ("git push", "git -c a=b push"),
            ("git push", "git --git-dir=.git push"),
            (
                "git push",
                "git --git-dir .git --work-tree . -c a=b -P push",
            ),
            ("git push", "cd x && /usr/bin/git -C 'a b' push"),
            ("git push --force", "git -C . push origin --force"),
            ("git push --force", "git push -q --force"),
            (
                "cargo publish",
                "cargo +nightly --config net.offline=true publish",
            ),
            ("npm publish", "npm --prefix sub publish"),
            ("docker push", "docker --context remote push x"),
            ("kubectl delete", "kubectl -n prod --context=x delete pod y"),
            ("terraform apply", "terraform -chdir=infra apply"),
            ("gh pr merge", "gh -R a/b pr merge 7"),
            ("gh pr merge", "gh pr --repo a/b merge 7"),
        ] {
            let is_found = pattern(refused).occurrence(text) == Occurrence::Certain;
            assert_eq!(
                is_found,
                refused != "git push --force" || !text.contains("origin"),
                "{refused}: {text}"
            );
        }
        for text in ["git -v stash push", "git --unknown stash push"] {
            assert_eq!(
                pattern("git push").occurrence(text),
                Occurrence::Possible,
                "{text}"
            );
        }
        for text in [
            "git stash push",
            "git -C push status",
            "git -C . stash push",
            "git commit -m push",
            "git log --grep=push",
        ] {
            assert_ne!(
                pattern("git push").occurrence(text),
                Occurrence::Certain,
                "{text}"
            );
        }
    }

    #[test]
    fn option_that_runs_a_program_is_never_allowed() {
        for open in [
            "cargo **",
            "cargo test **",
            "npm test **",
            "git **",
            "git log **",
            "make **",
            "tar **",
            "rsync **",
            "sort **",
            "go test **",
            "pytest **",
            "/usr/bin/make **",
            "gcc-12 **",
            "cargo test -*",
            "cargo test --c*",
            "python3 *",
            "python3.11 -m pytest **",
            "node *",
            "perl *",
            "ruby *",
            "sed -n * *",
            "gdb *",
            "vim *",
            "docker run *",
        ] {
            let pattern = pattern(open);
            assert!(pattern.check_allows().is_err(), "{open}");
            assert!(
                !pattern.allows(&[open.replace(" **", "").replace('*', "x")]),
                "{open}"
            );
        }
        for (allowed, text) in [
            (
                "cargo test *",
                "cargo test --config=build.rustc-wrapper=\"/tmp/x\"",
            ),
            ("cargo test *", "cargo test -Zscript"),
            ("make *", "make SHELL=/tmp/x"),
            ("make *", "make -f/tmp/x"),
            ("tar xf *", "tar xf --to-command=x"),
            ("git diff *", "git diff --ext-diff"),
            ("npm run *", "npm run --script-shell=/tmp/x"),
        ] {
            assert!(!allows(allowed, text), "{allowed}: {text}");
        }
        for (allowed, text) in [
            ("cargo test", "cargo test"),
            ("cargo test *", "cargo test parser::tests"),
            ("cargo test -p *", "cargo test -p core"),
            ("cargo test --package=*", "cargo test --package=core"),
            ("make *", "make check"),
            ("npm run *", "npm run lint"),
            ("git log --oneline -n *", "git log --oneline -n 5"),
            ("python3 scripts/check.py", "python3 scripts/check.py"),
            ("ls **", "ls -l --color=never a=b"),
        ] {
            assert!(allows(allowed, text), "{allowed}: {text}");
        }
    }

    fn operator() -> impl Strategy<Value = String> {
        let operators = [
            ";", "&&", "||", "|", "&", "\n", "$(", "`", ">", "<", "<(", "${", "$x", "\\", "*", "?",
            "[", "{a,b}", "~", "#", "!", "(", ")", "^", "\r",
        ];
        proptest::sample::select(operators.to_vec()).prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn no_command_with_an_operator_is_allowed(before in "[ a-z/.-]{0,8}", operator in operator(), after in "[ a-z/.'\"-]{0,12}") {
            for text in [format!("ls -l {before}{operator}{after}"), format!("{operator}ls -l {after}"), format!("ls{operator}-l {after}")] {
                prop_assert!(!allows("ls -l **", &text), "{}", text);
            }
        }

        #[test]
        fn expanding_operator_in_double_quotes_is_refused(before in "[ a-z]{0,5}", after in "[ a-z)`}]{0,5}", operator in proptest::sample::select(vec!["$(", "`", "${", "$x", "\\"])) {
            let text = format!("ls -l \"{before}{operator}{after}\"");
            prop_assert!(!allows("ls -l **", &text));
        }

        /// An allowed command begins with the allowed words. Outside quotes, it has no character
        /// that is special in a shell.
        #[test]
        fn allowed_command_runs_only_its_visible_words(text in "(ls|ls -l|[a-z ;|&$`'\"\\\\(){}<>=~*#!\n-]){1,6}") {
            if allows("ls -l **", &text) {
                let mut quote = None;
                for c in text.chars() {
                    match (quote, c) {
                        (None, '\'' | '"') => quote = Some(c),
                        (Some(open), c) if open == c => quote = None,
                        (None, c) => prop_assert!(!";|&$`\\(){}<>~*#!\n".contains(c), "{:?}", text),
                        (Some('"'), c) => prop_assert!(!"$`\\!\n".contains(c), "{:?}", text),
                        (Some(_), c) => prop_assert!(c != '\n'),
                    }
                }
                prop_assert_eq!(quote, None);
            }
        }

        #[test]
        fn allowed_command_is_also_found_by_a_deny(text in "[a-z '\"=./-]{0,20}") {
            let text = format!("ls -l {text}");
            if allows("ls -l **", &text) {
                prop_assert!(pattern("ls -l").occurrence(&text) == Occurrence::Certain);
            }
        }
    }
}
