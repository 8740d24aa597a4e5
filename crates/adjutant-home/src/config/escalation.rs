//! The `[escalation]` part of the configuration.

use super::values::UnusableValues;
use adjutant_core::escalation::{EscalationStep, QuietHours};
use adjutant_core::units::duration;
use serde::Deserialize;

const PEOPLE_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 100;
/// The name of the person where none is configured.
const PERSON: &str = "person";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEscalation {
    after: Option<String>,
    #[serde(default)]
    people: Vec<FilePerson>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePerson {
    name: String,
    after: Option<String>,
    quiet: Option<String>,
    zone: Option<String>,
}

/// Reads this part of the file: the people in their order. Invalid values are reported.
pub(super) fn read(file: FileEscalation, unusable: &mut UnusableValues) -> Vec<EscalationStep> {
    let after_ms = file
        .after
        .as_deref()
        .and_then(|text| unusable.check("escalation.after", duration::parse(text)));
    if file.people.len() > PEOPLE_MAX {
        unusable.report("escalation.people", format!("at most {PEOPLE_MAX}"));
        return Vec::new();
    }
    if file.people.is_empty() {
        return after_ms
            .map(|after_ms| EscalationStep {
                name: PERSON.to_owned(),
                after_ms,
                quiet: None,
                zone: None,
            })
            .into_iter()
            .collect();
    }
    let mut steps: Vec<EscalationStep> = Vec::new();
    for (
        place,
        FilePerson {
            name,
            after,
            quiet,
            zone,
        },
    ) in file.people.into_iter().enumerate()
    {
        let field = |key: &str| format!("escalation.people[{place}].{key}");
        if name.trim().is_empty()
            || name.len() > NAME_BYTES_MAX
            || name.chars().any(char::is_control)
        {
            unusable.report(
                field("name"),
                format!("use 1 to {NAME_BYTES_MAX} bytes without control characters"),
            );
        } else if steps.iter().any(|other| other.name == name) {
            unusable.report(field("name"), format!("{name:?} is listed twice"));
        }
        let after_ms = match after {
            Some(text) => unusable.check(&field("after"), duration::parse(&text)),
            None if file.after.is_some() => after_ms,
            None => {
                unusable.report(
                    field("after"),
                    "is missing: write the time before the escalation, such as \"10m\"",
                );
                None
            }
        };
        let quiet =
            quiet.and_then(|text| unusable.check(&field("quiet"), QuietHours::parse(&text)));
        let zone = zone.and_then(|name| unusable.check(&field("zone"), known_zone(name)));
        let Some(after_ms) = after_ms else { continue };
        if steps
            .last()
            .is_some_and(|before| before.after_ms > after_ms)
        {
            unusable.report(field("after"), "is shorter than that of the person before: list people in the order of their times");
        }
        steps.push(EscalationStep {
            name,
            after_ms,
            quiet,
            zone,
        });
    }
    steps
}

/// A name that is no time zone of this machine.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} is not a time zone of this machine: write a name such as Europe/Berlin or UTC")]
pub(super) struct UnknownZone {
    name: String,
    source: jiff::Error,
}

/// Checks that the machine knows a time zone.
pub(super) fn known_zone(name: String) -> Result<String, UnknownZone> {
    match jiff::tz::TimeZone::get(&name) {
        Ok(_) => Ok(name),
        Err(source) => Err(UnknownZone { name, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<EscalationStep>, String) {
        let mut unusable = UnusableValues::default();
        let steps = read(toml::from_str(text).expect("TOML"), &mut unusable);
        (steps, format!("{unusable:?}"))
    }

    #[test]
    fn people_have_an_order() {
        let (steps, problems) = parsed(
            "after = \"5m\"\npeople = [{ name = \"anna\" }, { name = \"ben\", after = \"1h\", quiet = \"22:00-07:00\" }]",
        );
        assert_eq!(problems, "UnusableValues([])");
        assert_eq!(
            steps
                .iter()
                .map(|step| (step.name.as_str(), step.after_ms))
                .collect::<Vec<_>>(),
            [("anna", 300_000), ("ben", 3_600_000)]
        );
        assert_eq!(
            parsed("after = \"5m\"")
                .0
                .first()
                .map(|step| step.name.clone())
                .as_deref(),
            Some("person")
        );
        assert!(parsed("").0.is_empty(), "no escalation");
        for (text, problem) in [
            ("people = [{ name = \"a\" }]", "is missing"),
            (
                "people = [{ name = \"a\", after = \"2m\" }, { name = \"b\", after = \"1m\" }]",
                "shorter than that of the person before",
            ),
            (
                "people = [{ name = \"a\", after = \"1m\" }, { name = \"a\", after = \"2m\" }]",
                "is listed twice",
            ),
            (
                "people = [{ name = \" \", after = \"1m\" }]",
                "use 1 to 100",
            ),
            (
                "people = [{ name = \"a\", after = \"soon\" }]",
                "is not a duration",
            ),
            (
                "people = [{ name = \"a\", after = \"1m\", quiet = \"night\" }]",
                "is not a time range",
            ),
            (
                "people = [{ name = \"a\", after = \"1m\", quiet = \"22:00-07:00\", zone = \"Mars/Base\" }]",
                "is not a time zone of this machine",
            ),
            (
                "people = [{ name = \"a\", after = \"1m\", quiet = \"22:00-07:00\", zone = \"../../etc/passwd\" }]",
                "is not a time zone of this machine",
            ),
            (
                "people = [{ name = \"a\", after = \"1m\", quiet = \"22:00-07:00\", zone = \"\" }]",
                "is not a time zone of this machine",
            ),
        ] {
            assert!(
                parsed(text).1.contains(problem),
                "{text}: {}",
                parsed(text).1
            );
        }
    }
}
