//! Somebody who uses the CLIs: what is in their home and environment, with the model behind it.

use super::Turnstile;
use crate::model::Model;
use std::path::Path;

/// Models that the CLIs know, so that they behave with them as they do for users.
pub const CODEX_MODEL: &str = "gpt-5.5";
pub const GEMINI_MODEL: &str = "gemini-2.5-pro";
pub const GOOSE_MODEL: &str = "gpt-4o";

/// Writes the files that signing in and setting up would have left behind.
pub fn settle(home: &Path, model: &Model) {
    let write = |path: &str, text: String| {
        let path = home.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("the home can be written");
        std::fs::write(path, text).expect("the home can be written");
    };
    let url = model.url();
    let provider = format!("name = \"test\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n");
    // Its plugins come from the network.
    let features = "[features]\nplugins = false\n";
    let retries = "request_max_retries = 0\nstream_max_retries = 0\n";
    write(
        ".codex/config.toml",
        format!("model = \"{CODEX_MODEL}\"\nmodel_provider = \"test\"\n{features}[model_providers.test]\n{provider}{retries}"),
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
}

/// What the CLIs find in their environment.
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
    all.extend([("ANTHROPIC_BASE_URL", url.clone()), ("GOOGLE_GEMINI_BASE_URL", url.clone()), ("OPENAI_HOST", url)]);
    all.push(("PATH", format!("{bin}:/usr/bin:/bin")));
    all
}
