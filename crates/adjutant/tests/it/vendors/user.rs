//! The home and environment of a user of the CLIs, with the scripted model.

use super::{Cli, Turnstile};
use crate::model::{Model, WORDS_ONLY};
use std::path::Path;

/// Models that the CLIs know, so that they behave as for users.
pub const CODEX_MODEL: &str = "gpt-5.5";
pub const GEMINI_MODEL: &str = "gemini-2.5-pro";
pub const GOOSE_MODEL: &str = "gpt-4o";
/// A model that is configured and not the default one.
pub const OTHER_MODEL: &str = "gpt-4o-mini";

/// Writes the files that signing in and setting up would create.
pub fn settle(home: &Path, model: &Model) {
    let write = |path: &str, text: String| {
        let path = home.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory"))
            .expect("the home can be written");
        std::fs::write(path, text).expect("the home can be written");
    };
    let url = model.url();
    let provider = format!(
        "name = \"test\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n"
    );
    // Codex loads plugins from the network.
    let features = "[features]\nplugins = false\n";
    let retries = "request_max_retries = 0\nstream_max_retries = 0\n";
    write(
        ".codex/config.toml",
        format!(
            "model = \"{CODEX_MODEL}\"\nmodel_provider = \"test\"\n{features}[model_providers.test]\n{provider}{retries}"
        ),
    );
    let model_of_opencode = serde_json::json!({ "name": GOOSE_MODEL, "tool_call": true, "limit": { "context": 100_000, "output": 4_000 } });
    let config_of_opencode = serde_json::json!({
        "autoupdate": false,
        "share": "disabled",
        "model": format!("test/{GOOSE_MODEL}"),
        "small_model": format!("test/{GOOSE_MODEL}"),
        "provider": { "test": {
            "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": format!("{url}/v1"), "apiKey": "test-key" },
            "models": { GOOSE_MODEL: model_of_opencode, OTHER_MODEL: model_of_opencode },
        } },
    });
    write(
        ".config/opencode/opencode.json",
        config_of_opencode.to_string(),
    );
    write(".config/kilo/kilo.json", config_of_opencode.to_string());
    let provider_of_cline = serde_json::json!({ "provider": "openai-compatible", "apiKey": "test-key", "model": GOOSE_MODEL, "baseUrl": format!("{url}/v1") });
    write(
        ".cline/data/settings/providers.json",
        serde_json::json!({ "version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": { "openai-compatible": {
            "settings": provider_of_cline, "updatedAt": "2026-11-28T00:00:00.000Z", "tokenSource": "manual",
        } } })
        .to_string(),
    );
    // Prices of models, which aider would load from the network.
    write(
        ".aider/caches/model_prices_and_context_window.json",
        "{\"none\":{}}".to_owned(),
    );
    let models_of_pi = serde_json::json!([{ "id": GOOSE_MODEL, "cost": { "input": 2, "output": 8, "cacheRead": 0, "cacheWrite": 0 } }, { "id": OTHER_MODEL }]);
    write(
        ".pi/agent/models.json",
        serde_json::json!({ "providers": { "test": {
            "baseUrl": format!("{url}/v1"),
            "api": "openai-completions",
            "apiKey": "test-key",
            "models": models_of_pi,
        } } })
        .to_string(),
    );
    write(
        ".pi/agent/settings.json",
        serde_json::json!({ "defaultProvider": "test", "defaultModel": GOOSE_MODEL }).to_string(),
    );
    write(
        ".qwen/settings.json",
        serde_json::json!({
            "security": { "auth": { "selectedType": "openai" } },
            "general": { "enableAutoUpdate": false, "disableAutoUpdate": true },
            "privacy": { "usageStatisticsEnabled": false },
            // Otherwise the CLI calls its model after every answer, for its memory.
            "memory": { "enableManagedAutoMemory": false, "enableManagedAutoDream": false },
        })
        .to_string(),
    );
    write(
        ".gemini/settings.json",
        serde_json::json!({
            "security": { "auth": { "selectedType": "gemini-api-key" } },
            "general": { "enableAutoUpdate": false, "enableAutoUpdateNotification": false },
            "privacy": { "usageStatisticsEnabled": false },
            "model": { "name": GEMINI_MODEL },
        })
        .to_string(),
    );
    let model_of_droid = serde_json::json!({
        "model": "claude-sonnet-4", "id": "custom:test", "displayName": "test", "baseUrl": format!("{url}/v1"), "apiKey": "test-key",
        "provider": "generic-chat-completion-api", "maxOutputTokens": 4_000,
    });
    write(
        ".factory/settings.json",
        serde_json::json!({ "customModels": [model_of_droid], "sessionDefaultSettings": { "model": "custom:test" }, "model": "custom:test" })
            .to_string(),
    );
    let provider_of_kimi = format!(
        "[providers.test]\ntype = \"openai\"\nbase_url = \"{url}/v1\"\napi_key = \"test-key\"\n"
    );
    let model_of_kimi = format!(
        "[models.\"test/model\"]\nprovider = \"test\"\nmodel = \"{GOOSE_MODEL}\"\nmax_context_size = 100000\ncapabilities = [\"tool_use\"]\n"
    );
    write(
        ".kimi-code/config.toml",
        format!(
            "default_model = \"test/model\"\ntelemetry = false\n{provider_of_kimi}{model_of_kimi}"
        ),
    );
}

/// Returns the environment that all CLIs share.
pub fn environment(clis: &Turnstile, model: &Model) -> Vec<(&'static str, String)> {
    let url = model.url();
    let bin = clis.bin.display();
    let fixed = [
        ("ANTHROPIC_API_KEY", "test-key"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", "0"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("GEMINI_API_KEY", "test-key"),
        ("GOOSE_DISABLE_KEYRING", "1"),
        ("GOOSE_MODEL", GOOSE_MODEL),
        ("GOOSE_PROVIDER", "openai"),
        ("GOOSE_TELEMETRY_ENABLED", "false"),
        ("OPENAI_API_KEY", "test-key"),
    ];
    let mut all: Vec<_> = fixed.map(|(name, value)| (name, value.to_owned())).into();
    all.extend([
        ("ANTHROPIC_BASE_URL", url.clone()),
        ("GOOGLE_GEMINI_BASE_URL", url.clone()),
        ("OPENAI_HOST", url),
    ]);
    all.push(("PATH", format!("{bin}:/usr/bin:/bin")));
    all
}

/// Returns additional variables of one CLI, which would affect the others.
pub fn own_environment(cli: Cli, model: &Model) -> Vec<(&'static str, String)> {
    let (url, name) = (format!("{}/v1", model.url()), GOOSE_MODEL.to_owned());
    match cli {
        Cli::Qwen => vec![("OPENAI_BASE_URL", url), ("OPENAI_MODEL", name)],
        // Droid checks the key only when its own models are used.
        Cli::Droid => vec![("FACTORY_API_KEY", "fk-test".to_owned())],
        Cli::Copilot => vec![
            ("COPILOT_PROVIDER_BASE_URL", url),
            ("COPILOT_PROVIDER_API_KEY", "test-key".to_owned()),
            // Copilot's editing tools depend on the model.
            ("COPILOT_PROVIDER_MODEL_ID", "claude-sonnet-4".to_owned()),
            ("COPILOT_PROVIDER_WIRE_MODEL", name),
            // Copilot unpacks itself, once for all tests.
            (
                "COPILOT_PKG_CACHE_HOME",
                concat!(env!("CARGO_TARGET_TMPDIR"), "/copilot").to_owned(),
            ),
        ],
        // Aider checks for new models and packages.
        Cli::Aider => {
            vec![
                ("OPENAI_API_BASE", url),
                ("AIDER_MODEL", format!("openai/{WORDS_ONLY}")),
                ("AIDER_SHOW_MODEL_WARNINGS", "false".to_owned()),
            ]
        }
        // The key of another provider is only used from the environment.
        Cli::Cline => vec![
            ("CLINE_API_KEY", "test-key".to_owned()),
            ("CLINE_PROVIDER", "openai-compatible".to_owned()),
            ("CLINE_MODEL", name),
        ],
        Cli::Pi => vec![("PI_OFFLINE", "1".to_owned())],
        // Kilo sends to its vendor while it works, and can wait for that for minutes.
        Cli::Kilo => [
            ("KILO_TELEMETRY_LEVEL", "off"),
            ("KILO_DISABLE_MODELS_FETCH", "1"),
            ("KILO_DISABLE_PRESENCE", "1"),
            ("KILO_DISABLE_SESSION_INGEST", "1"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into(),
        Cli::Claude
        | Cli::Codex
        | Cli::Gemini
        | Cli::Goose
        | Cli::Opencode
        | Cli::Kimi
        | Cli::Amp => Vec::new(),
    }
}
