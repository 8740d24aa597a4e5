//! `adj config`.

pub mod change;
mod edit;
mod pools;

use crate::cli::args::ConfigCommand;
use crate::cli::context::home;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::config::{
    Address, AgentEntry, BUILT_IN, Config, Home, KeySource, Notices, NotifySettings,
    RepositoryWorkspaces, Service, Target, Template, Webhook, Window, Workspaces, duration_text,
    json_schema, memory_text,
};
use crate::preset::Preset;
use crate::text;
use crate::view::codes;
use adjutant_core::chat::Budget;
use adjutant_core::pressure::{PressureLimits, Share};
use adjutant_core::rate_limit::RetryPolicy;
use adjutant_core::tree::TreeLimits;
use adjutant_core::{AgentName, AgentSpec, HarnessKind, Isolation, PromptVia, WorkspaceSpec};
use serde_json::{Map, Value, json};

/// Prints the configuration, its path or its schema, or changes it.
pub async fn config(what: ConfigCommand, out: &Out) -> CommandResult {
    if what == ConfigCommand::Schema {
        let schema = serde_json::to_string_pretty(&json_schema())
            .map_err(|error| fail(codes::INTERNAL, error.to_string()))?;
        return out.print_data(&(schema + "\n")).map(|()| Exit::Done);
    }
    let home = home()?;
    match what {
        ConfigCommand::Path => path(&home, out),
        ConfigCommand::Show | ConfigCommand::Schema => show(&home, out),
        ConfigCommand::Edit => edit::edit(&home, out).await,
        ConfigCommand::Get { key } => change::get(&key, &home, out),
        ConfigCommand::Set { key, value } => change::set(&key, &value, &home, out),
        ConfigCommand::Unset { key } => change::unset(&key, &home, out),
    }
}

/// Prints the path, and nothing else on stdout: `$EDITOR $(adj config path)`.
fn path(home: &Home, out: &Out) -> CommandResult {
    let file = Config::path(home);
    if out.json {
        out.print_json(&json!({"config": file, "exists": file.exists(), "home": home.dir, "logs": home.logs_dir(), "hub_log": home.hub_log(), "socket": home.socket()}))?;
        return Ok(Exit::Done);
    }
    out.print_data(&(text::line(&file.display().to_string()) + "\n"))?;
    if !file.exists() {
        out.print_message("the file does not exist; defaults apply")?;
    }
    Ok(Exit::Done)
}

fn show(home: &Home, out: &Out) -> CommandResult {
    let config = load(home)?;
    let length = |ms: Option<i64>| ms.map_or_else(|| "never".to_owned(), duration_text);
    let agents: Vec<Value> = config
        .agents
        .iter()
        .map(|(name, entry)| agent(name, entry, &config))
        .collect();
    let webhooks: Vec<Value> = config.webhooks.iter().filter_map(webhook).collect();
    if out.json {
        out.print_json(&json!({
            "path": config.path,
            "exists": config.exists,
            "live_runs_max": config.live_runs_max,
            "idle_exit_ms": config.idle_exit_ms,
            "listen": config.listen.map(|address| address.to_string()),
            "listen_without_tls": config.http.without_tls,
            "public_url": config.http.public_url.as_ref().map(ToString::to_string),
            "tls": config.http.tls.as_ref().map(|tls| json!({"cert": tls.cert, "key": tls.key})),
            "store": config.store.as_ref().map(ToString::to_string),
            "store_shared": config.store_shared,
            "log_store": config.log_store.as_ref().map(ToString::to_string),
            "runner_lease_ms": config.runner_lease_ms,
            "expiry_ms": config.expiry_ms,
            "stopped_retention_ms": config.stopped_retention_ms,
            "finished_retention_ms": config.finished_retention_ms,
            "log_bytes_max": config.log_bytes_max,
            "containment": config.containment.word(),
            "refuse_shared_directory": config.refuse_shared_directory,
            "default_agent": config.default_agent,
            "delegation": delegation(&config),
            "rate_limits": rate_limits(&config),
            "pressure": pressure(&config),
            "pools": config.pools.iter().map(|(name, pool)| (name.to_string(), pools::settings(pool))).collect::<Map<_, _>>(),
            "chats": chats(&config),
            "chat_templates": config.chats.templates().map(|(name, template)| (name.to_owned(), self::template(template))).collect::<Map<_, _>>(),
            "workspaces": workspaces(&config),
            "agents": agents,
            "webhooks": webhooks,
            "notify": notify(&config),
        }))?;
        return Ok(Exit::Done);
    }
    out.print_line(&format!(
        "# {}{}",
        text::line(&config.path.display().to_string()),
        if config.exists {
            ""
        } else {
            " (does not exist; defaults apply)"
        }
    ))?;
    out.print_line(&format!("live_runs_max = {}", config.live_runs_max))?;
    out.print_line(&format!("idle_exit = \"{}\"", length(config.idle_exit_ms)))?;
    if let Some(address) = &config.listen {
        out.print_line(&format!("listen = \"{address}\""))?;
    }
    if config.http.without_tls {
        out.print_line("listen_without_tls = true")?;
    }
    if let Some(url) = &config.http.public_url {
        out.print_line(&format!(
            "public_url = \"{}\"",
            text::line(&url.to_string())
        ))?;
    }
    if let Some(address) = &config.store {
        out.print_line(&format!("store = \"{}\"", text::line(&address.to_string())))?;
    }
    if config.store_shared {
        out.print_line("store_shared = true")?;
    }
    if let Some(address) = &config.log_store {
        out.print_line(&format!(
            "log_store = \"{}\"",
            text::line(&address.to_string())
        ))?;
    }
    out.print_line(&format!(
        "runner_lease = \"{}\"",
        length(Some(config.runner_lease_ms))
    ))?;
    out.print_line(&format!("expiry = \"{}\"", length(Some(config.expiry_ms))))?;
    out.print_line(&format!(
        "stopped_retention = \"{}\"",
        length(Some(config.stopped_retention_ms))
    ))?;
    out.print_line(&format!(
        "finished_retention = \"{}\"",
        length(config.finished_retention_ms)
    ))?;
    out.print_line(&format!("log_bytes_max = {}", config.log_bytes_max))?;
    out.print_line(&format!("containment = \"{}\"", config.containment.word()))?;
    out.print_line(&format!(
        "refuse_shared_directory = {}",
        config.refuse_shared_directory
    ))?;
    if let Some(agent) = &config.default_agent {
        out.print_line(&format!("default_agent = \"{}\"", text::line(agent)))?;
    }
    section("delegation", delegation(&config), out)?;
    section("rate_limits", rate_limits(&config), out)?;
    section("pressure", pressure(&config), out)?;
    for (name, pool) in &config.pools {
        section(&format!("pools.{name}"), pools::settings(pool), out)?;
    }
    section("chats", chats(&config), out)?;
    for (name, template) in config.chats.templates() {
        section(
            &format!("chats.templates.{name}"),
            self::template(template),
            out,
        )?;
    }
    section(
        "workspaces",
        workspace_settings(config.workspaces.isolation, &config.workspaces.general),
        out,
    )?;
    for entry in &config.workspaces.repositories {
        out.print_line("\n[[workspaces.repositories]]")?;
        for (field, value) in repository(entry).as_object().into_iter().flatten() {
            out.print_line(&format!("{field} = {}", text::line(&toml_value(value))))?;
        }
    }
    // A built-in agent with its defaults takes a dozen lines, most of which are the same for all.
    let has_settings = |name: &AgentName, entry: &AgentEntry| {
        entry.source != BUILT_IN || config.agent_pools.contains_key(name)
    };
    let plain: Vec<String> = config
        .agents
        .iter()
        .filter(|(name, entry)| !has_settings(name, entry))
        .map(|(name, _)| name.to_string())
        .collect();
    if !plain.is_empty() {
        let line = format!(
            "# built-in agents with their defaults: {} (adj agents NAME shows one)",
            plain.join(", ")
        );
        out.print_text(&format!(
            "\n{}",
            out.indent("# ", line.trim_start_matches("# "))
        ))?;
    }
    for (name, entry) in config
        .agents
        .iter()
        .filter(|(name, entry)| has_settings(name, entry))
    {
        out.print_line(&format!(
            "\n[agents.{name}]   # {}",
            text::line(&entry.source)
        ))?;
        if let Some(pool) = config.agent_pools.get(name) {
            out.print_line(&format!("pool = \"{pool}\""))?;
        }
        for (field, value) in settings(entry) {
            out.print_line(&if value.is_empty() {
                format!("# {field} is not set: no limit")
            } else {
                format!("{field} = {}", text::line(&value))
            })?;
        }
    }
    section("notify", notify(&config), out)?;
    for hook in &webhooks {
        out.print_line("\n[[webhooks]]")?;
        for (field, value) in hook.as_object().into_iter().flatten() {
            out.print_line(&format!("{field} = {}", text::line(&value.to_string())))?;
        }
    }
    Ok(Exit::Done)
}

/// Returns an agent's settings in the syntax of the file, with defaults. Values of variables may be
/// secrets and are omitted. An empty value means not set.
pub fn settings(entry: &AgentEntry) -> Vec<(&'static str, String)> {
    let spec = &entry.spec;
    let quoted = |text: &str| Value::from(text).to_string();
    let mut fields = vec![("harness", quoted(&harness(spec)))];
    if !spec.command.is_empty() {
        fields.push(("command", json!(spec.command).to_string()));
    }
    fields.push(("args", json!(spec.args).to_string()));
    if spec.preset.is_empty() {
        fields.push(("prompt", quoted(prompt(spec.prompt))));
    }
    let names: Vec<String> = spec
        .env
        .keys()
        .map(|name| format!("{} = \"…\"", quoted(name)))
        .collect();
    fields.push((
        "env",
        if names.is_empty() {
            "{}".to_owned()
        } else {
            format!("{{ {} }}", names.join(", "))
        },
    ));
    if !spec.env_pass.is_empty() {
        fields.push(("env_pass", json!(spec.env_pass).to_string()));
    }
    fields.push(("description", quoted(&spec.description)));
    fields.push(("permissions", quoted(spec.permissions.word())));
    fields.push(("trust_repo", spec.trust_repo.to_string()));
    fields.push(("isolation", quoted(spec.isolation.word())));
    fields.push((
        "timeout",
        spec.timeout_ms
            .map_or_else(String::new, |ms| quoted(&duration_text(ms))),
    ));
    fields.push(("patience", quoted(&duration_text(spec.patience_ms))));
    fields.push((
        "memory",
        spec.memory_bytes_max
            .map_or_else(String::new, |bytes| quoted(&memory_text(bytes))),
    ));
    fields.push((
        "stall",
        quoted(
            &spec
                .stall_ms
                .map_or_else(|| "never".to_owned(), duration_text),
        ),
    ));
    fields.push(("grace", quoted(&duration_text(spec.grace_ms))));
    fields.push((
        "report_grace",
        quoted(
            &spec
                .report_grace_ms
                .map_or_else(|| "never".to_owned(), duration_text),
        ),
    ));
    fields.push(("end_after_report", spec.ends_after_report.to_string()));
    fields.push(("auto_resume", spec.auto_resume.to_string()));
    fields.push(("fence", quoted(spec.fence.word())));
    if !spec.fence_write.is_empty() {
        fields.push(("fence_write", json!(spec.fence_write).to_string()));
    }
    fields
}

fn agent(name: &AgentName, entry: &AgentEntry, config: &Config) -> Value {
    let spec = &entry.spec;
    json!({
        "name": name.as_str(),
        "harness": harness(spec),
        "command": spec.command,
        "args": spec.args,
        "prompt": prompt(spec.prompt),
        "env_names": spec.env.keys().collect::<Vec<_>>(),
        "description": spec.description,
        "permissions": spec.permissions.word(),
        "trust_repo": spec.trust_repo,
        "isolation": spec.isolation.word(),
        "timeout_ms": spec.timeout_ms,
        "patience_ms": spec.patience_ms,
        "stall_ms": spec.stall_ms,
        "memory_bytes_max": spec.memory_bytes_max,
        "grace_ms": spec.grace_ms,
        "report_grace_ms": spec.report_grace_ms,
        "end_after_report": spec.ends_after_report,
        "auto_resume": spec.auto_resume,
        "fence": spec.fence.word(),
        "fence_write": spec.fence_write,
        "pool": config.pool_of(name).as_str(),
        "source": entry.source,
    })
}

fn prompt(via: PromptVia) -> &'static str {
    match via {
        PromptVia::Stdin => "stdin",
        PromptVia::Arg => "arg",
        PromptVia::Stream => "stream",
    }
}

fn notify(config: &Config) -> Value {
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

/// Returns a webhook without the paths of addresses, which may contain a secret. `None`: a receiver of `[notify]`.
fn webhook(hook: &Webhook) -> Option<Value> {
    let Webhook {
        key: _,
        events,
        allow_private,
        target,
    } = hook;
    Some(match target {
        Target::Signed { url, secret_file } => {
            json!({"url": place(url), "secret_file": secret_file, "events": events, "allow_private": allow_private})
        }
        Target::Notices(Notices {
            service,
            person,
            quiet,
            zone,
            links,
        }) => {
            let mut shown = json!({
                "template": service.template(),
                "person": person.as_str(),
                "quiet": quiet.map(|quiet| quiet.to_string()),
                "zone": zone,
                "links": links,
                "allow_private": allow_private,
            });
            let mut set = |field: &str, value: Value| shown[field] = value;
            let set_address = |set: &mut dyn FnMut(&str, Value), address: &Address| match address {
                Address::Plain(url) => set("url", json!(place(url))),
                Address::Secret(source) => set("url_from", key_source(source)),
            };
            match service {
                Service::Ntfy { url, token } => {
                    set_address(&mut set, url);
                    set("token", token.as_ref().map_or(Value::Null, key_source));
                }
                Service::Slack { url } | Service::Discord { url } => set_address(&mut set, url),
                Service::Telegram { url, token, chat } => {
                    set("url", json!(place(url)));
                    set("token", key_source(token));
                    set("chat", json!(chat));
                }
                Service::Email { to, from, sendmail } => {
                    set("to", json!(to));
                    set("from", json!(from));
                    set("sendmail", json!(sendmail));
                }
                Service::Desktop | Service::Command { .. } => return None,
            }
            shown
                .as_object_mut()
                .into_iter()
                .for_each(|fields| fields.retain(|_, value| !value.is_null()));
            shown
        }
    })
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

/// Prints a table in the syntax of the file.
fn section(name: &str, fields: Value, out: &Out) -> Result<(), Failure> {
    out.print_line(&format!("\n[{}]", text::line(name)))?;
    for (field, value) in fields
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null())
    {
        out.print_line(&format!("{field} = {}", text::line(&toml_value(value))))?;
    }
    Ok(())
}

fn toml_value(value: &Value) -> String {
    match value.as_object() {
        // An inline table.
        Some(pairs) => format!(
            "{{ {} }}",
            pairs
                .iter()
                .map(|(name, value)| format!("{} = {value}", key(name)))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        None => value.to_string(),
    }
}

/// Returns a key in the syntax of the file.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if is_bare {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

fn delegation(config: &Config) -> Value {
    let TreeLimits {
        depth_max,
        children_max,
        live_max,
        total_max,
    } = config.tree;
    json!({"depth_max": depth_max, "children_max": children_max, "live_max": live_max, "total_max": total_max})
}

fn rate_limits(config: &Config) -> Value {
    let RetryPolicy {
        times_max,
        pause_ms,
        pause_ms_max,
    } = config.rate_limits;
    json!({"times_max": times_max, "pause": duration_text(pause_ms), "pause_max": duration_text(pause_ms_max)})
}

fn pressure(config: &Config) -> Value {
    let PressureLimits { memory, cpu, pause } = config.pressure;
    let percent = |limit: Option<Share>| limit.map_or(0, Share::as_percent);
    json!({"memory": percent(memory), "cpu": percent(cpu), "pause": percent(pause)})
}

fn chats(config: &Config) -> Value {
    let chats = &config.chats;
    json!({
        "window": match chats.window {
            Budget::Chars(chars) => json!({"chars": chars}),
            Budget::Tokens(tokens) => json!({"tokens": tokens}),
        },
        "summarise_left_out": chats.summarise_left_out,
        "turns_max": chats.turns_max,
        "default_responder": chats.default_responder.as_ref().map(AgentName::as_str),
        "summariser": chats.summariser.as_ref().map(AgentName::as_str),
        "summarise_on_archive": chats.summarise_on_archive,
    })
}

fn template(template: &Template) -> Value {
    let Template {
        participants,
        instructions,
        private,
        window,
        turns_max,
    } = template;
    let window = window.map(|window| match window {
        Window::Chars(chars) => json!({"chars": chars}),
        Window::Tokens(tokens) => json!({"tokens": tokens}),
    });
    json!({"participants": participants, "instructions": instructions, "private": private, "window": window, "turns_max": turns_max})
}

fn workspaces(config: &Config) -> Value {
    let Workspaces {
        isolation,
        general,
        repositories,
    } = &config.workspaces;
    let mut all = workspace_settings(*isolation, general);
    all["repositories"] = repositories.iter().map(repository).collect();
    all
}

fn repository(entry: &RepositoryWorkspaces) -> Value {
    let RepositoryWorkspaces {
        path,
        isolation,
        spec,
    } = entry;
    let mut all = workspace_settings(*isolation, spec);
    all["path"] = json!(path);
    all
}

fn workspace_settings(isolation: Isolation, spec: &WorkspaceSpec) -> Value {
    let WorkspaceSpec {
        setup,
        setup_timeout_ms,
        copy,
        caches,
        ports,
    } = spec;
    json!({
        "isolation": isolation.word(),
        "setup": setup,
        "setup_timeout": duration_text(*setup_timeout_ms),
        "copy": copy,
        "caches": caches,
        "ports": ports,
    })
}

fn harness(spec: &AgentSpec) -> String {
    match spec.harness {
        HarnessKind::Echo => "echo".to_owned(),
        HarnessKind::Plain => "plain".to_owned(),
        HarnessKind::Vendor => {
            Preset::from_text(&spec.preset).map_or_else(String::new, |preset| preset.name)
        }
    }
}

/// Reads the configuration.
pub fn load(home: &Home) -> Result<Config, Failure> {
    Config::load(home).map_err(|e| {
        fail_hint(
            codes::INVALID,
            e.to_string(),
            "fix that line, or move the file away",
        )
    })
}
