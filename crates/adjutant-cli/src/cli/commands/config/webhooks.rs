//! How `adj config show` shows webhooks and notices, without secrets.

use crate::config::{
    Address, Config, KeySource, Notices, NotifySettings, Service, Target, Webhook,
};
use serde_json::{Value, json};

/// Returns the table `[notify]`.
pub(super) fn notify(config: &Config) -> Value {
    let NotifySettings {
        bell,
        osc,
        title,
        quiet,
        zone,
    } = &config.notify;
    let services = || {
        config.webhooks.iter().filter_map(|hook| {
            if let Target::Notices(notices) = &hook.target {
                Some(&notices.service)
            } else {
                None
            }
        })
    };
    let mut shown = json!({"bell": bell, "osc": osc, "title": title, "desktop": services().any(|service| *service == Service::Desktop)});
    if let Some(argv) = services().find_map(|service| {
        if let Service::Command { argv } = service {
            Some(argv)
        } else {
            None
        }
    }) {
        shown["command"] = json!(argv);
    }
    if let Some(quiet) = quiet {
        shown["quiet"] = json!(quiet.to_string());
    }
    if let Some(zone) = zone {
        shown["zone"] = json!(zone);
    }
    shown
}

/// Returns a webhook without the paths of addresses, which may contain a secret. `None`: a receiver
/// of `[notify]`.
pub(super) fn webhook(hook: &Webhook) -> Option<Value> {
    let Webhook {
        key: _,
        events,
        allow_private,
        target,
    } = hook;
    match target {
        Target::Signed { url, secret_file } => Some(
            json!({"url": place(url), "secret_file": secret_file, "events": events, "allow_private": allow_private}),
        ),
        Target::Notices(notices) => service(notices, *allow_private),
    }
}

/// Returns a service that receives notices, without the fields that are not set. `None`: a receiver
/// of `[notify]`.
fn service(notices: &Notices, allow_private: bool) -> Option<Value> {
    let Notices {
        service,
        person,
        quiet,
        zone,
        links,
    } = notices;
    let own = match service {
        Service::Ntfy { url, token } => {
            let mut own = address(url);
            own["token"] = token.as_ref().map_or(Value::Null, key_source);
            own
        }
        Service::Slack { url } | Service::Discord { url } => address(url),
        Service::Telegram { url, token, chat } => {
            json!({"url": place(url), "token": key_source(token), "chat": chat})
        }
        Service::Email { to, from, sendmail } => {
            json!({"to": to, "from": from, "sendmail": sendmail})
        }
        Service::Desktop | Service::Command { .. } => return None,
    };
    let general = json!({
        "template": service.template(),
        "person": person.as_str(),
        "quiet": quiet.map(|quiet| quiet.to_string()),
        "zone": zone,
        "links": links,
        "allow_private": allow_private,
    });
    let fields = [general, own]
        .into_iter()
        .filter_map(|part| match part {
            Value::Object(fields) => Some(fields),
            _ => None,
        })
        .flatten()
        .filter(|(_, value)| !value.is_null());
    Some(Value::Object(fields.collect()))
}

/// Returns the address of a service, or where it is read from.
fn address(address: &Address) -> Value {
    match address {
        Address::Plain(url) => json!({"url": place(url)}),
        Address::Secret(source) => json!({"url_from": key_source(source)}),
    }
}

fn key_source(source: &KeySource) -> Value {
    match source {
        KeySource::File(file) => json!({"file": file}),
        KeySource::Env(name) => json!({"env": name}),
    }
}

fn place(url: &http::Uri) -> String {
    let authority = url.authority().map(ToString::to_string).unwrap_or_default();
    let path = if url.path() == "/" && url.query().is_none() {
        "/"
    } else {
        "/…"
    };
    format!(
        "{}://{authority}{path}",
        url.scheme_str().unwrap_or("https")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::request::LinkName;

    fn shown(service: Service) -> Option<Value> {
        webhook(&Webhook {
            key: "key".to_owned(),
            events: Vec::new(),
            allow_private: false,
            target: Target::Notices(Notices {
                service,
                person: LinkName::default(),
                quiet: None,
                zone: None,
                links: true,
            }),
        })
    }

    #[test]
    fn paths_of_addresses_are_not_shown() {
        let url = http::Uri::from_static("https://hooks.example.org/SECRET?key=SECRET");
        assert_eq!(place(&url), "https://hooks.example.org/…");
        assert_eq!(
            place(&http::Uri::from_static("http://localhost:8080")),
            "http://localhost:8080/"
        );
        let slack = shown(Service::Slack {
            url: Address::Plain(url),
        })
        .expect("it is shown");
        assert_eq!(slack["url"], "https://hooks.example.org/…");
        let from_variable = shown(Service::Discord {
            url: Address::Secret(KeySource::Env("HOOK".to_owned())),
        })
        .expect("it is shown");
        assert_eq!(from_variable["url_from"], json!({"env": "HOOK"}));
        assert_eq!(from_variable.get("url"), None);
    }

    #[test]
    fn fields_that_are_not_set_are_left_out() {
        let email = shown(Service::Email {
            to: "anna@example.org".to_owned(),
            from: None,
            sendmail: vec!["/usr/sbin/sendmail".to_owned()],
        })
        .expect("it is shown");
        for field in ["from", "quiet", "zone"] {
            assert_eq!(email.get(field), None, "{field}");
        }
        assert_eq!(email["links"], true);
    }

    #[test]
    fn receivers_of_notify_are_no_webhooks() {
        assert_eq!(shown(Service::Desktop), None);
        assert_eq!(shown(Service::Command { argv: Vec::new() }), None);
    }
}
