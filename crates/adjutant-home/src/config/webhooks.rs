//! The `[[webhooks]]` part of the configuration: receivers of signed events, and services that
//! notify a person.

use super::escalation::known_zone;
use super::gate::{FileKey, KeySource, source};
use super::values::UnusableValues;
use adjutant_core::escalation::QuietHours;
use adjutant_core::request::LinkName;
use adjutant_core::{EventKind, words};
use http::Uri;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// The event of a new chat entry. All other events are those of the history.
const CHAT_MESSAGE: &str = "chat.message";
/// The default events of a webhook.
const EVENTS_DEFAULT: [&str; 9] = [
    "run.finished",
    "run.stopped",
    "run.held",
    "request.asked",
    "request.escalated",
    "request.answered",
    "request.expired",
    "request.withdrawn",
    CHAT_MESSAGE,
];
/// The events of which a template can notify a person.
const EVENTS_OF_TEMPLATES: [EventKind; 5] = [
    EventKind::RequestAsked,
    EventKind::RequestEscalated,
    EventKind::RunStopped,
    EventKind::RunHeld,
    EventKind::RunFinished,
];
const WEBHOOKS_MAX: usize = 16;
const URL_BYTES_MAX: usize = 2_048;
const TELEGRAM: &str = "https://api.telegram.org";
const SENDMAIL: [&str; 2] = ["/usr/sbin/sendmail", "-i"];
const ARGUMENTS_MAX: usize = 16;
const CHAT_BYTES_MAX: usize = 64;
const MAIL_BYTES_MAX: usize = 254;

/// A configured webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Identifies the webhook in the outbox: its address, or for a service without one its name and
    /// recipient.
    pub key: String,
    pub events: Vec<String>,
    /// Allow addresses on this machine and in private networks.
    pub allow_private: bool,
    pub target: Target,
}

/// What a webhook delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every event, signed with the secret in the file at this absolute path.
    Signed { url: Uri, secret_file: PathBuf },
    /// What needs a person, as messages.
    Notices(Notices),
}

/// Messages to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notices {
    pub service: Service,
    /// Answers with a link of these messages are recorded under this name.
    pub person: LinkName,
    pub quiet: Option<QuietHours>,
    /// The time zone of the quiet hours. `None`: the hub's.
    pub zone: Option<String>,
    /// Messages about open requests have a link to answer them, if the hub has a public address.
    pub links: bool,
}

/// A service that delivers messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    Ntfy {
        url: Address,
        token: Option<KeySource>,
    },
    Slack {
        url: Address,
    },
    Discord {
        url: Address,
    },
    Telegram {
        url: Uri,
        token: KeySource,
        chat: String,
    },
    Email {
        to: String,
        from: Option<String>,
        sendmail: Vec<String>,
    },
    /// The desktop of `[notify]`.
    Desktop,
    /// The program of `[notify]`.
    Command {
        argv: Vec<String>,
    },
}

/// The address of a service, which can itself be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Plain(Uri),
    Secret(KeySource),
}

impl Service {
    /// Returns the value of `template`, or the key in `[notify]`.
    #[must_use]
    pub fn template(&self) -> &'static str {
        match self {
            Self::Ntfy { .. } => "ntfy",
            Self::Slack { .. } => "slack",
            Self::Discord { .. } => "discord",
            Self::Telegram { .. } => "telegram",
            Self::Email { .. } => "email",
            Self::Desktop => "desktop",
            Self::Command { .. } => "command",
        }
    }
}

impl Webhook {
    /// Returns the files with its secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let of = |source: &KeySource| match source {
            KeySource::File(file) => Some(file.clone()),
            KeySource::Env(_) => None,
        };
        let of_address = |address: &Address| match address {
            Address::Plain(_) => None,
            Address::Secret(source) => of(source),
        };
        let files = match &self.target {
            Target::Signed {
                url: _,
                secret_file,
            } => [Some(secret_file.clone()), None],
            Target::Notices(notices) => match &notices.service {
                Service::Ntfy { url, token } => [of_address(url), token.as_ref().and_then(of)],
                Service::Slack { url } | Service::Discord { url } => [of_address(url), None],
                Service::Telegram { token, .. } => [of(token), None],
                Service::Email { .. } | Service::Desktop | Service::Command { .. } => [None, None],
            },
        };
        files.into_iter().flatten()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWebhook {
    template: Option<String>,
    url: Option<String>,
    url_from: Option<FileKey>,
    secret_file: Option<PathBuf>,
    events: Option<Vec<String>>,
    #[serde(default)]
    allow_private: bool,
    token: Option<FileKey>,
    chat: Option<String>,
    to: Option<String>,
    from: Option<String>,
    sendmail: Option<Vec<String>>,
    person: Option<String>,
    quiet: Option<String>,
    zone: Option<String>,
    links: Option<bool>,
}

/// A value of `template`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Template {
    Ntfy,
    Slack,
    Discord,
    Telegram,
    Email,
}

words!(Template {
    Ntfy = "ntfy",
    Slack = "slack",
    Discord = "discord",
    Telegram = "telegram",
    Email = "email",
});

impl Template {
    /// Returns whether an entry with this template can have a key. The keys of all templates are
    /// not listed.
    fn takes(self, key: &str) -> bool {
        match key {
            "url" => self != Self::Email,
            "url_from" => matches!(self, Self::Ntfy | Self::Slack | Self::Discord),
            "token" => matches!(self, Self::Ntfy | Self::Telegram),
            "chat" => self == Self::Telegram,
            "to" | "from" | "sendmail" => self == Self::Email,
            _ => true,
        }
    }
}

/// Why a value of a webhook cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookProblem {
    #[error("use an address such as https://example.org/hook")]
    NotAddress,
    #[error("must not contain a user name or password")]
    HasUser,
    #[error("use https: http is for your own network, with allow_private = true")]
    PlainText,
    #[error("use https")]
    NotHttps,
    #[error("use the address of a topic, such as https://ntfy.sh/my-topic")]
    NoTopic,
    #[error("use the id of a chat, such as \"123456\", or \"@channel\"")]
    Chat,
    #[error("use a plain address such as anna@example.org")]
    Mailbox,
    #[error(
        "use a list with the absolute path of a program and its arguments, such as [\"/usr/sbin/sendmail\", \"-i\"]"
    )]
    Program,
    #[error(
        "no event {0:?}: there are {known}, {CHAT_MESSAGE}",
        known = EventKind::ALL.map(EventKind::word).join(", ")
    )]
    UnknownEvent(String),
}

impl FileWebhook {
    /// Returns the keys that are given and that some webhooks cannot have.
    fn given(&self) -> impl Iterator<Item = &'static str> + use<> {
        let Self {
            template: _,
            url,
            url_from,
            secret_file,
            events,
            allow_private: _,
            token,
            chat,
            to,
            from,
            sendmail,
            person,
            quiet,
            zone,
            links,
        } = self;
        [
            ("secret_file", secret_file.is_some()),
            ("events", events.is_some()),
            ("url", url.is_some()),
            ("url_from", url_from.is_some()),
            ("token", token.is_some()),
            ("chat", chat.is_some()),
            ("to", to.is_some()),
            ("from", from.is_some()),
            ("sendmail", sendmail.is_some()),
            ("person", person.is_some()),
            ("quiet", quiet.is_some()),
            ("zone", zone.is_some()),
            ("links", links.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_given)| is_given.then_some(key))
    }
}

/// Reads this part of the file. An invalid webhook is reported.
pub(super) fn read(
    files: Vec<FileWebhook>,
    config: &Path,
    unusable: &mut UnusableValues,
) -> Vec<Webhook> {
    if files.len() > WEBHOOKS_MAX {
        unusable.report("webhooks", format!("at most {WEBHOOKS_MAX}"));
        return Vec::new();
    }
    let mut webhooks: Vec<Webhook> = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        let mut entry = Entry {
            index,
            config,
            unusable,
        };
        let read = match file.template.clone() {
            None => entry.signed(file),
            Some(template) => entry.notices(&template, file),
        };
        let Some(webhook) = read else { continue };
        if webhooks.iter().any(|other| other.key == webhook.key) {
            let field = if matches!(webhook.target, Target::Notices(_)) {
                "template"
            } else {
                "url"
            };
            entry.report(field, "is listed twice: use one entry for each receiver");
        } else {
            webhooks.push(webhook);
        }
    }
    webhooks
}

/// One entry of the file.
struct Entry<'a> {
    index: usize,
    config: &'a Path,
    unusable: &'a mut UnusableValues,
}

impl Entry<'_> {
    fn field(&self, key: &str) -> String {
        format!("webhooks[{}].{key}", self.index)
    }

    fn report(&mut self, key: &str, problem: &str) {
        let field = self.field(key);
        self.unusable.report(field, problem);
    }

    fn check<T>(&mut self, key: &str, read: Result<T, impl fmt::Display>) -> Option<T> {
        let field = self.field(key);
        self.unusable.check(&field, read)
    }

    fn required<T>(&mut self, key: &str, value: Option<T>, problem: &str) -> Option<T> {
        if value.is_none() {
            self.report(key, problem);
        }
        value
    }

    fn signed(&mut self, file: FileWebhook) -> Option<Webhook> {
        let is_common = |key: &&str| matches!(*key, "secret_file" | "events" | "url");
        for key in file.given().filter(|key| !is_common(key)) {
            self.report(key, "is for a webhook with a template");
        }
        let allow_private = file.allow_private;
        let secret_file = self.required(
            "secret_file",
            file.secret_file,
            "missing: the file with the signing key",
        );
        let url = self.required("url", file.url, "missing: the address of the receiver");
        let url = url.and_then(|url| self.check("url", webhook_address(&url, allow_private)));
        let events = self.check("events", known_events(file.events));
        let (url, events) = url.zip(events)?;
        let secret_file = self
            .config
            .parent()
            .unwrap_or(Path::new("/"))
            .join(secret_file?);
        Some(Webhook {
            key: url.to_string(),
            events,
            allow_private,
            target: Target::Signed { url, secret_file },
        })
    }

    fn notices(&mut self, template: &str, file: FileWebhook) -> Option<Webhook> {
        let template = self.template(template, &file)?;
        let token = file
            .token
            .as_ref()
            .and_then(|key| self.check("token", source(key, self.config)));
        let person = match &file.person {
            None => Some(LinkName::default()),
            Some(name) => self.check("person", LinkName::parse(name)),
        };
        let quiet = file
            .quiet
            .as_deref()
            .and_then(|text| self.check("quiet", QuietHours::parse(text)));
        let zone = file
            .zone
            .clone()
            .and_then(|name| self.check("zone", known_zone(name)));
        let (allow_private, links) = (file.allow_private, file.links.unwrap_or(true));
        let (key, service) = match template {
            Template::Telegram => self.telegram(file, token)?,
            Template::Email => self.email(file)?,
            Template::Ntfy | Template::Slack | Template::Discord => {
                let (key, url) = self.service_address(template, &file)?;
                let service = match template {
                    Template::Slack => Service::Slack { url },
                    Template::Discord => Service::Discord { url },
                    _ => self.ntfy(url, token)?,
                };
                (key, service)
            }
        };
        let notices = Notices {
            service,
            person: person?,
            quiet,
            zone,
            links,
        };
        Some(Webhook {
            key,
            events: events_of_templates(),
            allow_private,
            target: Target::Notices(notices),
        })
    }

    /// Parses the template. Keys that an entry with it cannot have are reported.
    fn template(&mut self, template: &str, file: &FileWebhook) -> Option<Template> {
        for key in file.given() {
            match key {
                "secret_file" => self.report(key, "is for a webhook without a template"),
                "events" => self.report(
                    key,
                    "a template notifies only of what needs a person: leave events out",
                ),
                _ => {}
            }
        }
        let known = self.required(
            "template",
            Template::from_word(template),
            "use \"ntfy\", \"slack\", \"discord\", \"telegram\" or \"email\"",
        )?;
        for key in file.given().filter(|key| !known.takes(key)) {
            self.report(key, &format!("is not for the template {template}"));
        }
        Some(known)
    }

    fn telegram(
        &mut self,
        file: FileWebhook,
        token: Option<KeySource>,
    ) -> Option<(String, Service)> {
        let url = file.url.as_deref().unwrap_or(TELEGRAM);
        let url = self.check("url", webhook_address(url, file.allow_private));
        let token = self.required(
            "token",
            token,
            "missing: { file = \"PATH\" } or { env = \"NAME\" } with the token of the bot",
        );
        let chat = self.required(
            "chat",
            file.chat,
            "missing: the id of the chat, or @channel",
        );
        let chat = chat.and_then(|chat| self.check("chat", checked_chat(chat)))?;
        let key = format!("telegram {chat}");
        let service = Service::Telegram {
            url: url?,
            token: token?,
            chat,
        };
        Some((key, service))
    }

    fn email(&mut self, file: FileWebhook) -> Option<(String, Service)> {
        let to = self.required("to", file.to, "missing: the address of the recipient");
        let to = to.and_then(|to| self.check("to", mail_address(to)));
        let from = file
            .from
            .and_then(|from| self.check("from", mail_address(from)));
        let sendmail = file
            .sendmail
            .unwrap_or_else(|| SENDMAIL.map(str::to_owned).to_vec());
        let sendmail = self.check("sendmail", checked_program(sendmail));
        let to = to?;
        let key = format!("email {to}");
        let service = Service::Email {
            to,
            from,
            sendmail: sendmail?,
        };
        Some((key, service))
    }

    fn ntfy(&mut self, url: Address, token: Option<KeySource>) -> Option<Service> {
        if let Address::Plain(url) = &url {
            self.check("url", topic_of(url))?;
        }
        Some(Service::Ntfy { url, token })
    }

    /// Returns the address of a service, and the key of its webhook.
    fn service_address(
        &mut self,
        template: Template,
        file: &FileWebhook,
    ) -> Option<(String, Address)> {
        match (&file.url, &file.url_from) {
            (Some(url), None) => {
                let url = self.check("url", webhook_address(url, file.allow_private))?;
                Some((url.to_string(), Address::Plain(url)))
            }
            (None, Some(key)) => {
                let source = self.check("url_from", source(key, self.config))?;
                let place = match &source {
                    KeySource::File(file) => format!("file {}", file.display()),
                    KeySource::Env(name) => format!("variable {name}"),
                };
                Some((
                    format!("{} {place}", template.word()),
                    Address::Secret(source),
                ))
            }
            _ => {
                self.report(
                    "url",
                    "give either url or url_from = { file = \"PATH\" } or { env = \"NAME\" }",
                );
                None
            }
        }
    }
}

/// Returns the events of which a person is notified.
pub(super) fn events_of_templates() -> Vec<String> {
    EVENTS_OF_TEMPLATES
        .map(|kind| kind.word().to_owned())
        .to_vec()
}

/// Parses the address of a receiver.
///
/// # Errors
/// It is not an address, or is not allowed.
pub fn webhook_address(url: &str, allow_private: bool) -> Result<Uri, WebhookProblem> {
    let parsed = url.parse::<Uri>().ok().filter(|parsed| {
        url.len() <= URL_BYTES_MAX && parsed.host().is_some_and(|host| !host.is_empty())
    });
    let parsed = parsed.ok_or(WebhookProblem::NotAddress)?;
    if parsed
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(WebhookProblem::HasUser);
    }
    match parsed.scheme_str() {
        Some("https") => Ok(parsed),
        Some("http") if allow_private => Ok(parsed),
        Some("http") => Err(WebhookProblem::PlainText),
        _ => Err(WebhookProblem::NotHttps),
    }
}

/// Splits the address of an ntfy topic into that of its server and the topic.
///
/// # Errors
/// It has no topic.
pub fn topic_of(url: &Uri) -> Result<String, WebhookProblem> {
    let topic = url.path().trim_matches('/');
    let is_topic = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if topic.is_empty() || !topic.chars().all(is_topic) || url.query().is_some() {
        return Err(WebhookProblem::NoTopic);
    }
    Ok(topic.to_owned())
}

fn checked_chat(chat: String) -> Result<String, WebhookProblem> {
    let digits = chat.strip_prefix(['-', '@']).unwrap_or(&chat);
    let is_plain = !digits.is_empty()
        && digits
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_plain && chat.len() <= CHAT_BYTES_MAX {
        Ok(chat)
    } else {
        Err(WebhookProblem::Chat)
    }
}

/// Checks the address of a mailbox: one that needs no quoting in a header, and is no option of a
/// program.
fn mail_address(address: String) -> Result<String, WebhookProblem> {
    let is_plain = |part: &str| {
        let is_allowed =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '=' | '~');
        !part.is_empty() && !part.starts_with(['-', '.']) && part.chars().all(is_allowed)
    };
    match address.split_once('@') {
        Some((name, host))
            if is_plain(name) && is_plain(host) && address.len() <= MAIL_BYTES_MAX =>
        {
            Ok(address)
        }
        _ => Err(WebhookProblem::Mailbox),
    }
}

pub(super) fn checked_program(argv: Vec<String>) -> Result<Vec<String>, WebhookProblem> {
    let is_program = argv
        .first()
        .is_some_and(|program| Path::new(program).is_absolute());
    if is_program && argv.len() <= ARGUMENTS_MAX && !argv.iter().any(|part| part.contains('\0')) {
        return Ok(argv);
    }
    Err(WebhookProblem::Program)
}

fn known_events(events: Option<Vec<String>>) -> Result<Vec<String>, WebhookProblem> {
    let events = events.unwrap_or_else(|| EVENTS_DEFAULT.map(str::to_owned).to_vec());
    let is_known = |event: &str| event == CHAT_MESSAGE || EventKind::from_word(event).is_some();
    match events.iter().find(|event| !is_known(event)) {
        Some(unknown) => Err(WebhookProblem::UnknownEvent(unknown.clone())),
        None => Ok(events),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Result<Vec<Webhook>, UnusableValues> {
        let file: FileWebhook = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        let read = read(vec![file], Path::new("/etc/adj/config.toml"), &mut unusable);
        if unusable.fields().is_empty() {
            Ok(read)
        } else {
            Err(unusable)
        }
    }

    #[test]
    fn webhook_has_a_usable_address() {
        let good = read_one("url = \"https://example.org/x?y=1\"\nsecret_file = \"hook.secret\"")
            .expect("good");
        assert_eq!(
            (good[0].secret_files().next(), good[0].events.len()),
            (Some("/etc/adj/hook.secret".into()), EVENTS_DEFAULT.len())
        );
        for bad in [
            "http://example.org/",
            "ftp://example.org/",
            "example.org",
            "https://",
            "https://u:p@example.org/",
            "/x",
            "unix:/x",
        ] {
            assert!(
                read_one(&format!("url = \"{bad}\"\nsecret_file = \"s\"")).is_err(),
                "{bad}"
            );
        }
        let unknown = read_one(
            "url = \"https://example.org/\"\nsecret_file = \"s\"\nevents = [\"run.ended\"]",
        )
        .expect_err("refused");
        assert!(
            unknown.fields() == ["webhooks[0].events"]
                && format!("{unknown:?}").contains("run.finished"),
            "{unknown:?}"
        );
    }

    #[test]
    fn each_template_takes_only_its_keys() {
        for (key, templates) in [
            ("url", "ntfy slack discord telegram"),
            ("url_from", "ntfy slack discord"),
            ("token", "ntfy telegram"),
            ("chat", "telegram"),
            ("to", "email"),
            ("from", "email"),
            ("sendmail", "email"),
            ("person", "ntfy slack discord telegram email"),
            ("links", "ntfy slack discord telegram email"),
        ] {
            let takes: Vec<&str> = Template::ALL
                .into_iter()
                .filter(|template| template.takes(key))
                .map(Template::word)
                .collect();
            assert_eq!(takes.join(" "), templates, "{key}");
        }
    }

    #[test]
    fn template_needs_its_own_keys() {
        for good in [
            "template = \"ntfy\"\nurl = \"https://ntfy.sh/my-topic\"",
            "template = \"ntfy\"\nurl = \"https://ntfy.sh/my-topic\"\ntoken = { env = \"NTFY_TOKEN\" }\nquiet = \"22:00-07:00\"",
            "template = \"slack\"\nurl_from = { file = \"slack.url\" }\nperson = \"anna\"\nlinks = false",
            "template = \"discord\"\nurl = \"https://discord.com/api/webhooks/1/x\"",
            "template = \"telegram\"\ntoken = { file = \"bot\" }\nchat = \"-1001234\"",
            "template = \"email\"\nto = \"anna@example.org\"\nfrom = \"adj@example.org\"",
            "template = \"email\"\nto = \"anna+adj@example.org\"\nsendmail = [\"/usr/bin/msmtp\"]",
        ] {
            let read = read_one(good).unwrap_or_else(|error| panic!("{good}: {error:?}"));
            assert_eq!(
                read[0].events,
                [
                    "request.asked",
                    "request.escalated",
                    "run.stopped",
                    "run.held",
                    "run.finished"
                ]
            );
        }
        for (bad, field) in [
            ("template = \"irc\"", "template"),
            ("template = \"ntfy\"\nurl = \"https://ntfy.sh/\"", "url"),
            ("template = \"ntfy\"\nurl = \"https://ntfy.sh/a/b\"", "url"),
            ("template = \"ntfy\"\nurl = \"http://ntfy.sh/a\"", "url"),
            ("template = \"slack\"", "url"),
            (
                "template = \"slack\"\nurl = \"https://hooks.slack.com/x\"\nevents = [\"run.finished\"]",
                "events",
            ),
            (
                "template = \"slack\"\nurl = \"https://hooks.slack.com/x\"\nsecret_file = \"s\"",
                "secret_file",
            ),
            (
                "template = \"slack\"\nurl = \"https://hooks.slack.com/x\"\ntoken = { file = \"t\" }",
                "token",
            ),
            (
                "template = \"slack\"\nurl = \"https://hooks.slack.com/x\"\nquiet = \"night\"",
                "quiet",
            ),
            (
                "template = \"slack\"\nurl = \"https://hooks.slack.com/x\"\nzone = \"Mars/Base\"",
                "zone",
            ),
            (
                "template = \"slack\"\nurl = \"https://hooks.slack.com/x\"\nperson = \"a\\nb\"",
                "person",
            ),
            ("template = \"telegram\"\nchat = \"1\"", "token"),
            (
                "template = \"telegram\"\ntoken = { file = \"bot\" }\nchat = \"1&x\"",
                "chat",
            ),
            (
                "template = \"email\"\nto = \"anna@example.org\\nBcc: x@example.org\"",
                "to",
            ),
            ("template = \"email\"\nto = \"-oQ/tmp@example.org\"", "to"),
            (
                "template = \"email\"\nto = \"a@b\"\nfrom = \"x <y@z>\"",
                "from",
            ),
            (
                "template = \"email\"\nto = \"a@b\"\nsendmail = [\"sendmail\"]",
                "sendmail",
            ),
            (
                "template = \"email\"\nto = \"a@b\"\nsendmail = []",
                "sendmail",
            ),
            (
                "url = \"https://example.org/\"\nsecret_file = \"s\"\nquiet = \"22:00-07:00\"",
                "quiet",
            ),
        ] {
            let problems = read_one(bad).expect_err(bad);
            assert_eq!(problems.fields(), [format!("webhooks[0].{field}")], "{bad}");
        }
    }
}
