//! The `[notify]` part of the configuration: how the terminal, the desktop and a program notify the
//! person.

use super::escalation::known_zone;
use super::values::UnusableValues;
use super::webhooks::{self, Notices, Service, Target, Webhook};
use adjutant_core::escalation::QuietHours;
use adjutant_core::request::LinkName;
use serde::Deserialize;

/// How commands on a terminal notify the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifySettings {
    pub bell: bool,
    /// The terminal's own notifications (OSC 9 or OSC 777).
    pub osc: bool,
    pub title: bool,
    /// Hours of each day without bells and notifications. The title stays.
    pub quiet: Option<QuietHours>,
    /// The time zone of the quiet hours. `None`: this machine's.
    pub zone: Option<String>,
}

impl Default for NotifySettings {
    fn default() -> Self {
        Self {
            bell: true,
            osc: true,
            title: true,
            quiet: None,
            zone: None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileNotify {
    bell: Option<bool>,
    osc: Option<bool>,
    title: Option<bool>,
    desktop: Option<bool>,
    command: Option<Vec<String>>,
    quiet: Option<String>,
    zone: Option<String>,
}

/// Reads this part of the file. The desktop and the program are receivers of messages like
/// webhooks.
pub(super) fn read(
    file: FileNotify,
    unusable: &mut UnusableValues,
) -> (NotifySettings, Vec<Webhook>) {
    let FileNotify {
        bell,
        osc,
        title,
        desktop,
        command,
        quiet,
        zone,
    } = file;
    let quiet = quiet.and_then(|text| unusable.check("notify.quiet", QuietHours::parse(&text)));
    let zone = zone.and_then(|name| unusable.check("notify.zone", known_zone(name)));
    let command =
        command.and_then(|argv| unusable.check("notify.command", webhooks::checked_program(argv)));
    let desktop = desktop
        .unwrap_or(false)
        .then(|| ("desktop".to_owned(), Service::Desktop));
    let command = command.map(|argv| (format!("command {}", argv[0]), Service::Command { argv }));
    let receiver = |(key, service)| Webhook {
        key,
        events: webhooks::events_of_templates(),
        allow_private: false,
        target: Target::Notices(Notices {
            service,
            person: LinkName::default(),
            quiet,
            zone: zone.clone(),
            links: true,
        }),
    };
    let receivers = desktop.into_iter().chain(command).map(receiver).collect();
    let built_in = NotifySettings::default();
    let settings = NotifySettings {
        bell: bell.unwrap_or(built_in.bell),
        osc: osc.unwrap_or(built_in.osc),
        title: title.unwrap_or(built_in.title),
        quiet,
        zone,
    };
    (settings, receivers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn desktop_and_program_are_receivers_with_the_same_quiet_hours() {
        let file = toml::from_str("desktop = true\ncommand = [\"/bin/x\", \"{title}\"]\nquiet = \"22:00-07:00\"\nbell = false\n").expect("valid");
        let mut unusable = UnusableValues::default();
        let (settings, receivers) = read(file, &mut unusable);
        assert!(unusable.fields().is_empty() && !settings.bell && settings.osc && settings.title);
        assert_eq!(
            receivers
                .iter()
                .map(|hook| hook.key.as_str())
                .collect::<Vec<_>>(),
            ["desktop", "command /bin/x"]
        );
        for hook in receivers {
            assert!(
                matches!(hook.target, Target::Notices(notices) if notices.quiet == settings.quiet)
            );
        }
    }

    #[test]
    fn invalid_values_are_reported() {
        for (text, field) in [
            ("command = [\"notify-send\"]", "notify.command"),
            ("command = []", "notify.command"),
            ("quiet = \"night\"", "notify.quiet"),
            ("zone = \"Mars/Base\"", "notify.zone"),
        ] {
            let mut unusable = UnusableValues::default();
            read(toml::from_str(text).expect("a table"), &mut unusable);
            assert_eq!(unusable.fields(), [field], "{text}");
        }
        assert!(toml::from_str::<FileNotify>("bel = true").is_err());
    }
}
