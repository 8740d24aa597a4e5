//! Command lines: which are one simple command, and which contain a sequence of words.
//!
//! An approval needs certainty, so only a command line that every shell splits into the same words counts as a simple
//! command. A refusal errs on the other side: it looks for the words anywhere in the text.

use super::wildcard::Wildcard;
use std::fmt;

/// Programs that run other programs. A pattern that allows one of them must be spelled out.
const RUNNERS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "env",
    "xargs",
    "sudo",
    "doas",
    "su",
    "eval",
    "exec",
    "command",
    "builtin",
    "nohup",
    "nice",
    "time",
    "timeout",
    "setsid",
    "stdbuf",
    "watch",
    "parallel",
    "ssh",
    "chroot",
    "unshare",
    "nsenter",
    "script",
    "source",
    ".",
    "find",
    "flock",
    "ionice",
    "chrt",
    "taskset",
    "strace",
    "ltrace",
    "systemd-run",
    "runuser",
    "pkexec",
    "awk",
    "gawk",
    "mawk",
    "docker",
    "podman",
    "npx",
    "pnpx",
    "bunx",
    "uvx",
    "pipx",
];
/// Characters without a special meaning in any shell, outside quotes. `~` and `=` are special at some places.
const PLAIN: &str = "_@%+:,./-";

/// Shell commands that change the directory of their shell, or may run one that does.
const DIRECTORY_CHANGERS: &[&str] = &["cd", "pushd", "popd", "chdir", "eval", "source"];

/// Words of a shell before a program.
const PREFIXES: &[&str] =
    &["then", "do", "else", "elif", "if", "while", "until", "!", "time", "command", "builtin", "exec", "coproc", "noglob", "nocorrect", "-"];

/// Splits a command line into words, if it is one simple command without any shell syntax but quotes.
#[must_use]
pub fn simple_command(text: &str) -> Option<Vec<String>> {
    split(text, |c| c.is_ascii_alphanumeric() || PLAIN.contains(c))
}

fn split(text: &str, is_plain: impl Fn(char) -> bool) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        // A shell expands these within double quotes.
                        '$' | '`' | '\\' | '!' if c == '"' => return None,
                        inside if inside.is_control() => return None,
                        inside => word.push(inside),
                    }
                }
            }
            // An assignment before the program changes its environment.
            '=' if words.is_empty() => return None,
            // zsh expands `=program` at the beginning of a word.
            '=' if word.is_none() => return None,
            '=' => word.get_or_insert_default().push(c),
            c if is_plain(c) => word.get_or_insert_default().push(c),
            _ => return None,
        }
    }
    words.extend(word);
    (!words.is_empty() && !words[0].is_empty()).then_some(words)
}

/// Returns the words of a command line for a search: quotes removed, split at everything that a shell treats apart.
fn searched_words(text: &str) -> [Vec<String>; 2] {
    let text = text.replace("${IFS}", " ").replace("$IFS", " ");
    let split = |text: &str| -> Vec<String> {
        let is_apart = |c: char| c.is_whitespace() || c.is_control() || ";|&<>(){}$`!".contains(c);
        text.split(is_apart).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let joined: String = text.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    let apart: String = text.chars().map(|c| if matches!(c, '\'' | '"' | '\\') { ' ' } else { c }).collect();
    [split(&joined), split(&apart)]
}

/// Returns every word that a command line may contain.
pub(super) fn possible_words(text: &str) -> Vec<String> {
    let mut words = searched_words(text).concat();
    words.extend(simple_command(text).unwrap_or_default());
    words
}

/// Returns the directories to which a command line may change its shell, by name, as far as it states them. `None`: it
/// changes to no directory but `from`.
#[must_use]
pub fn directory_changes(text: &str, from: &str) -> Option<Vec<String>> {
    let returns = ["", "'", "\""].map(|quote| format!("cd {quote}{from}{quote}"));
    let mut targets: Option<Vec<String>> = None;
    for part in text.split(|c: char| ";|&(){}".contains(c) || c.is_control() && c != '\t').map(str::trim) {
        // A program that is named by a variable or another command can be any.
        let is_open = programs(part).iter().any(|program| program == "." || program.contains(['$', '`', '*', '?', '[']));
        let [words, apart] = searched_words(part);
        let changes = |words: &[String]| words.iter().any(|word| DIRECTORY_CHANGERS.contains(&word.as_str()));
        if returns.iter().any(|whole| whole == part) || !is_open && !changes(&words) && !changes(&apart) {
            continue;
        }
        let named = words.iter().skip_while(|word| !DIRECTORY_CHANGERS.contains(&word.as_str())).skip(1);
        targets.get_or_insert_default().extend(named.filter(|word| !word.starts_with('-')).cloned());
    }
    targets
}

/// Returns the words of a command that may be its program, without quotes: the first one that is neither a keyword, an
/// assignment nor a redirection. Where a quote is cut off, any word may be.
fn programs(part: &str) -> Vec<String> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_assignment = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            let name = name.strip_suffix('+').unwrap_or(name);
            is_name(name.split_once('[').map_or(name, |(name, _)| name))
        })
    };
    let Some(words) = quoted_words(part) else {
        return part.split_whitespace().map(|word| word.replace(['\'', '"', '\\'], "")).collect();
    };
    let mut words = words.into_iter().peekable();
    let (mut follows_prefix, mut follows_exec) = (false, false);
    while let Some(word) = words.next() {
        let is_option = follows_prefix && word.starts_with('-');
        // `2>&1` is cut at its `&`.
        let redirection = word.trim_start_matches(|c: char| c.is_ascii_digit());
        if redirection.starts_with(['<', '>']) {
            if redirection.trim_start_matches(['<', '>']).is_empty() {
                words.next();
            }
        } else if !redirection.is_empty() && !is_assignment(&word) && !is_option {
            if !PREFIXES.contains(&word.as_str()) {
                // The value of an option, as of `exec -a`, may come first.
                return std::iter::once(word).chain(words.next().filter(|_| follows_exec)).collect();
            }
            (follows_prefix, follows_exec) = (true, word == "exec");
        } else if word.contains('`') {
            return vec![word];
        }
    }
    Vec::new()
}

/// Splits a text at spaces outside quotes, and removes the quotes. `None`: a quote is not closed.
fn quoted_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        '\\' if c == '"' => word.extend(chars.next()),
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// A pattern for command lines: words in which `*` stands for any characters. A last word `**` stands for any number of
/// further words.
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

impl CommandPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is not one simple command.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Here `*` is a wildcard, not shell syntax.
        let mut words = split(text, |c| c.is_ascii_alphanumeric() || PLAIN.contains(c) || c == '*')
            .ok_or_else(|| format!("{text:?} is not one simple command: use words and *, without shell operators, variables or assignments"))?;
        let has_open_end = words.last().is_some_and(|word| word == "**");
        if has_open_end {
            words.pop();
        }
        if words.is_empty() || words.iter().any(|word| word.contains("**")) {
            return Err(format!("{text:?}: ** stands for any further words, and only at the end"));
        }
        Ok(Self { words: words.iter().map(|word| Wildcard::new(word)).collect(), has_open_end })
    }

    /// Checks that the pattern can allow something with certainty.
    ///
    /// # Errors
    /// It would allow any program.
    pub fn check_allows(&self) -> Result<(), String> {
        let program = &self.words[0];
        if !program.is_literal() {
            return Err(format!("{:?}: a pattern that allows must name the program", program.as_str()));
        }
        let is_spelled_out = !self.has_open_end && self.words.iter().all(Wildcard::is_literal);
        if RUNNERS.contains(&base_name(program.as_str())) && !is_spelled_out {
            return Err(format!("{:?} runs other programs: to allow it, spell out the whole command, without *", program.as_str()));
        }
        Ok(())
    }

    /// Returns whether the program is named by a path relative to the working directory.
    pub(super) fn depends_on_directory(&self) -> bool {
        let program = self.words[0].as_str();
        program.contains('/') && !program.starts_with('/')
    }

    /// Returns whether the words are a command that the pattern describes completely.
    #[must_use]
    pub fn matches(&self, words: &[String]) -> bool {
        let counts_fit = if self.has_open_end { words.len() >= self.words.len() } else { words.len() == self.words.len() };
        counts_fit && self.words.iter().zip(words).all(|(pattern, word)| pattern.matches(word))
    }

    /// Returns whether a command line may contain a command that begins as the pattern does.
    #[must_use]
    pub fn may_occur_in(&self, text: &str) -> bool {
        let occurs = |words: &[String]| (0..words.len()).any(|at| self.begins(&words[at..]));
        searched_words(text).iter().any(|words| occurs(words)) || simple_command(text).is_some_and(|words| occurs(&words))
    }

    fn begins(&self, words: &[String]) -> bool {
        words.len() >= self.words.len()
            && self
                .words
                .iter()
                .zip(words)
                .enumerate()
                .all(|(place, (pattern, word))| pattern.matches(word) || place == 0 && pattern.matches(base_name(word)))
    }
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::parse(text).expect("a pattern")
    }

    fn allows(allowed: &str, text: &str) -> bool {
        simple_command(text).is_some_and(|words| pattern(allowed).matches(&words))
    }

    #[test]
    fn simple_commands_are_split_as_a_shell_does() {
        let words = |text: &str| simple_command(text).map(|words| words.join("|"));
        assert_eq!(words("git status").as_deref(), Some("git|status"));
        assert_eq!(words("  git\tlog  --format='%h %s' ").as_deref(), Some("git|log|--format=%h %s"));
        assert_eq!(words("echo \"a b\"c '' x=1").as_deref(), Some("echo|a bc||x=1"));
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
        assert!(allows("git status", "git status") && allows("git log **", "git log") && allows("git log **", "git log -p --stat"));
        assert!(allows("cargo test -p *", "cargo test -p core") && allows("curl --max-time=* *", "curl --max-time=3 x"));
        for (allowed, text) in [
            ("git status", "git status -s"),
            ("git status", "gitstatus"),
            ("git status", "'git status'"),
            ("git log **", "git -c core.pager=x log"),
            ("git log **", "env git log"),
            ("git log **", "./git log"),
            ("git log **", "/tmp/git log"),
            ("git log **", "GIT log"),
            ("git log **", "git log; rm -rf /"),
            ("git log **", "git log 'x' && y"),
            ("cargo test -p *", "cargo test -p a b"),
            ("git log **", "bash -c 'git log'"),
        ] {
            assert!(!allows(allowed, text), "{allowed} {text}");
        }
    }

    #[test]
    fn patterns_that_allow_name_their_program() {
        let refused = |text: &str| CommandPattern::parse(text).and_then(|pattern| pattern.check_allows()).is_err();
        for bad in ["", "*", "**", "* status", "gi* status", "bash -c *", "sudo **", "/usr/bin/env *", "a; b", "a ** b", "a b**", "X=1 a", "git $x"] {
            assert!(refused(bad), "{bad}");
        }
        for good in ["git status", "git log **", "sh scripts/test.sh", "npm run *"] {
            assert!(!refused(good), "{good}");
        }
        assert!(CommandPattern::parse("* --force **").is_ok(), "a pattern that refuses may");
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
            assert!(pattern("git push").may_occur_in(text), "{text}");
        }
        for text in ["git pull", "push git", "mygit push", "git stash push"] {
            assert!(!pattern("git push").may_occur_in(text), "{text}");
        }
    }

    fn operator() -> impl Strategy<Value = String> {
        let operators = [
            ";", "&&", "||", "|", "&", "\n", "$(", "`", ">", "<", "<(", "${", "$x", "\\", "*", "?", "[", "{a,b}", "~", "#", "!", "(", ")", "^", "\r",
        ];
        proptest::sample::select(operators.to_vec()).prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn no_command_with_an_operator_is_allowed(before in "[ a-z/.-]{0,8}", operator in operator(), after in "[ a-z/.'\"-]{0,12}") {
            for text in [format!("git log {before}{operator}{after}"), format!("{operator}git log {after}"), format!("git{operator}log {after}")] {
                prop_assert!(!allows("git log **", &text), "{}", text);
            }
        }

        #[test]
        fn expanding_operator_in_double_quotes_is_refused(before in "[ a-z]{0,5}", after in "[ a-z)`}]{0,5}", operator in proptest::sample::select(vec!["$(", "`", "${", "$x", "\\"])) {
            let text = format!("git log \"{before}{operator}{after}\"");
            prop_assert!(!allows("git log **", &text));
        }

        /// An allowed command begins with the allowed words. Outside quotes, it has no character that is special in a shell.
        #[test]
        fn allowed_command_runs_only_its_visible_words(text in "(git|git log|[a-z ;|&$`'\"\\\\(){}<>=~*#!\n-]){1,6}") {
            if allows("git log **", &text) {
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
            let text = format!("git log {text}");
            if allows("git log **", &text) {
                prop_assert!(pattern("git log").may_occur_in(&text));
            }
        }
    }
}
