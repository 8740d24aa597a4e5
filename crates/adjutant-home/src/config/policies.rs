//! The `[[policies]]` part of the configuration.

use super::error::{ConfigError, take_file};
use super::problems;
use super::values::UnusableValues;
use adjutant_core::Permissions;
use adjutant_core::policy::{
    CommandPattern, Conditions, HostPattern, PathPattern, Policy, PolicyDecision, PolicyName,
    Wildcard,
};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::Path;

const POLICIES_MAX: usize = 256;
/// Maximum number of alternatives of one condition, and the length of each.
const ALTERNATIVES_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePolicy {
    name: String,
    decision: String,
    /// Covers every request.
    #[serde(default)]
    any: bool,
    #[serde(default)]
    agent: Texts,
    #[serde(default)]
    tool: Texts,
    #[serde(default)]
    profile: Texts,
    #[serde(default)]
    risk: Texts,
    #[serde(default)]
    path: Texts,
    #[serde(default)]
    command: Texts,
    #[serde(default)]
    host: Texts,
    reason: Option<String>,
}

/// The policies of a repository's file, and the directory of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryPolicies {
    pub directory: String,
    /// The text of the file, or why it cannot be read.
    pub text: Result<String, String>,
    /// Its policies that allow do not count: the run works elsewhere.
    pub only_narrows: bool,
}

/// The format of a repository's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RepositoryFile {
    #[serde(default)]
    policies: Vec<FilePolicy>,
}

/// Parses the policies of a repository's file, named `repo.NAME`, or returns its problem.
///
/// # Errors
/// The text is not valid.
pub fn policies_of_repository(text: &str) -> Result<Vec<Policy>, ConfigError> {
    let path = Path::new(".adjutant.toml");
    let mut structure = problems::read::<RepositoryFile>(text);
    let mut file = take_file(&mut structure, path)?;
    for policy in &mut file.policies {
        policy.name.insert_str(0, "repo.");
    }
    let mut unusable = UnusableValues::default();
    let policies = read(file.policies, &mut unusable);
    unusable
        .into_error(path, text, &structure)
        .map_or(Ok(policies), Err)
}

/// A text, or a list of alternatives.
#[derive(Debug, Default, Serialize)]
struct Texts(Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = items.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Reads this part of the file. An invalid policy is reported.
pub(super) fn read(files: Vec<FilePolicy>, unusable: &mut UnusableValues) -> Vec<Policy> {
    if files.len() > POLICIES_MAX {
        unusable.report("policies", format!("at most {POLICIES_MAX}"));
        return Vec::new();
    }
    let mut policies: Vec<Policy> = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        if let Some(policy) = read_one(&format!("policies[{index}]"), file, &policies, unusable) {
            policies.push(policy);
        }
    }
    policies
}

fn read_one(
    place: &str,
    file: FilePolicy,
    others: &[Policy],
    unusable: &mut UnusableValues,
) -> Option<Policy> {
    let FilePolicy {
        name,
        decision,
        any,
        agent,
        tool,
        profile,
        risk,
        path,
        command,
        host,
        reason,
    } = file;
    let field = |key: &str| format!("{place}.{key}");
    let is_used = others.iter().any(|other| other.name.as_str() == name);
    let name = match PolicyName::parse(&name) {
        Ok(_) if is_used => Err(format!("{name:?} is the name of another policy")),
        parsed => parsed.map_err(|error| error.to_string()),
    };
    let name = unusable.check(&field("name"), name);
    let known = PolicyDecision::from_word(&decision)
        .ok_or_else(|| format!("unknown decision {decision:?}: use allow, deny or ask"));
    let decision = unusable.check(&field("decision"), known);
    let reason = reason
        .map(|reason| reason.trim().to_owned())
        .filter(|reason| !reason.is_empty());
    let is_long = |reason: &String| reason.len() > TEXT_BYTES_MAX;
    if reason.as_ref().is_some_and(is_long) {
        unusable.report(field("reason"), format!("at most {TEXT_BYTES_MAX} bytes"));
    }
    let texts = FileConditions {
        agent,
        tool,
        profile,
        risk,
        path,
        command,
        host,
    };
    // An invalid condition is a condition, and is reported by itself.
    let has_conditions = texts.are_given();
    let conditions = texts.read(place, decision == Some(PolicyDecision::Allow), unusable);
    if any && has_conditions {
        unusable.report(
            field("any"),
            "covers every request: remove the other conditions",
        );
    } else if !any && !has_conditions {
        unusable.report(place, "has no condition: give agent, tool, profile, risk, path, command or host, or any = true to cover every request");
    }
    Some(Policy {
        name: name?,
        decision: decision?,
        conditions,
        reason,
    })
}

/// The conditions of a policy in the file.
struct FileConditions {
    agent: Texts,
    tool: Texts,
    profile: Texts,
    risk: Texts,
    path: Texts,
    command: Texts,
    host: Texts,
}

impl FileConditions {
    fn are_given(&self) -> bool {
        let Self {
            agent,
            tool,
            profile,
            risk,
            path,
            command,
            host,
        } = self;
        [agent, tool, profile, risk, path, command, host]
            .iter()
            .any(|texts| !texts.0.is_empty())
    }

    /// Parses the conditions of the policy at `place`. Invalid ones are reported, and commands that
    /// a policy must not allow.
    fn read(self, place: &str, allows: bool, unusable: &mut UnusableValues) -> Conditions {
        let field = |key: &str| format!("{place}.{key}");
        let wildcard = |text: &str| {
            if text.is_empty() {
                Err("is empty")
            } else {
                Ok(Wildcard::new(text))
            }
        };
        let permissions = |text: &str| {
            Permissions::from_word(text)
                .ok_or_else(|| format!("unknown profile {text:?}: use read, edit or full"))
        };
        let pattern = |text: &str| {
            let pattern = CommandPattern::parse(text)?;
            if allows {
                pattern.check_allows().map(|()| pattern)
            } else {
                Ok(pattern)
            }
        };
        Conditions {
            agents: all(&field("agent"), self.agent, unusable, wildcard),
            tools: all(&field("tool"), self.tool, unusable, wildcard),
            profiles: all(&field("profile"), self.profile, unusable, permissions),
            risks: all(&field("risk"), self.risk, unusable, wildcard),
            paths: all(&field("path"), self.path, unusable, PathPattern::parse),
            commands: all(&field("command"), self.command, unusable, pattern),
            hosts: all(&field("host"), self.host, unusable, HostPattern::parse),
        }
    }
}

/// Parses the alternatives of a condition. A condition without alternatives is reported: it would
/// hold for everything.
fn all<T, E: fmt::Display>(
    field: &str,
    texts: Texts,
    unusable: &mut UnusableValues,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Vec<T> {
    if texts.0.len() > ALTERNATIVES_MAX {
        unusable.report(field, format!("at most {ALTERNATIVES_MAX} alternatives"));
        return Vec::new();
    }
    let mut parsed = Vec::new();
    for text in &texts.0 {
        if text.len() > TEXT_BYTES_MAX {
            unusable.report(field, format!("at most {TEXT_BYTES_MAX} bytes"));
        } else {
            parsed.extend(unusable.check(field, parse(text)));
        }
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let file: FilePolicy = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        read(vec![file], &mut unusable);
        format!("{unusable:?}")
    }

    #[test]
    fn policy_is_read_with_its_alternatives() {
        let text = "name = \"tests\"\ndecision = \"allow\"\nagent = \"claude\"\ncommand = [\"cargo test -p *\", \"cargo check\"]\npath = \"src/**\"\n";
        let file: FilePolicy = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        let [policy] = &read(vec![file], &mut unusable)[..] else {
            panic!("one policy")
        };
        assert!(unusable.fields().is_empty(), "{unusable:?}");
        assert_eq!(
            (
                policy.conditions.commands.len(),
                policy.conditions.agents.len(),
                policy.conditions.paths.len()
            ),
            (2, 1, 1)
        );
    }

    #[test]
    fn problems_of_a_repositorys_file_are_lines() {
        let problem = policies_of_repository(
            "[[policies]]\nname = \"x\"\ndecision = 1\nany = true\n[other]\n",
        )
        .expect_err("it is invalid")
        .to_string();
        assert!(
            problem.starts_with(".adjutant.toml: 2 problems: line 3: ") && !problem.contains('\n'),
            "{problem}"
        );
        assert!(
            policies_of_repository("[[policies]\n").is_err_and(|problem| {
                let problem = problem.to_string();
                problem.starts_with(".adjutant.toml: ") && problem.contains("line 1: ")
            })
        );
    }

    #[test]
    fn unusable_policy_is_reported() {
        for (text, problem) in [
            ("decision = \"allow\"", "has no condition"),
            ("decision = \"allow\"\ncommand = []", "has no condition"),
            (
                "decision = \"allow\"\nany = true\ntool = \"Bash\"",
                "remove the other conditions",
            ),
            (
                "decision = \"permit\"\nany = true",
                "use allow, deny or ask",
            ),
            (
                "decision = \"allow\"\ncommand = \"git status; x\"",
                "not one simple command",
            ),
            (
                "decision = \"allow\"\ncommand = \"cargo test **\"",
                "\\\"cargo\\\" has options that run other programs",
            ),
            (
                "decision = \"allow\"\ncommand = \"python3 *\"",
                "\\\"python3\\\" runs other programs",
            ),
            (
                "decision = \"allow\"\ncommand = \"bash -c *\"",
                "runs other programs",
            ),
            (
                "decision = \"allow\"\ncommand = \"* x\"",
                "must name the program",
            ),
            ("decision = \"deny\"\npath = \"~/x\"", "not expanded"),
            ("decision = \"deny\"\nhost = \"https://x\"", "is not a host"),
            (
                "decision = \"deny\"\nprofile = \"write\"",
                "unknown profile",
            ),
            ("decision = \"deny\"\ntool = \"\"", "is empty"),
        ] {
            let found = problems(&format!("name = \"x\"\n{text}\n"));
            assert!(found.contains(problem), "{text}: {found}");
        }
        for invalid in ["path = \"../x\"", "host = \"https://x\"", "command = \"\""] {
            let found = problems(&format!("name = \"x\"\ndecision = \"deny\"\n{invalid}\n"));
            assert!(
                !found.contains("has no condition") && found != "UnusableValues([])",
                "{invalid}: {found}"
            );
        }
        assert!(
            problems("name = \"a b\"\ndecision = \"deny\"\nany = true\n")
                .contains("not a policy's name")
        );
        assert!(
            problems("name = \"x\"\ndecision = \"deny\"\nany = true\n") == "UnusableValues([])"
        );
        assert!(
            toml::from_str::<FilePolicy>("name = \"x\"\ndecision = \"deny\"\ntools = \"Bash\"\n")
                .is_err(),
            "an unknown key"
        );
        assert!(
            toml::from_str::<FilePolicy>("name = \"x\"\ndecision = \"deny\"\ntool = 1\n")
                .is_err_and(|error| error.to_string().contains("a string or a list of strings"))
        );
    }
}
