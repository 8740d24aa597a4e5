//! Documentation and sources use the project's terms. Rejected words are listed with what to write
//! instead.

use regex::Regex;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A pattern in lower case, and what to write instead. Text in backquotes is exempt, because it
/// names files and commands.
const REJECTED: &[(&str, &str)] = &[
    (r"\banew\b", "again, restart, resume, a new attempt"),
    (r"\b(beg[aiu]ns?|begun) (again|over)\b", "restart, resume"),
    (
        r"\b(for|needs?|needed|without|asks?|asking|given?|gives) leave\b",
        "approval",
    ),
    (r"\bveto(es|ed)?\b", "revoke, deny"),
    (
        r"\bhand(s|ed|ing)? (it |them |a task |tasks )?on to\b",
        "delegate",
    ),
    (r"\bhands? (a task|tasks) on\b", "delegate"),
    (r"\bhand(s|ed|ing)? on\b", "delegate, pass on"),
    (r"\bwho(so)?ever\b", "name the person, client or run"),
    (r"\bsomebody\b", "name the person, client or run"),
    (
        r"\b(is|are|was|were|be|been) told\b",
        "is notified, receives, learns",
    ),
    (
        r"\bwhat (becomes|became|comes|came) of\b",
        "result, outcome",
    ),
    (
        r"\b(goes|go|gone|going) on (with|beside|by)\b",
        "continue, resume",
    ),
    (r"\bat work (on|in|for)\b", "working on, in use"),
    (r"\bof ours\b", "of Adjutant"),
    (r"\bput(s|ting)? aside\b", "set aside, rotate, remove"),
    (r"\bas ever\b", "as usual, or nothing"),
    (r"\ball the same\b", "still"),
    (r"\bheard\b", "received"),
    (r"\bballast\b", "reserved space"),
    (r"\b(tame|felt|unlooked|to lie at)\b", "say what happens"),
    (r"\bby turns\b", "alternately"),
    (r"\bthe time is over\b", "timed out"),
    (r"\bin force\b", "in effect"),
    (
        r"\bcan(not)? be had\b",
        "is (not) possible, cannot be enforced",
    ),
    (r"\bonce more\b", "again"),
    (r"\bso often\b", "N times"),
    (r"\b(does|do) not tell\b", "does not report"),
    (r"\bin whatever order\b", "regardless of the order"),
    (r"\b(is|are) there twice\b", "is listed twice"),
    (
        r"\bhand(s|ed|ing)? (a |the |out )?(separate )?tasks? to\b",
        "delegate",
    ),
    (r"\bpointed to (a|the) gate\b", "configured to use the gate"),
    (r"\bwhen told to\b", "name the condition"),
    (
        r"\b(is|are|was|were|still) at work\b",
        "works, runs, is open, is in use",
    ),
    (r"\b(has|have|had)( each)? taken in\b", "merged, pulled"),
    (
        r"\b(bring|brings|bringing|brought|take|takes|took|taken) back\b",
        "restore, revoke, reset",
    ),
    (
        r"\b(new|each|one|single) things? (that )?(needs?|happened)\b",
        "item, request, event",
    ),
    (r"\bfor good[.,;]", "permanently"),
    (r"\bon (its|their) way\b", "pending, not received yet"),
    (
        r"\b(thus|hence|hereby|thereby|whereby|therein|thereof|forthwith|lest|albeit|nought|withal|anon)\b",
        "so, therefore, or nothing",
    ),
    (r"\b(mend(s|ed|ing)?|tidings|behold)\b", "fix, event"),
    (
        r"\b(keeps?|kept) nobody (out|from)\b",
        "does not block, does not prevent",
    ),
    (r"\bin (its|their|his|her) stead\b", "instead"),
    (r"\bof (its|their) own accord\b", "by itself"),
    (
        r"\b(hubs? that leads?|the one that leads|hubs? (that|which) stands? by)\b",
        "leader, standby hub",
    ),
    (
        r"\b(hub|runner|peer|home|store|server|database|connection) (that )?(is|are|was|were) away\b",
        "unreachable, offline",
    ),
    (r"\bnews\b", "change, event, update, new entries"),
    (r"\brung\b", "notified"),
    (
        r"\b(is|are|was|were|be|been|has|had|have) given up\b",
        "lost, cancelled, abandoned",
    ),
    (
        r"\bgives? (it|its \w+|them|their \w+|the \w+|an? \w+) up\b",
        "records it as lost, cancels it",
    ),
    (
        r"(\}|\b(it|this|that|which|path|file|name|key|value|text|caller|reply|index|array|object|message)) (is|are) no (a |an |[a-z]*(file|table|map|list|number|command|program|name|text|address|run|attempt|header|directory|option|cursor|terminal)\b)",
        "is not a",
    ),
];

/// Stored and sent words of older versions, and the name of a file, which cannot change.
const EXEMPT: &[&str] = &["\"request.vetoed\"", "\"prompt_anew\"", "\"ballast\""];

static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    REJECTED
        .iter()
        .map(|(word, instead)| (pattern(word), *instead))
        .collect()
});
static CODE: LazyLock<Regex> = LazyLock::new(|| pattern("`[^`]*`"));
static HUMP: LazyLock<Regex> = LazyLock::new(|| pattern("([a-z])([A-Z])"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    .iter()
    .map(|name| root.join(name))
    .collect();
    for dir in ["docs", "docs/agents", "docs/design"] {
        let entries = std::fs::read_dir(root.join(dir))
            .expect("the documentation")
            .map(|entry| entry.expect("an entry").path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages
}

/// Returns every Rust file of the project but this one.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let crates = crate::layering::crates()
        .into_iter()
        .flat_map(|(_, dir)| [dir.join("src"), dir.join("tests")]);
    let mut dirs: Vec<PathBuf> = crates.filter(|dir| dir.is_dir()).collect();
    dirs.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/src"));
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|end| end == "rs")
                && !path.ends_with("tests/it/words.rs")
            {
                found.push(path);
            }
        }
    }
    found
}

/// Splits identifiers into words, and removes what is exempt.
fn spelled_out(source: &str) -> String {
    let text = EXEMPT
        .iter()
        .fold(source.to_owned(), |text, exempt| text.replace(exempt, ""));
    HUMP.replace_all(&text, "$1 $2").replace('_', " ")
}

/// Returns the rejected words of a text, each with its line and what to write instead.
fn rejected(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = CODE.replace_all(line, "`").to_lowercase();
        for (word, instead) in RULES.iter() {
            if let Some(hit) = word.find(&line) {
                found.push(format!(
                    "{}: {:?}; write: {instead}",
                    number + 1,
                    hit.as_str()
                ));
            }
        }
    }
    found
}

#[test]
fn documentation_uses_the_projects_terms() {
    let pages = pages();
    assert!(pages.len() > 20, "{pages:?}");
    let mut wrong = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page)
            .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        wrong.extend(
            rejected(&text)
                .into_iter()
                .map(|found| format!("{}:{found}", page.display())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sources_use_the_projects_terms() {
    let sources = sources();
    assert!(sources.len() > 400, "{}", sources.len());
    let mut wrong = Vec::new();
    for source in sources {
        let text = std::fs::read_to_string(&source)
            .unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        wrong.extend(
            rejected(&spelled_out(&text))
                .into_iter()
                .map(|found| format!("{}:{found}", source.display())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn identifiers_are_read_as_words() {
    assert_eq!(
        rejected(&spelled_out(
            "fn is_told() -> RequestVetoed { \"request.vetoed\" }"
        ))
        .len(),
        2
    );
}

#[test]
fn rejected_words_are_found_outside_code() {
    assert_eq!(
        rejected("A run is begun anew.\nIt waits for `somebody`.\nIt asks for leave."),
        [
            "1: \"anew\"; write: again, restart, resume, a new attempt",
            "3: \"for leave\"; write: approval",
        ]
    );
}
