//! The book: its examples are executed with scripted agents, and its links lead to pages and
//! headings.
//!
//! The `sh` blocks of a page are executed in order by one shell, in a fresh home and a fresh
//! repository. The agents `claude`, `codex` and `gemini` are scripted there. A block that cannot be
//! executed has the reason in its first line:
//! ```` ```sh not-run: opens a browser ````. Three conventions of the pages are understood:
//!
//! - A comment that begins with `exit code 3` states the exit code of its line.
//! - `RUN` stands for a finished run with changes in a clone, `AGENT` for an agent, `NAME` for a new name.
//! - A `toml` block of a tutorial or recipe is added to the configuration.

use crate::readme::typed;
use crate::support::{Ran, TestHome};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// How many blocks are marked as not executed. Change it only with a reason beside the new mark.
const NOT_RUN: usize = 15;

/// The README's sections whose blocks have tests of their own, or start what tests do not.
const README_ELSEWHERE: [&str; 7] = [
    "Adjutant",                     // installs the program, and starts the demo
    "Use it from a shell",          // readme.rs, on a terminal
    "Connect your agent",           // readme.rs and vendors/connect.rs
    "Two agents in one repository", // readme.rs, with an agent that resolves the conflict
    "Agents on other machines",     // runner/two_machines.rs, in two network namespaces
    "Your own agents",              // acp, with a real ACP agent
    "Develop",
];

/// Pages whose `toml` blocks belong to the examples.
const WITH_CONFIGURATION: [&str; 3] = ["README.md", "docs/tutorial.md", "docs/recipes.md"];

static FENCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^```(\w+)(?: not-run: (.+))?\n((?:.*\n)*?)```$").expect("a pattern")
});
static HEADING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^#{1,6} (.+)$").expect("a pattern"));

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the pages of the book and the README with their text, by their path in the repository.
fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::from([("README.md".to_owned(), read(&root().join("README.md")))]);
    for dir in ["docs", "docs/agents", "docs/design"] {
        for entry in std::fs::read_dir(root().join(dir)).expect("the documentation") {
            let name = entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name");
            if name.ends_with(".md") {
                pages.insert(format!("{dir}/{name}"), read(&root().join(dir).join(&name)));
            }
        }
    }
    pages
}

struct Block<'a> {
    /// The section that contains it.
    heading: &'a str,
    language: &'a str,
    not_run: Option<&'a str>,
    text: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    for fence in FENCE.captures_iter(page) {
        let before = &page[..fence.get(0).expect("the match").start()];
        let heading = before
            .lines()
            .rfind(|line| line.starts_with("# ") || line.starts_with("## "));
        found.push(Block {
            heading: heading.unwrap_or_default().trim_start_matches(['#', ' ']),
            language: fence.get(1).expect("a language").as_str(),
            not_run: fence.get(2).map(|reason| reason.as_str()),
            text: fence.get(3).expect("a text").as_str(),
        });
    }
    found
}

/// Returns a shell command that writes the configuration: `added`, and what it does not declare
/// itself.
fn configure(added: &str) -> String {
    let scripted = ["claude", "codex", "gemini"]
        .iter()
        .fold(added.to_owned(), |text, name| {
            text.replace(&format!("harness = \"{name}\""), "harness = \"echo\"")
        });
    let mut text = if scripted.contains("default_agent") {
        String::new()
    } else {
        "default_agent = \"echo\"\n".to_owned()
    };
    text += &scripted;
    for name in ["claude", "codex", "gemini"]
        .iter()
        .filter(|name| !scripted.contains(&format!("[agents.{name}]")))
    {
        text += &format!("\n[agents.{name}]\nharness = \"echo\"\n");
    }
    format!("cat > \"$ADJ_HOME/config.toml\" <<'END OF FILE'\n{text}END OF FILE\n")
}

/// Returns one line of an example as a shell command that fails if its result is not the documented
/// one.
fn command(line: &str, made: &mut usize) -> String {
    static PLACES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(RUN|AGENT|NAME)\b").expect("a pattern"));
    static CODE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^(.*?) +# exit code (\d+)").expect("a pattern"));
    if let Some(coded) = CODE.captures(line) {
        return format!(
            "code=0; {} || code=$?; [ $code = {} ]\n",
            &coded[1], &coded[2]
        );
    }
    let (typed, _) = line.split_once(" #").unwrap_or((line, ""));
    if !PLACES.is_match(typed) {
        return format!("{line}\n");
    }
    *made += 1;
    let typed = typed
        .replace("RUN", &format!("made-{made}"))
        .replace("AGENT", "echo")
        .replace("NAME", &format!("name-{made}"));
    format!("adj run -w --clone -a echo -n made-{made} 'write made-{made}.txt text'\n{typed}\n")
}

/// Returns the examples of a page as one script. Empty if there is nothing to execute.
fn script(path: &str, page: &str) -> String {
    let (mut out, mut added, mut made, mut is_empty) = (configure(""), String::new(), 0, true);
    for block in blocks(page) {
        if block.not_run.is_some()
            || (path == "README.md" && README_ELSEWHERE.contains(&block.heading))
        {
            continue;
        }
        match block.language {
            "toml" if WITH_CONFIGURATION.contains(&path) => {
                added += block.text;
                out += &configure(&added);
            }
            "sh" => {
                is_empty = false;
                out += "set -x\n";
                out.extend(block.text.lines().map(|line| command(line, &mut made)));
                out += "{ set +x; } 2>/dev/null\n";
            }
            _ => {}
        }
    }
    if is_empty { String::new() } else { out }
}

const FRESH: &str = "set -eu
git config --global user.name U
git config --global user.email u@example.org
git init -q -b main .
git commit -q --allow-empty -m first
mkdir -p ~/.config/adjutant
";

#[test]
fn examples_of_the_book_work() {
    let mut executed = BTreeSet::new();
    for (path, page) in pages() {
        let script = script(&path, &page);
        if script.is_empty() {
            continue;
        }
        let home = TestHome::new();
        let ran: Ran = typed(&home, &format!("{FRESH}{script}"))
            .output()
            .expect("a shell")
            .into();
        assert_eq!(ran.code, 0, "{path}:\n{}\n{}", ran.out, ran.err);
        if path == "docs/recipes.md" {
            let review = read(&home.work().join("review.md"));
            assert_eq!(
                review,
                home.ok(&["show", "@last", "--result"]),
                "the file is the whole result"
            );
            assert!(
                !review.trim().is_empty() && !review.contains("✓"),
                "{review}"
            );
        }
        executed.insert(path);
    }
    for page in [
        "README.md",
        "docs/tutorial.md",
        "docs/recipes.md",
        "docs/install.md",
        "docs/workspaces.md",
        "docs/chats.md",
    ] {
        assert!(
            executed.contains(page),
            "{page} has no executed example: {executed:?}"
        );
    }
}

#[test]
fn a_wrong_example_is_noticed() {
    for wrong in [
        "adj wait nobody",
        "adj --version # exit code 3",
        "adj merge RUN --no-such-option",
    ] {
        let home = TestHome::new();
        let script = script("docs/tutorial.md", &format!("# T\n\n```sh\n{wrong}\n```\n"));
        let ran: Ran = typed(&home, &format!("{FRESH}{script}"))
            .output()
            .expect("a shell")
            .into();
        assert_ne!(ran.code, 0, "{wrong}: {ran:?}");
    }
}

#[test]
fn every_block_that_is_not_executed_has_a_reason() {
    let pages = pages();
    let all: Vec<(&String, Block)> = pages
        .iter()
        .flat_map(|(path, page)| blocks(page).into_iter().map(move |block| (path, block)))
        .collect();
    let marked: Vec<String> = all
        .iter()
        .filter_map(|(path, block)| Some(format!("{path}: {}", block.not_run?)))
        .collect();
    assert_eq!(marked.len(), NOT_RUN, "{marked:#?}");
    // A fence that the pattern does not match would neither be executed nor counted.
    for (path, page) in &pages {
        let fences = page
            .lines()
            .filter(|line| line.starts_with("```sh"))
            .count();
        assert_eq!(
            fences,
            all.iter()
                .filter(|(of, block)| *of == path && block.language == "sh")
                .count(),
            "{path}"
        );
    }
    for heading in README_ELSEWHERE {
        assert!(
            all.iter()
                .any(|(path, block)| *path == "README.md" && block.heading == heading),
            "{heading:?} has no block"
        );
    }
}

/// Returns the anchors of a page: of its headings, as GitHub and mdBook form them, and its own.
fn anchors(page: &str) -> BTreeSet<String> {
    static OWN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("<a id=\"([^\"]+)\">").expect("a pattern"));
    let text = FENCE.replace_all(page, "");
    let mut seen = BTreeMap::<String, usize>::new();
    let mut found = BTreeSet::new();
    for heading in HEADING.captures_iter(&text) {
        let slug: String = heading[1]
            .trim()
            .to_lowercase()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            })
            .collect();
        let times = seen.entry(slug.clone()).or_default();
        found.insert(if *times == 0 {
            slug
        } else {
            format!("{slug}-{times}")
        });
        *times += 1;
    }
    found.extend(OWN.captures_iter(page).map(|own| own[1].to_owned()));
    found
}

/// Returns the targets of the links of a page, without those to other sites.
fn links(page: &str) -> Vec<String> {
    static LINK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern"));
    static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`\n]*`").expect("a pattern"));
    let text = FENCE.replace_all(page, "");
    // The text of a link may be code, but its target is not.
    let text = CODE.replace_all(&text, "`");
    LINK.captures_iter(&text)
        .map(|link| link[1].to_owned())
        .filter(|link| !link.contains("://"))
        .collect()
}

#[test]
fn links_lead_to_pages_and_headings() {
    let mut pages = pages();
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        pages.insert(name.to_owned(), read(&root().join(name)));
    }
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (path, page) in &pages {
        for link in links(page) {
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let dir = Path::new(path).parent().expect("a directory");
            let target = if file.is_empty() {
                path.clone()
            } else {
                normal(&dir.join(file))
            };
            if !root().join(&target).exists() {
                wrong.push(format!("{path}: {link}: no such file"));
            } else if path.starts_with("docs/") && !target.starts_with("docs/") {
                wrong.push(format!("{path}: {link}: not in the book"));
            } else if !anchor.is_empty()
                && !pages
                    .get(&target)
                    .is_some_and(|page| anchors(page).contains(anchor))
            {
                wrong.push(format!("{path}: {link}: no such heading"));
            }
        }
    }
    assert!(checked > 100, "{checked}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Resolves `..` in a relative path.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.to_str().expect("a path").split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let mut listed: Vec<String> = links(&summary)
        .into_iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    listed.sort();
    let pages: Vec<String> = pages()
        .into_keys()
        .filter(|path| path.starts_with("docs/") && path != "docs/SUMMARY.md")
        .collect();
    assert_eq!(listed, pages);
}
