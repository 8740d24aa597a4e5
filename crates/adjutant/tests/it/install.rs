//! `adj install`: entries in the files of MCP clients.

use crate::readme::path;
use crate::support::{Ran, TestHome};
use crate::terminal::Terminal;
use adjutant_home::integrations::{CLIENTS, Format, McpClient, Shape, skill_text};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// Returns the user's home directory.
fn user(home: &TestHome) -> &Path {
    home.home.dir.parent().expect("a directory")
}

/// Runs `adj` as a user who has installed it on `PATH`.
fn installed(home: &TestHome, args: &[&str]) -> Ran {
    home.command(args)
        .env("PATH", path())
        .output()
        .expect("adj starts")
        .into()
}

fn fine(home: &TestHome, args: &[&str]) -> Ran {
    let ran = installed(home, args);
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran
}

/// Returns the path of a client's file for a user without variables.
fn file_of(home: &TestHome, client: &McpClient) -> Option<PathBuf> {
    let file = client.user_file.as_ref()?;
    let bases = if cfg!(target_os = "macos") {
        file.macos
    } else {
        file.linux
    };
    let base = bases
        .iter()
        .find(|base| base.starts_with('~'))
        .expect("each client has a place below the home");
    Some(
        user(home)
            .join(base.trim_start_matches('~').trim_start_matches('/'))
            .join(file.names[0]),
    )
}

/// Returns the path of a client's skill for a user without variables.
fn skill_of(home: &TestHome, client: &McpClient) -> Option<PathBuf> {
    let base = client
        .skills
        .as_ref()?
        .user
        .iter()
        .find_map(|base| base.strip_prefix("~/"))
        .expect("each client has a place below the home");
    Some(user(home).join(base).join("adjutant/SKILL.md"))
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file with comments, another server and other settings.
fn with_comments(client: &McpClient) -> String {
    let key = client.servers[0];
    match client.format {
        Format::Json => format!(
            "// mine\n{{\n  \"a\": [1,2], // one\n  \"{key}\": {{\n    /* other */ \"other\": {{ \"command\": \"x\" }}\n  }},\n  \"z\": null\n}}\n"
        ),
        Format::Toml => format!(
            "# mine\na = [1,2] # one\n\n[{key}.other] # other\ncommand = \"x\"\n\n[z]\nb = 1\n"
        ),
        Format::Yaml => {
            format!("# mine\na: [1,2] # one\n{key}:\n  # other\n  other:\n    cmd: x\nz: ~\n")
        }
    }
}

fn in_file(client: &McpClient) -> String {
    match client.shape {
        Shape::Opencode => "\"command\": [\"adj\", \"mcp\"]".to_owned(),
        Shape::Goose => "cmd: adj\n    args: [mcp]".to_owned(),
        _ if client.format == Format::Toml => "command = \"adj\"".to_owned(),
        _ if client.is_desktop_app => format!("\"command\": \"{}\"", env!("CARGO_BIN_EXE_adj")),
        _ => "\"command\": \"adj\"".to_owned(),
    }
}

fn backup_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".adj-backup");
    name.into()
}

#[test]
fn every_client_is_connected_once_and_disconnected() {
    for client in CLIENTS {
        let home = TestHome::new();
        let Some(file) = file_of(&home, client) else {
            continue;
        };
        let before = with_comments(client);
        write(&file, &before);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
        let ran = fine(&home, &["install", client.id, "--yes"]);
        assert!(
            ran.out.contains(&format!("{} connected", client.name)),
            "{ran:?}"
        );
        let after = read(&file);
        assert!(
            after.contains("adjutant") && after.contains(&in_file(client)),
            "{}: {after}",
            client.id
        );
        assert!(
            client
                .timeout
                .is_none_or(|timeout| after.contains(timeout.key)),
            "{after}"
        );
        for kept in before.lines().filter(|line| line.contains(['#', '/', '['])) {
            assert!(
                after.contains(kept),
                "{}: {kept:?} is missing: {after}",
                client.id
            );
        }
        assert_eq!(
            fs::metadata(&file).expect("a file").permissions().mode() & 0o777,
            0o640
        );
        assert_eq!(read(&backup_of(&file)), before);
        // A second time: nothing to do.
        let ran = fine(&home, &["install", client.id]);
        assert!(ran.out.contains("already connected"), "{ran:?}");
        assert_eq!(read(&file), after);
        fine(&home, &["install", client.id, "--undo", "--yes"]);
        assert_eq!(read(&file), before, "{}", client.id);
        assert!(!backup_of(&file).exists());
        assert!(
            fine(&home, &["install", client.id, "--undo"])
                .out
                .contains("not connected")
        );
        assert!(
            home.processes().is_empty(),
            "no hub is needed: {:?}",
            home.processes()
        );
    }
}

#[test]
fn missing_file_is_created_and_removed() {
    for client in CLIENTS {
        let home = TestHome::new();
        let Some(file) = file_of(&home, client) else {
            continue;
        };
        fine(&home, &["install", client.id, "--yes"]);
        assert_eq!(
            fs::metadata(&file).expect("a file").permissions().mode() & 0o777,
            0o600
        );
        // The printed entry is the whole file.
        assert_eq!(
            read(&file),
            fine(&home, &["install", "--print", client.id]).out,
            "{}",
            client.id
        );
        fine(&home, &["install", client.id, "--undo", "--yes"]);
        assert!(!file.exists() && !backup_of(&file).exists());
    }
}

#[test]
fn later_changes_of_the_user_stay() {
    for id in ["claude", "codex", "goose"] {
        let home = TestHome::new();
        let client = adjutant_home::integrations::find_client(id).expect("a client");
        let file = file_of(&home, client).expect("it has a file");
        write(&file, &with_comments(client));
        fine(&home, &["install", id, "--yes"]);
        let changed = read(&file).replace("one", "changed since");
        write(&file, &changed);
        let ran = fine(&home, &["install", id, "--undo", "--yes"]);
        assert!(ran.out.contains(".adj-backup"), "{ran:?}");
        assert_eq!(
            read(&file),
            with_comments(client).replace("one", "changed since"),
            "{id}"
        );
    }
}

#[test]
fn broken_file_is_unchanged_and_its_place_is_named() {
    for (id, file, text, place) in [
        (
            "claude",
            ".claude.json",
            "{\n  \"a\": 1,\n  \"b\" 2\n}\n",
            "line 3, column 7",
        ),
        (
            "codex",
            ".codex/config.toml",
            "a = 1\n\nb = = 2\n",
            "line 3, column 5",
        ),
        (
            "goose",
            ".config/goose/config.yaml",
            "a: 1\nextensions:\n  a: 1\n b: [\n",
            "line 4, column ",
        ),
    ] {
        let home = TestHome::new();
        let file = user(&home).join(file);
        write(&file, text);
        let ran = installed(&home, &["install", id, "--yes"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let named = ran.err.contains(&file.display().to_string()) && ran.err.contains(place);
        assert!(
            named && ran.err.contains("nothing was changed") && ran.err.contains("--print"),
            "{ran:?}"
        );
        assert_eq!(read(&file), text);
        let skill = skill_of(
            &home,
            adjutant_home::integrations::find_client(id).expect("a client"),
        )
        .expect("a skill");
        assert!(!backup_of(&file).exists() && !skill.exists());
        // The other clients are connected.
        let ran = installed(&home, &["install", id, "kimi", "--yes"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(read(&user(&home).join(".kimi-code/mcp.json")).contains("adjutant"));
    }
}

#[test]
fn link_is_kept_and_its_target_changed() {
    let home = TestHome::new();
    let (real, file) = (
        user(&home).join("dotfiles/claude.json"),
        user(&home).join(".claude.json"),
    );
    write(&real, "{\"a\": 1}\n");
    symlink("dotfiles/claude.json", &file).expect("a link");
    let ran = fine(&home, &["install", "claude", "--yes"]);
    assert!(
        ran.out.contains("→") && ran.out.contains("dotfiles/claude.json"),
        "{ran:?}"
    );
    assert!(file.is_symlink() && read(&real).contains("adjutant"));
    fine(&home, &["install", "claude", "--undo", "--yes"]);
    assert_eq!(
        (file.is_symlink(), read(&real).as_str()),
        (true, "{\"a\": 1}\n")
    );
    // A link to nothing, and to what is not a file.
    for target in ["missing", "dotfiles"] {
        fs::remove_file(&file).expect("removed");
        symlink(target, &file).expect("a link");
        let ran = installed(&home, &["install", "claude", "--yes"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(file.is_symlink() && !user(&home).join("missing").exists());
    }
}

#[test]
fn files_that_must_not_be_replaced_are_refused() {
    let home = TestHome::new();
    let file = user(&home).join(".claude.json");
    write(&file, "{}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("a mode");
    let ran = installed(&home, &["install", "claude", "--yes"]);
    assert!(
        ran.code == 1 && ran.err.contains("read-only") && ran.err.contains("chmod u+w"),
        "{ran:?}"
    );
    fs::remove_file(&file).expect("removed");
    // A file of another user: only root can create one; others link to one of root.
    if fs::metadata(user(&home)).expect("a directory").uid() == 0 {
        write(&file, "{}");
        std::os::unix::fs::chown(&file, Some(65_534), None).expect("root may");
    } else {
        symlink("/etc/passwd", &file).expect("a link");
    }
    let ran = installed(&home, &["install", "claude", "--yes"]);
    assert!(
        ran.code == 1 && ran.err.contains("belongs to another user"),
        "{ran:?}"
    );
    assert!(!backup_of(&file).exists());
    // The same in JSON, and for a directory.
    let ran = installed(&home, &["--json", "install", "claude", "--yes"]);
    assert!(
        ran.code == 1 && ran.data()[0]["status"] == "failed",
        "{ran:?}"
    );
    let dir = user(&home).join(".qwen");
    if fs::metadata(user(&home)).expect("a directory").uid() == 0 {
        fs::create_dir(&dir).expect("a directory");
        std::os::unix::fs::chown(&dir, Some(65_534), None).expect("root may");
    } else {
        symlink("/etc", &dir).expect("a link");
    }
    let ran = installed(&home, &["install", "qwen", "--yes"]);
    assert!(
        ran.code == 1
            && ran.err.contains("belongs to another user")
            && ran.err.contains("as its owner"),
        "{ran:?}"
    );
    assert!(!dir.join("settings.json").exists() && !dir.join("skills").exists());
}

#[test]
fn directory_that_is_read_only_is_refused() {
    let home = TestHome::new();
    let dir = user(&home).join(".qwen");
    fs::create_dir(&dir).expect("a directory");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o500)).expect("a mode");
    let ran = installed(&home, &["install", "qwen", "--yes"]);
    // Root writes everywhere.
    if fs::metadata(&dir).expect("a directory").uid() == 0 {
        assert_eq!(ran.code, 0, "{ran:?}");
    } else {
        assert!(
            ran.code == 1
                && ran.err.contains("is read-only")
                && !dir.join("settings.json").exists(),
            "{ran:?}"
        );
    }
}

#[test]
fn skill_is_added_and_removed_with_the_entry() {
    for client in CLIENTS {
        let home = TestHome::new();
        let Some(file) = skill_of(&home, client) else {
            continue;
        };
        // The user's own skills stay.
        let own = file
            .parent()
            .and_then(Path::parent)
            .expect("a directory")
            .join("mine/SKILL.md");
        write(&own, "mine");
        let ran = fine(&home, &["install", client.id, "--dry-run"]);
        assert!(
            ran.out
                .contains(&format!("{}, skill: {} (new)", client.name, file.display())),
            "{ran:?}"
        );
        assert!(
            ran.out.contains("+name: adjutant") && ran.out.contains("+## When not"),
            "{ran:?}"
        );
        assert!(!file.exists());
        fine(&home, &["install", client.id, "--yes"]);
        assert_eq!(read(&file), skill_text());
        assert_eq!(
            fs::metadata(&file).expect("a file").permissions().mode() & 0o777,
            0o600
        );
        let ran = fine(&home, &["--json", "install", client.id, "--yes"]);
        assert_eq!(
            (
                &ran.data()[0]["skill"]["status"],
                &ran.data()[0]["skill"]["written"]
            ),
            (&"unchanged".into(), &false.into()),
            "{ran:?}"
        );
        // It is printed to add it by hand.
        assert_eq!(
            fine(&home, &["install", client.id, "--print", "--skill", "only"]).out,
            skill_text()
        );
        assert_eq!(
            fine(&home, &["--json", "install", client.id, "--print"]).data()[0]["skill"]["file"],
            file.display().to_string()
        );
        let ran = fine(&home, &["install", client.id, "--undo", "--yes"]);
        assert!(ran.out.contains("-name: adjutant"), "{ran:?}");
        assert!(
            !file.exists() && !file.parent().expect("a directory").exists() && own.exists(),
            "{}",
            client.id
        );
        fine(&home, &["install", client.id, "--skill", "no", "--yes"]);
        assert!(!file.exists());
    }
}

#[test]
fn skill_of_another_version_is_replaced_and_an_edited_one_is_kept() {
    let home = TestHome::new();
    let file = user(&home).join(".claude/skills/adjutant/SKILL.md");
    // What an older version wrote: the checksum is that of its own text.
    write(
        &file,
        "an older text\n\n<!-- Written by adj install, which replaces and removes only unchanged copies. Checksum: 94c03606437646a7 -->\n",
    );
    let ran = fine(&home, &["install", "claude", "--yes"]);
    assert!(
        ran.out.contains("-an older text") && read(&file) == skill_text(),
        "{ran:?}"
    );
    for kept in [
        skill_text().replace("Delegate", "Never delegate"),
        "a skill of the user\n".to_owned(),
    ] {
        write(&file, &kept);
        for args in [
            &["install", "claude", "--yes"][..],
            &["install", "claude", "--undo", "--yes"],
        ] {
            let ran = fine(&home, args);
            assert!(
                ran.out
                    .contains("is kept: it was edited, or adj did not write it"),
                "{ran:?}"
            );
            assert_eq!(read(&file), kept);
        }
    }
    // A dotfile manager's link stays, and so does its file.
    let real = user(&home).join("dotfiles/SKILL.md");
    let older = "an older text\n\n<!-- Written by adj install, which replaces and removes only unchanged copies. Checksum: 94c03606437646a7 -->\n";
    write(&real, older);
    fs::remove_file(&file).expect("removed");
    symlink(&real, &file).expect("a link");
    fine(&home, &["install", "claude", "--yes"]);
    fine(&home, &["install", "claude", "--undo", "--yes"]);
    assert!(file.is_symlink() && read(&real) == older);
}

#[test]
fn shared_skill_stays_while_another_client_uses_it() {
    let home = TestHome::new();
    let file = user(&home).join(".agents/skills/adjutant/SKILL.md");
    let ran = fine(&home, &["install", "codex", "goose", "--yes"]);
    assert_eq!(
        ran.out.matches("skills/adjutant/SKILL.md (new)").count(),
        1,
        "{ran:?}"
    );
    let ran = fine(&home, &["install", "codex", "--undo", "--yes"]);
    assert!(
        ran.out.contains("is kept: goose uses it too") && file.exists(),
        "{ran:?}"
    );
    fine(&home, &["install", "codex", "--yes"]);
    // Clients that only share the directory are not mentioned.
    let ran = fine(&home, &["install", "--undo", "--yes"]);
    assert!(
        !file.exists() && !ran.out.contains("Zed") && !ran.out.contains("Cursor"),
        "{ran:?}"
    );
    // Without an entry, the skill alone is removed.
    write(&file, &skill_text());
    assert!(
        fine(&home, &["install", "--undo", "--yes"])
            .out
            .contains("skill removed")
    );
    assert!(!file.exists());
}

#[test]
fn only_the_skill_can_be_added() {
    let home = TestHome::new();
    let file = user(&home).join(".agents/skills/adjutant/SKILL.md");
    let ran = fine(&home, &["install", "gemini", "--skill", "only", "--yes"]);
    assert!(
        ran.out.contains("Gemini CLI: skill added")
            && file.exists()
            && !user(&home).join(".gemini/settings.json").exists(),
        "{ran:?}"
    );
    fine(
        &home,
        &["install", "gemini", "--skill", "only", "--undo", "--yes"],
    );
    assert!(!file.exists());
    let ran = installed(
        &home,
        &["install", "claude-desktop", "--skill", "only", "--yes"],
    );
    assert!(
        ran.code == 2 && ran.err.contains("Claude Desktop has no skills in files"),
        "{ran:?}"
    );
}

#[test]
fn clients_with_one_file_for_a_project_share_its_entry() {
    let home = TestHome::new();
    let file = home.work().join(".mcp.json");
    let ran = fine(
        &home,
        &["install", "claude", "copilot", "--project", "--yes"],
    );
    assert!(
        ran.out
            .contains("GitHub Copilot CLI: has the file of Claude Code"),
        "{ran:?}"
    );
    assert_eq!(read(&file).matches("\"adjutant\"").count(), 1);
    assert!(
        home.work()
            .join(".claude/skills/adjutant/SKILL.md")
            .exists()
            && home
                .work()
                .join(".agents/skills/adjutant/SKILL.md")
                .exists()
    );
    fine(
        &home,
        &[
            "install",
            "claude",
            "copilot",
            "--project",
            "--undo",
            "--yes",
        ],
    );
    assert!(
        !file.exists()
            && !home.work().join(".claude/skills/adjutant").exists()
            && !home.work().join(".agents/skills/adjutant").exists()
    );
}

#[test]
fn skill_names_only_tools_that_exist() {
    let tools = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mcp.md"));
    let text = skill_text();
    let words = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.contains('_'));
    let missing: Vec<&str> = words
        .filter(|word| !tools.contains(&format!("### `{word}`")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn entry_of_another_program_is_not_replaced() {
    let home = TestHome::new();
    let file = user(&home).join(".claude.json");
    let text = "{\"mcpServers\": {\"adjutant\": {\"type\": \"http\", \"url\": \"http://127.0.0.1:7317/mcp\"}}}";
    write(&file, text);
    for args in [
        &["install", "claude", "--yes"][..],
        &["install", "claude", "--undo", "--yes"],
    ] {
        let ran = installed(&home, args);
        assert!(
            ran.code == 7 && ran.err.contains("does not start adj mcp"),
            "{ran:?}"
        );
        assert_eq!(read(&file), text);
    }
}

#[test]
fn two_entries_are_reported_and_kept() {
    let home = TestHome::new();
    let file = user(&home).join(".cursor/mcp.json");
    let text = "{\"mcpServers\": {\"adjutant\": {\"command\": \"adj\", \"args\": [\"mcp\"]}, \"hub\": {\"command\": \"/x/adj\", \"args\": [\"mcp\"]}}}";
    write(&file, text);
    let ran = installed(&home, &["install", "cursor", "--yes"]);
    assert!(
        ran.code == 7 && ran.err.contains("adjutant, hub"),
        "{ran:?}"
    );
    assert_eq!(read(&file), text);
}

#[test]
fn entry_with_another_path_is_updated() {
    let home = TestHome::new();
    let file = user(&home).join(".codex/config.toml");
    let text = "[mcp_servers.hub]\ncommand = \"/old/adj\" # where it was\nargs = [\"mcp\", \"--client\", \"me\"]\ntool_timeout_sec = 99\n";
    write(&file, text);
    let ran = fine(&home, &["install", "codex", "--yes"]);
    assert!(ran.out.contains("-command = \"/old/adj\""), "{ran:?}");
    let with_approval =
        text.replace("/old/adj", "adj") + "default_tools_approval_mode = \"approve\"\n";
    assert_eq!(
        read(&file),
        with_approval,
        "only the path changes, and the missing field is added"
    );
    fine(&home, &["install", "codex", "--undo", "--yes"]);
    assert_eq!(read(&file), text);
    // A list that has program and arguments.
    let file = user(&home).join(".config/opencode/opencode.json");
    write(
        &file,
        "{\"mcp\": {\"adjutant\": {\"type\": \"local\", \"command\": [\"/old/adj\", \"mcp\", \"--compat\"], \"timeout\": 5}}}",
    );
    fine(&home, &["install", "opencode", "--yes"]);
    let entry: Value = serde_json::from_str(&read(&file)).expect("JSON");
    assert_eq!(
        entry["mcp"]["adjutant"]["command"],
        serde_json::json!(["adj", "mcp", "--compat"])
    );
    assert_eq!(entry["mcp"]["adjutant"]["timeout"], 5);
}

/// The same entry for each format, with a field that `adj install` does not write.
const OWN_ENTRIES: [(&str, &str, &str); 4] = [
    (
        "kimi",
        ".kimi-code/mcp.json",
        "{\"mcpServers\":{\"adjutant\":{\"command\":\"adj\",\"args\":[\"mcp\"],\"env\":{\"X\":\"1\"},\"toolTimeoutMs\":5}}}",
    ),
    (
        "claude",
        ".claude.json",
        "{\"mcpServers\":{\"adjutant\":{\"type\":\"stdio\",\"command\":\"adj\",\"args\":[\"mcp\",\"--client\",\"me\"]}}}",
    ),
    (
        "codex",
        ".codex/config.toml",
        "[mcp_servers.adjutant]\ncommand = \"adj\"\nargs = [\"mcp\"]\ntool_timeout_sec = 9\ndefault_tools_approval_mode = \"prompt\"\n",
    ),
    (
        "goose",
        ".config/goose/config.yaml",
        "extensions:\n  adjutant:\n    enabled: true\n    type: stdio\n    name: mine\n    cmd: adj\n    args: [mcp]\n    timeout: 7\n",
    ),
];

#[test]
fn entry_that_install_did_not_write_is_kept() {
    for (id, file, text) in OWN_ENTRIES {
        let home = TestHome::new();
        let file = user(&home).join(file);
        write(&file, text);
        let ran = fine(&home, &["install", id, "--yes"]);
        assert!(ran.out.contains("already connected"), "{id}: {ran:?}");
        let ran = fine(&home, &["install", id, "--undo", "--yes"]);
        assert!(
            ran.out.contains("the entry adjutant is kept") && !ran.out.contains("disconnected"),
            "{id}: {ran:?}"
        );
        assert_eq!(read(&file), text, "{id}");
        assert_eq!(
            fine(&home, &["--json", "install", id, "--undo", "--yes"]).data()[0]["status"],
            "kept"
        );
    }
}

/// The user's entry, to which the installation added a field, stays even after the client has
/// rewritten its file.
#[test]
fn entry_that_was_there_before_is_kept() {
    let home = TestHome::new();
    let file = user(&home).join(".codex/config.toml");
    write(
        &file,
        "[mcp_servers.adjutant]\ncommand = \"adj\"\nargs = [\"mcp\"]\n",
    );
    fine(&home, &["install", "codex", "--yes"]);
    let rewritten = read(&file) + "\n[tui]\ntheme = \"dark\"\n";
    write(&file, &rewritten);
    let ran = fine(&home, &["install", "codex", "--undo", "--yes"]);
    assert!(ran.out.contains("the entry adjutant is kept"), "{ran:?}");
    assert_eq!(read(&file), rewritten);
}

/// A client has rewritten the file that the installation created, and added fields with defaults.
#[test]
fn rewritten_entry_is_removed_and_a_backup_kept() {
    let home = TestHome::new();
    let file = user(&home).join(".claude.json");
    fine(&home, &["install", "claude", "--yes"]);
    let rewritten = "{\"starts\": 1, \"mcpServers\": {\"adjutant\": {\"type\": \"stdio\", \"command\": \"adj\", \"args\": [\"mcp\"], \"env\": {}}}}";
    write(&file, rewritten);
    let ran = fine(&home, &["install", "claude", "--undo", "--yes"]);
    assert!(
        ran.out.contains("Claude Code disconnected (backup: "),
        "{ran:?}"
    );
    let left: Value = serde_json::from_str(&read(&file)).expect("JSON");
    assert_eq!(
        (&left["starts"], left["mcpServers"].get("adjutant")),
        (&1.into(), None),
        "{left}"
    );
    assert_eq!(read(&backup_of(&file)), rewritten);
}

#[test]
fn disabled_entry_is_reported() {
    for (id, file, text, fix) in [
        (
            "kimi",
            ".kimi-code/mcp.json",
            "{\"mcpServers\":{\"adjutant\":{\"command\":\"adj\",\"args\":[\"mcp\"],\"enabled\":false}}}",
            "set enabled of adjutant",
        ),
        (
            "cline",
            ".cline/data/settings/cline_mcp_settings.json",
            "{\"mcpServers\":{\"adjutant\":{\"command\":\"adj\",\"args\":[\"mcp\"],\"disabled\":true}}}",
            "remove disabled from adjutant",
        ),
        (
            "codex",
            ".codex/config.toml",
            "[mcp_servers.adjutant]\ncommand = \"adj\"\nargs = [\"mcp\"]\nenabled = false\n",
            "set enabled of adjutant",
        ),
        (
            "opencode",
            ".config/opencode/opencode.json",
            "{\"mcp\":{\"adjutant\":{\"type\":\"local\",\"command\":[\"adj\",\"mcp\"],\"enabled\":false}}}",
            "set enabled of adjutant",
        ),
        (
            "goose",
            ".config/goose/config.yaml",
            "extensions:\n  adjutant:\n    enabled: false\n    type: stdio\n    cmd: adj\n    args: [mcp]\n",
            "set enabled of adjutant",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            "{\"mcp\":{\"excluded\":[\"adjutant\"]},\"mcpServers\":{\"adjutant\":{\"command\":\"adj\",\"args\":[\"mcp\"]}}}",
            "remove adjutant from mcp.excluded",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            "{\"mcp\":{\"allowed\":[\"x\"]},\"mcpServers\":{\"adjutant\":{\"command\":\"adj\",\"args\":[\"mcp\"]}}}",
            "add adjutant to mcp.allowed",
        ),
    ] {
        let home = TestHome::new();
        let file = user(&home).join(file);
        write(&file, text);
        // The first time, fields are added; the second time, nothing is to do.
        for _ in 0..2 {
            let ran = fine(&home, &["install", id, "--yes"]);
            assert!(
                ran.out.contains("entry is disabled: ") && ran.out.contains(fix),
                "{id}: {ran:?}"
            );
        }
        assert!(
            fine(&home, &["--json", "install", id, "--yes"]).data()[0]["disabled"].is_string(),
            "{id}"
        );
        let ran = installed(&home, &["doctor"]);
        assert!(
            ran.out.contains("its entry is disabled") && !ran.out.contains("connected: "),
            "{id}: {ran:?}"
        );
    }
}

#[test]
fn byte_order_mark_stays() {
    let home = TestHome::new();
    let file = user(&home).join(".cursor/mcp.json");
    let text = "\u{feff}{\n  \"a\": 1\n}\n";
    write(&file, text);
    fine(&home, &["install", "cursor", "--yes"]);
    assert!(read(&file).starts_with("\u{feff}{") && read(&file).contains("adjutant"));
    fine(&home, &["install", "cursor", "--undo", "--yes"]);
    assert_eq!(read(&file), text);
}

#[test]
fn empty_directories_do_not_stay() {
    let home = TestHome::new();
    fs::create_dir(user(&home).join(".cline")).expect("a directory");
    write(&user(&home).join(".cline/mine"), "x");
    fine(&home, &["install", "claude", "codex", "cline", "--yes"]);
    fine(
        &home,
        &["install", "claude", "codex", "cline", "--undo", "--yes"],
    );
    for dir in [".claude", ".agents", ".cline/skills"] {
        assert!(!user(&home).join(dir).exists(), "{dir}");
    }
    assert!(user(&home).join(".cline/mine").exists());
}

#[test]
fn newer_layout_of_opencode_is_kept() {
    let home = TestHome::new();
    let file = user(&home).join(".config/opencode/opencode.jsonc");
    let text = "{\n  // new\n  \"mcp\": {\n    \"servers\": {\n      \"a\": { \"type\": \"local\", \"command\": [\"x\"] }\n    }\n  }\n}\n";
    write(&file, text);
    fine(&home, &["install", "opencode", "--yes"]);
    let lines = read(&file).replace("// new", "");
    let parsed: Value = serde_json::from_str(&lines).expect("JSON");
    assert_eq!(
        parsed["mcp"]["servers"]["adjutant"]["command"][0], "adj",
        "{lines}"
    );
    fine(&home, &["install", "opencode", "--undo", "--yes"]);
    assert_eq!(read(&file), text);
}

#[test]
fn running_client_has_to_be_restarted() {
    let home = TestHome::new();
    // Only its name counts. A copy of a program could not be executed while a child of another test
    // has its file open.
    let name = user(&home).join("bin/windsurf");
    let mut session = std::process::Command::new("/bin/sleep")
        .arg0(&name)
        .arg("600")
        .spawn()
        .expect("it starts");
    let ran = installed(&home, &["install", "windsurf", "--yes"]);
    session.kill().expect("it can be killed");
    session.wait().expect("it ends");
    assert!(
        ran.out.contains("Windsurf is running: restart it"),
        "{ran:?}"
    );
    fine(&home, &["install", "windsurf", "--undo", "--yes"]);
    assert!(
        !fine(&home, &["install", "windsurf", "--yes"])
            .out
            .contains("restart")
    );
}

#[test]
fn another_adj_on_path_is_reported() {
    let home = TestHome::new();
    let other = user(&home).join("bin/adj");
    write(&other, "#!/bin/sh\necho adj 0.0.9\n");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("a mode");
    let path = format!(
        "{}:{}",
        other.parent().expect("a directory").display(),
        path()
    );
    let ran: Ran = home
        .command(&["install", "kimi", "--yes"])
        .env("PATH", &path)
        .output()
        .expect("adj starts")
        .into();
    assert!(
        ran.code == 0 && ran.err.contains("an older version (0.0.9)"),
        "{ran:?}"
    );
    let file = user(&home).join(".kimi-code/mcp.json");
    assert!(
        read(&file).contains(&format!("\"{}\"", env!("CARGO_BIN_EXE_adj"))),
        "{}",
        read(&file)
    );
    // Not on PATH at all: the same entry.
    let ran = home.adj(&["install", "kimi", "--yes"]);
    assert!(
        ran.err.contains("adj is not on PATH") && ran.out.contains("already connected"),
        "{ran:?}"
    );
}

#[test]
fn found_clients_are_connected_after_one_question() {
    let home = TestHome::new();
    assert!(fine(&home, &["install"]).err.contains("no client found"));
    assert_eq!(
        fine(&home, &["--json", "install"]).data(),
        serde_json::json!([])
    );
    fs::create_dir(user(&home).join(".cursor")).expect("a directory");
    write(
        &user(&home).join(".qwen/settings.json"),
        "{\n  \"a\": 1\n}\n",
    );
    let qwen = user(&home).join(".qwen/settings.json");
    // Without a terminal, nothing is changed without --yes.
    let ran = installed(&home, &["install"]);
    assert!(
        ran.code == 2 && ran.err.contains("--yes") && ran.out.contains("+  \"mcpServers\""),
        "{ran:?}"
    );
    let plan = fine(&home, &["--json", "install", "--dry-run"]).data();
    let states: Vec<_> = plan
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["client"].as_str(), one["written"].as_bool()))
        .collect();
    assert_eq!(
        states,
        [(Some("cursor"), Some(false)), (Some("qwen"), Some(false))],
        "{plan}"
    );
    assert_eq!(read(&qwen), "{\n  \"a\": 1\n}\n");
    for (answer, is_connected) in [("n\n", false), ("y\n", true)] {
        let mut command = home.command(&["install"]);
        command.env("PATH", path()).env("ADJ_PAGER", "cat");
        let mut terminal = Terminal::of(command);
        terminal.shows("Cursor                    ~/.cursor/mcp.json  +");
        terminal.shows("Connect them (4 files)? [y/N/d] ");
        terminal.types("d\n");
        terminal.shows("+  \"mcpServers\"");
        terminal.shows("[y/N/d] ");
        terminal.types(answer);
        assert_eq!(terminal.ends(), Some(0));
        assert_eq!(read(&qwen).contains("alwaysLoadTools"), is_connected);
        assert_eq!(user(&home).join(".cursor/mcp.json").exists(), is_connected);
    }
    let removed = fine(&home, &["--json", "install", "--undo", "--yes"]).data();
    assert!(
        removed.as_array().is_some_and(|all| all
            .iter()
            .all(|one| one["status"] == "removed" && one["written"] == true)),
        "{removed}"
    );
    assert_eq!(read(&qwen), "{\n  \"a\": 1\n}\n");
}

#[test]
fn project_files_are_below_the_current_directory() {
    for client in CLIENTS {
        let home = TestHome::new();
        let ran = installed(&home, &["install", client.id, "--project", "--yes"]);
        match client.project_file {
            Some(file) => {
                let file = home.work().join(file);
                assert!(ran.code == 0 && read(&file).contains("adjutant"), "{ran:?}");
                fine(
                    &home,
                    &["install", client.id, "--project", "--undo", "--yes"],
                );
                assert!(!file.exists());
            }
            None => assert!(
                ran.code == 2 && ran.err.contains("no file for a project"),
                "{ran:?}"
            ),
        }
    }
}

#[test]
fn entries_can_be_printed_for_every_client() {
    let home = TestHome::new();
    for client in CLIENTS {
        let printed = fine(&home, &["install", client.id, "--print"]);
        assert!(
            printed.out.contains("adjutant") && printed.err.contains(client.name),
            "{printed:?}"
        );
        let ran = fine(&home, &["--json", "install", "--print", client.id]);
        assert_eq!(ran.data()[0]["entry"], printed.out);
    }
    assert!(home.processes().is_empty());
    assert_eq!(installed(&home, &["install", "--print"]).code, 2);
    assert_eq!(installed(&home, &["install", "notepad"]).code, 2);
    let ran = installed(&home, &["install", "jetbrains", "--yes"]);
    assert!(
        ran.code == 2 && ran.err.contains("--print jetbrains"),
        "{ran:?}"
    );
}

#[test]
fn control_characters_of_a_file_are_not_shown() {
    let home = TestHome::new();
    write(
        &user(&home).join(".cursor/mcp.json"),
        "{\n  // \u{1b}[2Jgone\n  \"a\": 1\n}\n",
    );
    let ran = fine(&home, &["install", "cursor", "--yes"]);
    assert!(
        ran.out.contains("gone") && !ran.out.contains('\u{1b}'),
        "{ran:?}"
    );
}

#[test]
fn credentials_beside_the_entry_are_not_shown() {
    let home = TestHome::new();
    let file = user(&home).join(".cursor/mcp.json");
    let text = "{\"mcpServers\": {\"x\": {\"env\": {\"X_API_KEY\": \"sk-123\"}}}}";
    let lines = "{\n  \"mcpServers\": {\n    \"x\": {\n      \"env\": {\n        \"X_API_KEY\": \"sk-123\"\n      } } }\n}\n";
    for text in [text, lines] {
        write(&file, text);
        for args in [
            &["install", "cursor", "--dry-run"][..],
            &["--json", "install", "cursor", "--dry-run"],
        ] {
            let ran = fine(&home, args);
            assert!(
                ran.out.contains("adjutant") && !ran.out.contains("sk-123"),
                "{ran:?}"
            );
        }
        fine(&home, &["install", "cursor", "--yes"]);
        assert!(read(&file).contains("sk-123"));
        fine(&home, &["install", "cursor", "--yes", "--undo"]);
        assert_eq!(read(&file), text);
    }
}
