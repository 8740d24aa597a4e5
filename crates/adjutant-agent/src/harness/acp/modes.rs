//! Chooses the session mode of an ACP agent: never one that is known to act without asking, by its
//! name or description, unless everything is permitted. Pure: the agent's settings in, the changes
//! out.

use adjutant_core::Permissions;
use serde_json::{Value, json};

/// Maximum number of settings, and of choices of a setting, that are read.
const SETTINGS_MAX: usize = 64;
const CHOICES_MAX: usize = 64;
/// Longest name or description that is read, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// A setting that a client can change, such as the session's mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    by: SettingCall,
    /// It is the session's mode.
    is_mode: bool,
    current: Option<usize>,
    choices: Vec<Choice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SettingCall {
    /// `session/set_mode`.
    Mode,
    /// `session/set_config_option`, of a select with this id.
    Select(String),
    /// `session/set_config_option`, of a boolean with this id.
    Switch(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    id: String,
    nature: Nature,
}

/// Whether a mode asks for permission, judged by its id, name and description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It acts without asking where a profile requires it to ask.
    NeverAsks,
    /// It asks.
    Asking,
    /// It plans or reads, and may hide tools.
    Restricted,
    Unknown,
}

/// A request that changes a setting, without the session's id.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub method: &'static str,
    pub params: Value,
}

/// Whole words in the id or name of a mode that never asks.
const NEVER_ASKS_WORDS: &[&str] = &[
    "yolo",
    "bypass",
    "danger",
    "dangerous",
    "dangerously",
    "unrestricted",
    "unattended",
    "autonomous",
    "autonomously",
    "unsafe",
    "never",
    "skip",
    "full",
    "unlimited",
    "god",
    "smart",
];
/// Parts of the id or name of a mode that never asks, without separators.
const NEVER_ASKS_RUNS: &[&str] = &[
    "bypasspermission",
    "fullaccess",
    "acceptedit",
    "acceptall",
    "allowall",
    "approveall",
    "trustall",
    "dontask",
    "noask",
    "noconfirm",
    "noapproval",
    "workspacewrite",
];
/// Phrases in the description of a mode that never asks.
const NEVER_ASKS_PHRASES: &[&str] = &[
    "without asking",
    "without approval",
    "without confirm",
    "without permission",
    "without prompt",
    "no approval",
    "no confirmation",
    "no permission",
    "never ask",
    "not ask",
    "n't ask",
    "not prompt",
    "n't prompt",
    "full tool access",
    "full access",
    "auto-approv",
    "auto approv",
    "auto-accept",
    "automatically",
    "autonomous",
    "bypass",
    "unrestricted",
    "all tools are allowed",
];
const ASKING_WORDS: &[&str] = &[
    "ask",
    "asks",
    "default",
    "manual",
    "approve",
    "approval",
    "confirm",
    "prompt",
    "interactive",
    "supervised",
    "request",
    "review",
];
const ASKING_PHRASES: &[&str] = &[
    "request permission",
    "requests permission",
    "prompts for",
    "asks for",
    "asks before",
    "ask before",
    "approval required",
    "requires approval",
    "require approval",
    "permission before",
];
/// Phrases in the description of a mode that only answers: in some agents `ask` is such a mode.
const RESTRICTED_PHRASES: &[&str] = &[
    "without making changes",
    "without making any changes",
    "without changing",
    "without modifying",
    "no changes",
    "explanation",
    "answers",
    "answer questions",
];
const RESTRICTED_WORDS: &[&str] = &["plan", "planning", "architect", "chat", "readonly", "read"];

/// Classifies a mode by its id, name and description.
#[must_use]
pub(crate) fn nature(id: &str, name: &str, description: &str) -> Nature {
    // Some agents use URLs as ids; the last part is the mode's name.
    let words_of_id = words(id.rsplit(['#', '/']).next().unwrap_or(id));
    let words_of_name = words(name);
    let says = |known: &[&str]| {
        words_of_id
            .iter()
            .chain(&words_of_name)
            .any(|word| known.contains(&word.as_str()))
    };
    let description = description.to_lowercase();
    let describes = |phrases: &[&str]| phrases.iter().any(|phrase| description.contains(phrase));
    let is_automatic = words_of_id
        .iter()
        .chain(&words_of_name)
        .any(|word| word.starts_with("auto"));
    let runs = [words_of_id.concat(), words_of_name.concat()];
    let has_run = NEVER_ASKS_RUNS
        .iter()
        .any(|run| runs.iter().any(|text| text.contains(run)));
    if is_automatic || has_run || says(NEVER_ASKS_WORDS) || describes(NEVER_ASKS_PHRASES) {
        Nature::NeverAsks
    } else if (says(RESTRICTED_WORDS) || describes(RESTRICTED_PHRASES))
        && !describes(ASKING_PHRASES)
    {
        Nature::Restricted
    } else if says(ASKING_WORDS) || describes(ASKING_PHRASES) {
        Nature::Asking
    } else {
        Nature::Unknown
    }
}

/// Returns the words of a name, in lower case: both `acceptEdits` and `accept-edits` have two.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for c in text.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && was_lower {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Reads the settings in the reply to `session/new`, `session/load` or `session/resume`.
#[must_use]
pub(super) fn settings(result: &Value) -> Vec<Setting> {
    let modes = mode_setting(&result["modes"]);
    let has_modes = modes.is_some();
    let options = result["configOptions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let beside = options
        .iter()
        .take(SETTINGS_MAX)
        .filter_map(option_setting)
        .filter(|setting| !(setting.is_mode && has_modes));
    modes.into_iter().chain(beside).collect()
}

fn mode_setting(modes: &Value) -> Option<Setting> {
    let list = modes["availableModes"].as_array()?;
    let choices: Vec<Choice> = list
        .iter()
        .take(CHOICES_MAX)
        .filter_map(|mode| choice(mode, "id"))
        .collect();
    let current = modes["currentModeId"]
        .as_str()
        .and_then(|id| choices.iter().position(|choice| choice.id == id));
    (!choices.is_empty()).then_some(Setting {
        by: SettingCall::Mode,
        is_mode: true,
        current,
        choices,
    })
}

fn choice(value: &Value, id: &str) -> Option<Choice> {
    let text = |field: &str| {
        value[field]
            .as_str()
            .filter(|text| text.len() <= TEXT_BYTES_MAX)
            .unwrap_or_default()
    };
    let id = value[id].as_str().filter(|id| id.len() <= TEXT_BYTES_MAX)?;
    Some(Choice {
        id: id.to_owned(),
        nature: nature(id, text("name"), text("description")),
    })
}

fn option_setting(option: &Value) -> Option<Setting> {
    let id = option["id"]
        .as_str()
        .filter(|id| id.len() <= TEXT_BYTES_MAX)?;
    let name = option["name"].as_str().unwrap_or_default();
    let about = || [words(id), words(name)].concat();
    let is_mode = option["category"] == "mode" || option["category"].is_null() && id == "mode";
    if option["type"] == "boolean" {
        // The name describes the state when the option is on.
        let on = Choice {
            id: "true".to_owned(),
            nature: nature(id, name, option["description"].as_str().unwrap_or_default()),
        };
        let off = Choice {
            id: "false".to_owned(),
            nature: Nature::Unknown,
        };
        let current = usize::from(option["currentValue"] == true);
        return Some(Setting {
            by: SettingCall::Switch(id.to_owned()),
            is_mode: false,
            current: Some(current),
            choices: vec![off, on],
        });
    }
    let is_about_approval = || {
        about().iter().any(|word| {
            [
                "mode",
                "permission",
                "permissions",
                "approval",
                "approvals",
                "sandbox",
                "autonomy",
            ]
            .contains(&word.as_str())
        })
    };
    if !is_mode && !is_about_approval() {
        return None;
    }
    let list = option["options"].as_array()?;
    // Options may be grouped.
    let flat = list.iter().flat_map(|entry| {
        entry["options"]
            .as_array()
            .map_or(std::slice::from_ref(entry), Vec::as_slice)
    });
    let choices: Vec<Choice> = flat
        .take(CHOICES_MAX)
        .filter_map(|entry| choice(entry, "value"))
        .collect();
    let current = option["currentValue"]
        .as_str()
        .and_then(|id| choices.iter().position(|choice| choice.id == id));
    (!choices.is_empty()).then_some(Setting {
        by: SettingCall::Select(id.to_owned()),
        is_mode,
        current,
        choices,
    })
}

/// Every mode of an agent works without asking.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "each of its modes works without asking ({}), so it is only used with --permissions full",
    .ids.join(", ")
)]
pub(crate) struct NoModeAsks {
    /// The first few of them.
    pub ids: Vec<String>,
}

/// Returns the changes that a profile requires.
///
/// # Errors
/// Each mode of the agent acts without asking.
pub(super) fn choose(
    permissions: Permissions,
    settings: &[Setting],
) -> Result<Vec<Change>, NoModeAsks> {
    let mut changes = Vec::new();
    for setting in settings {
        match setting.best(permissions) {
            Some(at) if Some(at) == setting.current => {}
            Some(at) => changes.push(setting.change(at)),
            None => {
                let ids = setting.choices.iter().map(|choice| choice.id.clone());
                return Err(NoModeAsks {
                    ids: ids.take(8).collect(),
                });
            }
        }
    }
    Ok(changes)
}

/// Returns the current value of the first setting that makes the agent act without asking.
#[must_use]
pub(crate) fn mode_that_never_asks(settings: &[Setting]) -> Option<&str> {
    settings
        .iter()
        .find_map(|setting| {
            setting
                .choices
                .get(setting.current?)
                .filter(|choice| choice.nature == Nature::NeverAsks)
        })
        .map(|c| c.id.as_str())
}

/// Returns whether a mode never asks, judged by the agent's list, or by its id alone if it is not
/// listed.
#[must_use]
pub(crate) fn never_asks(settings: &[Setting], id: &str) -> bool {
    let mut listed = settings
        .iter()
        .filter(|setting| setting.is_mode)
        .flat_map(|setting| &setting.choices);
    let nature = listed
        .find(|choice| choice.id == id)
        .map_or_else(|| nature(id, "", ""), |choice| choice.nature);
    nature == Nature::NeverAsks
}

/// Returns the ids of the session's modes; the current one comes first.
#[must_use]
pub(super) fn ids(settings: &[Setting]) -> Vec<&str> {
    let Some(setting) = settings.iter().find(|setting| setting.is_mode) else {
        return Vec::new();
    };
    let current = setting.current.and_then(|at| setting.choices.get(at));
    let others = setting
        .choices
        .iter()
        .filter(|choice| Some(*choice) != current);
    current
        .into_iter()
        .chain(others)
        .map(|choice| choice.id.as_str())
        .collect()
}

/// Returns the mode for a profile, or `None` if the agent has no modes.
///
/// # Errors
/// As [`choose`].
pub(crate) fn mode_for(
    permissions: Permissions,
    settings: &[Setting],
) -> Result<Option<&str>, NoModeAsks> {
    choose(permissions, settings)?;
    let Some(setting) = settings.iter().find(|setting| setting.is_mode) else {
        return Ok(None);
    };
    Ok(setting
        .best(permissions)
        .map(|at| setting.choices[at].id.as_str()))
}

impl Setting {
    fn best(&self, permissions: Permissions) -> Option<usize> {
        let first = |nature: Nature| {
            self.choices
                .iter()
                .position(|choice| choice.nature == nature)
        };
        let current = self.current.map(|at| (at, self.choices[at].nature));
        if permissions == Permissions::Full {
            // Requests of a mode that asks are all allowed. A restricted mode could hide tools.
            return match current {
                Some((at, Nature::Restricted)) if self.is_mode => first(Nature::Asking)
                    .or(first(Nature::Unknown))
                    .or(Some(at)),
                Some((at, _)) => Some(at),
                None => first(Nature::Asking).or(first(Nature::Unknown)).or(Some(0)),
            };
        }
        match current {
            Some((at, Nature::Asking)) => Some(at),
            // Other settings stay unchanged unless they are known to be wrong.
            Some((at, Nature::Unknown | Nature::Restricted)) if !self.is_mode => Some(at),
            Some((at, Nature::Unknown)) => first(Nature::Asking).or(Some(at)),
            Some((at, Nature::Restricted)) if permissions == Permissions::Read => {
                first(Nature::Asking).or(Some(at))
            }
            _ => first(Nature::Asking)
                .or(first(Nature::Unknown))
                .or(first(Nature::Restricted)),
        }
    }

    fn change(&self, at: usize) -> Change {
        let id = &self.choices[at].id;
        let (method, params) = match &self.by {
            SettingCall::Mode => ("session/set_mode", json!({ "modeId": id })),
            SettingCall::Select(config) => (
                "session/set_config_option",
                json!({ "configId": config, "value": id }),
            ),
            SettingCall::Switch(config) => (
                "session/set_config_option",
                json!({ "configId": config, "type": "boolean", "value": id == "true" }),
            ),
        };
        Change { method, params }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(current: &str, all: &[(&str, &str, &str)]) -> Value {
        let list: Vec<Value> = all.iter().map(|(id, name, description)| json!({"id": id, "name": name, "description": description})).collect();
        json!({"modes": {"currentModeId": current, "availableModes": list}})
    }

    fn chosen(permissions: Permissions, result: &Value) -> Result<Option<String>, NoModeAsks> {
        let changes = choose(permissions, &settings(result))?;
        Ok(changes.first().map(|change| {
            change.params["modeId"]
                .as_str()
                .or(change.params["value"].as_str())
                .expect("an id")
                .to_owned()
        }))
    }

    #[test]
    fn mode_is_classified_by_description_or_id() {
        let listed = settings(&modes(
            "a",
            &[
                ("a", "A", ""),
                ("b", "B", "Edits without asking"),
                ("auto", "Auto", ""),
            ],
        ));
        assert!(
            never_asks(&listed, "b")
                && never_asks(&listed, "auto")
                && never_asks(&listed, "yolo")
                && never_asks(&[], "bypassPermissions")
        );
        assert!(
            !never_asks(&listed, "a")
                && !never_asks(&listed, "unlisted")
                && !never_asks(&[], "plan")
        );
    }

    #[test]
    fn modes_of_known_agents_are_classified() {
        for (id, name, description) in [
            ("yolo", "YOLO", ""),
            ("bypassPermissions", "Bypass Permissions", ""),
            ("acceptEdits", "Accept Edits", ""),
            ("autoEdit", "Auto Edit", "Auto-approve edit tools"),
            ("auto-edit", "Auto Edit", ""),
            (
                "auto",
                "Default",
                "Edits and runs commands in the workspace",
            ),
            ("full-access", "Full Access", ""),
            ("smart_approve", "smart_approve", ""),
            (
                "https://agentclientprotocol.com/protocol/session-modes#autopilot",
                "Autopilot",
                "",
            ),
            ("dontAsk", "Don't Ask", ""),
            (
                "code",
                "Code",
                "Write and modify code with full tool access",
            ),
            ("run", "Run", "Executes commands without asking"),
            ("x", "Never ask", ""),
        ] {
            assert_eq!(nature(id, name, description), Nature::NeverAsks, "{id}");
        }
        for (id, name, description) in [
            ("default", "Default", "Prompts for approval"),
            ("approve", "approve", ""),
            ("ask", "Ask", "Request permission before making any changes"),
            (
                "read-only",
                "Read Only",
                "Reads files; approval required to edit files or run commands",
            ),
            ("manual", "Manual", ""),
        ] {
            assert_eq!(nature(id, name, description), Nature::Asking, "{id}");
        }
        for (id, description) in [
            (
                "ask",
                "Get answers and explanations without making changes to the codebase",
            ),
            ("ask", "Answers questions about the code"),
            ("default", "Explore the project without modifying files"),
        ] {
            assert_eq!(
                nature(id, id, description),
                Nature::Restricted,
                "{id}: {description}"
            );
        }
        for id in ["plan", "architect", "chat", "planMode"] {
            assert_eq!(nature(id, id, ""), Nature::Restricted, "{id}");
        }
        for id in [
            "build",
            "agent",
            "https://agentclientprotocol.com/protocol/session-modes#agent",
            "code",
        ] {
            assert_eq!(nature(id, id, ""), Nature::Unknown, "{id}");
        }
    }

    #[test]
    fn mode_that_asks_is_kept_or_chosen() {
        use Permissions::{Edit, Full, Read};
        let gemini = |current| {
            modes(
                current,
                &[
                    ("default", "Default", ""),
                    ("autoEdit", "Auto Edit", ""),
                    ("yolo", "YOLO", ""),
                    ("plan", "Plan", ""),
                ],
            )
        };
        for permissions in [Read, Edit] {
            assert_eq!(chosen(permissions, &gemini("default")), Ok(None));
            for current in ["autoEdit", "yolo", "no such mode"] {
                assert_eq!(
                    chosen(permissions, &gemini(current))
                        .as_ref()
                        .map(Option::as_deref),
                    Ok(Some("default")),
                    "{current}"
                );
            }
        }
        assert_eq!(chosen(Full, &gemini("yolo")), Ok(None));
        assert_eq!(
            chosen(Full, &gemini("plan")).as_ref().map(Option::as_deref),
            Ok(Some("default"))
        );
        let opencode = modes("build", &[("build", "build", ""), ("plan", "plan", "")]);
        assert_eq!(
            (chosen(Read, &opencode), chosen(Edit, &opencode)),
            (Ok(None), Ok(None))
        );
        let documented = modes(
            "code",
            &[
                ("ask", "Ask", "Request permission before making any changes"),
                ("architect", "Architect", ""),
                (
                    "code",
                    "Code",
                    "Write and modify code with full tool access",
                ),
            ],
        );
        assert_eq!(
            chosen(Edit, &documented).as_ref().map(Option::as_deref),
            Ok(Some("ask"))
        );
        // Kilo's `ask` hides every tool that writes, and Adjutant's.
        let kilo = modes(
            "code",
            &[
                (
                    "ask",
                    "Ask",
                    "Get answers and explanations without making changes to the codebase",
                ),
                ("code", "Code", ""),
            ],
        );
        assert_eq!(
            (
                chosen(Read, &kilo),
                chosen(Edit, &kilo),
                chosen(Full, &kilo)
            ),
            (Ok(None), Ok(None), Ok(None))
        );
        assert_eq!(
            (
                chosen(Edit, &json!({})),
                chosen(Edit, &json!({"modes": null, "configOptions": null}))
            ),
            (Ok(None), Ok(None))
        );
    }

    #[test]
    fn agent_without_a_mode_that_asks_requires_full() {
        let reckless = modes("yolo", &[("yolo", "YOLO", ""), ("auto", "Auto", "")]);
        assert!(
            chosen(Permissions::Edit, &reckless).is_err_and(|none| none.ids == ["yolo", "auto"])
        );
        assert_eq!(chosen(Permissions::Full, &reckless), Ok(None));
        let with_plan = modes("yolo", &[("yolo", "YOLO", ""), ("plan", "Plan", "")]);
        assert_eq!(
            chosen(Permissions::Read, &with_plan)
                .as_ref()
                .map(Option::as_deref),
            Ok(Some("plan"))
        );
    }

    #[test]
    fn options_are_modes_too() {
        let select = |id: &str, category: Option<&str>, current: &str, options: Value| json!({"id": id, "name": id, "category": category, "type": "select", "currentValue": current, "options": options});
        let values = json!([{"value": "auto", "name": "Auto"}, {"value": "ask", "name": "Ask"}]);
        let result =
            json!({"configOptions": [select("mode", Some("mode"), "auto", values.clone())]});
        let changes = choose(Permissions::Edit, &settings(&result)).expect("one asks");
        assert_eq!(
            changes,
            [Change {
                method: "session/set_config_option",
                params: json!({"configId": "mode", "value": "ask"})
            }]
        );
        // Grouped, and other than the mode.
        let grouped = json!([{"group": "g", "name": "G", "options": values}]);
        let result = json!({"configOptions": [select("approval_policy", None, "auto", grouped)]});
        assert_eq!(
            chosen(Permissions::Edit, &result)
                .as_ref()
                .map(Option::as_deref),
            Ok(Some("ask"))
        );
        // The name of a model is not a mode.
        let model = json!({"configOptions": [select("model", Some("model"), "auto", json!([{"value": "auto", "name": "Auto"}]))]});
        assert_eq!(chosen(Permissions::Edit, &model), Ok(None));
        let switch = |on: bool| json!({"configOptions": [{"id": "auto_approve", "name": "Auto-approve", "type": "boolean", "currentValue": on}]});
        let changes =
            choose(Permissions::Read, &settings(&switch(true))).expect("it can be turned off");
        assert_eq!(
            changes[0].params,
            json!({"configId": "auto_approve", "type": "boolean", "value": false})
        );
        assert_eq!(
            choose(Permissions::Read, &settings(&switch(false))),
            Ok(Vec::new())
        );
        assert_eq!(
            choose(Permissions::Full, &settings(&switch(true))),
            Ok(Vec::new())
        );
    }

    #[test]
    fn invalid_list_entries_are_ignored() {
        for result in [
            json!({"modes": {"availableModes": "x"}}),
            json!({"modes": {"availableModes": [1, {"id": 2}, {}]}}),
            json!({"modes": [], "configOptions": {}}),
            json!({"configOptions": [1, {"id": "mode"}, {"id": "mode", "options": 3}, {"id": "mode", "options": [[1]]}]}),
        ] {
            assert_eq!(
                choose(Permissions::Edit, &settings(&result)),
                Ok(Vec::new()),
                "{result}"
            );
        }
    }
}
