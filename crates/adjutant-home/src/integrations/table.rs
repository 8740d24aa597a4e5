//! The table of clients. It drives the installation, the reference page and the tests.

/// A program whose agent can use MCP servers.
#[derive(Debug)]
pub struct McpClient {
    /// Its name on the command line.
    pub id: &'static str,
    pub name: &'static str,
    /// Programs on `PATH` that show that it is installed. Processes of these names are its
    /// sessions.
    pub programs: &'static [&'static str],
    /// Directories or files that show that it is installed, in addition to its own file.
    pub traces: &'static [&'static str],
    /// The user's file. `None`: the client has a form for the snippet.
    pub user_file: Option<UserFile>,
    /// The file of a project, relative to its directory.
    pub project_file: Option<&'static str>,
    pub format: Format,
    /// The path of the map of servers in the file.
    pub servers: &'static [&'static str],
    /// Another path, which is used if a file already has it.
    pub servers_newer: Option<&'static [&'static str]>,
    pub shape: Shape,
    /// The client's limit for a tool call.
    pub timeout: Option<CallTimeout>,
    /// It is started from the desktop and does not see the shell's `PATH`: its entry has an
    /// absolute path.
    pub is_desktop_app: bool,
    /// Where it looks for skills. `None`: it has no skills, or only those that are added in its
    /// settings.
    pub skills: Option<SkillDirs>,
    /// What remains to be done in the client.
    pub note: Option<&'static str>,
}

/// The directories of skills, in which each skill is a directory with a file `SKILL.md` (the Agent
/// Skills format). Clients that read the shared directory have that one: Gemini CLI warns about two
/// skills with the same name.
#[derive(Debug)]
pub struct SkillDirs {
    /// The first base that can be resolved counts, as for [`UserFile`].
    pub user: &'static [&'static str],
    /// Relative to the project's directory. `None` for clients without a file for a project.
    pub project: Option<&'static str>,
}

/// Where the user's file is: in the first base directory that can be resolved. A base begins with
/// `~` or with a variable, and a variable that is not set is skipped.
#[derive(Debug)]
pub struct UserFile {
    pub linux: &'static [&'static str],
    pub macos: &'static [&'static str],
    /// The first that exists counts; if none does, the first is created.
    pub names: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, with comments and trailing commas if the file has them.
    Json,
    Toml,
    Yaml,
}

impl Format {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Toml => "TOML",
            Self::Yaml => "YAML",
        }
    }
}

/// The fields of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `command` and `args`.
    Plain,
    /// The same with `type = "stdio"`.
    Stdio,
    /// The same with all `tools`. Claude Code reads the same file of a project, and knows no `type
    /// = "local"`.
    Copilot,
    /// The same with `alwaysLoadTools`, without which Qwen Code hides the tools from the model.
    Qwen,
    /// `command` and `args`, and approval of its tools: `codex exec` refuses a call that would need
    /// approval.
    Codex,
    /// `type = "local"`, and one list for the command and its arguments.
    Opencode,
    /// The same with `source = "custom"`.
    Zed,
    /// `cmd` and `args`, with a name.
    Goose,
}

/// A client's limit for a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimeout {
    pub key: &'static str,
    /// In the client's unit.
    pub value: u64,
    /// With this limit, a call may block so long. `None`: `adj mcp` knows the client's own limit.
    pub wait_s: Option<u32>,
}

const fn timeout(key: &'static str, value: u64, wait_s: Option<u32>) -> Option<CallTimeout> {
    Some(CallTimeout { key, value, wait_s })
}

const fn same(bases: &'static [&'static str], names: &'static [&'static str]) -> Option<UserFile> {
    Some(UserFile {
        linux: bases,
        macos: bases,
        names,
    })
}

/// The directory that clients of several vendors read.
const SHARED_SKILLS: &str = "~/.agents/skills";
const SHARED_PROJECT_SKILLS: &str = ".agents/skills";

const fn skills(user: &'static [&'static str], project: Option<&'static str>) -> Option<SkillDirs> {
    Some(SkillDirs { user, project })
}

/// A client without special features. The others name what differs.
const PLAIN: McpClient = McpClient {
    id: "",
    name: "",
    programs: &[],
    traces: &[],
    user_file: None,
    project_file: None,
    format: Format::Json,
    servers: &["mcpServers"],
    servers_newer: None,
    shape: Shape::Plain,
    timeout: None,
    is_desktop_app: false,
    skills: None,
    note: None,
};

/// Every client, in the order in which they are listed.
pub const CLIENTS: &[McpClient] = &[
    McpClient {
        id: "claude",
        name: "Claude Code",
        programs: &["claude"],
        traces: &["$CLAUDE_CONFIG_DIR", "~/.claude"],
        user_file: same(&["$CLAUDE_CONFIG_DIR", "~"], &[".claude.json"]),
        project_file: Some(".mcp.json"),
        shape: Shape::Stdio,
        skills: skills(
            &["$CLAUDE_CONFIG_DIR/skills", "~/.claude/skills"],
            Some(".claude/skills"),
        ),
        // Its own limit for a call is 28 hours.
        ..PLAIN
    },
    McpClient {
        id: "codex",
        name: "Codex",
        programs: &["codex"],
        traces: &["$CODEX_HOME", "~/.codex"],
        user_file: same(&["$CODEX_HOME", "~/.codex"], &["config.toml"]),
        project_file: Some(".codex/config.toml"),
        format: Format::Toml,
        servers: &["mcp_servers"],
        shape: Shape::Codex,
        timeout: timeout("tool_timeout_sec", 3_600, Some(1_500)),
        skills: skills(&[SHARED_SKILLS], Some(SHARED_PROJECT_SKILLS)),
        ..PLAIN
    },
    McpClient {
        id: "gemini",
        name: "Gemini CLI",
        programs: &["gemini"],
        traces: &["~/.gemini"],
        user_file: same(&["~/.gemini"], &["settings.json"]),
        project_file: Some(".gemini/settings.json"),
        timeout: timeout("timeout", 3_600_000, None),
        note: Some("Gemini CLI starts servers only in folders that it trusts"),
        skills: skills(&[SHARED_SKILLS], Some(SHARED_PROJECT_SKILLS)),
        ..PLAIN
    },
    McpClient {
        id: "cursor",
        name: "Cursor",
        programs: &["cursor", "cursor-agent"],
        traces: &["~/.cursor"],
        user_file: same(&["~/.cursor"], &["mcp.json"]),
        project_file: Some(".cursor/mcp.json"),
        skills: skills(&[SHARED_SKILLS], Some(SHARED_PROJECT_SKILLS)),
        ..PLAIN
    },
    McpClient {
        id: "vscode",
        name: "VS Code",
        programs: &["code"],
        traces: &[
            "$XDG_CONFIG_HOME/Code",
            "~/.config/Code",
            "~/Library/Application Support/Code",
        ],
        user_file: Some(UserFile {
            linux: &["$XDG_CONFIG_HOME/Code/User", "~/.config/Code/User"],
            macos: &["~/Library/Application Support/Code/User"],
            names: &["mcp.json"],
        }),
        project_file: Some(".vscode/mcp.json"),
        servers: &["servers"],
        shape: Shape::Stdio,
        skills: skills(&[SHARED_SKILLS], Some(SHARED_PROJECT_SKILLS)),
        ..PLAIN
    },
    McpClient {
        id: "opencode",
        name: "opencode",
        programs: &["opencode"],
        traces: &[
            "$OPENCODE_CONFIG_DIR",
            "$XDG_CONFIG_HOME/opencode",
            "~/.config/opencode",
        ],
        user_file: same(
            &[
                "$OPENCODE_CONFIG_DIR",
                "$XDG_CONFIG_HOME/opencode",
                "~/.config/opencode",
            ],
            &["opencode.jsonc", "opencode.json"],
        ),
        project_file: Some("opencode.json"),
        servers: &["mcp"],
        servers_newer: Some(&["mcp", "servers"]),
        shape: Shape::Opencode,
        timeout: timeout("timeout", 3_600_000, None),
        skills: skills(&[SHARED_SKILLS], Some(SHARED_PROJECT_SKILLS)),
        ..PLAIN
    },
    McpClient {
        id: "goose",
        name: "goose",
        programs: &["goose"],
        traces: &["$XDG_CONFIG_HOME/goose", "~/.config/goose"],
        user_file: same(
            &["$XDG_CONFIG_HOME/goose", "~/.config/goose"],
            &["config.yaml"],
        ),
        format: Format::Yaml,
        servers: &["extensions"],
        shape: Shape::Goose,
        timeout: timeout("timeout", 3_600, None),
        skills: skills(&[SHARED_SKILLS], None),
        ..PLAIN
    },
    McpClient {
        id: "zed",
        name: "Zed",
        programs: &["zed", "zeditor"],
        traces: &["$XDG_CONFIG_HOME/zed", "~/.config/zed"],
        user_file: Some(UserFile {
            linux: &["$XDG_CONFIG_HOME/zed", "~/.config/zed"],
            macos: &["~/.config/zed"],
            names: &["settings.json"],
        }),
        servers: &["context_servers"],
        shape: Shape::Zed,
        skills: skills(&[SHARED_SKILLS], None),
        ..PLAIN
    },
    McpClient {
        id: "windsurf",
        name: "Windsurf",
        programs: &["windsurf"],
        traces: &["~/.codeium/windsurf"],
        user_file: same(&["~/.codeium/windsurf"], &["mcp_config.json"]),
        skills: skills(&["~/.codeium/windsurf/skills"], None),
        ..PLAIN
    },
    McpClient {
        id: "kiro",
        name: "Kiro",
        programs: &["kiro", "kiro-cli"],
        traces: &["~/.kiro"],
        user_file: same(&["~/.kiro/settings"], &["mcp.json"]),
        project_file: Some(".kiro/settings/mcp.json"),
        skills: skills(&["~/.kiro/skills"], Some(".kiro/skills")),
        ..PLAIN
    },
    McpClient {
        id: "amazon-q",
        name: "Amazon Q Developer CLI",
        programs: &["q", "qchat"],
        traces: &["~/.aws/amazonq"],
        user_file: same(&["~/.aws/amazonq"], &["mcp.json"]),
        project_file: Some(".amazonq/mcp.json"),
        timeout: timeout("timeout", 3_600_000, Some(1_500)),
        ..PLAIN
    },
    McpClient {
        id: "copilot",
        name: "GitHub Copilot CLI",
        programs: &["copilot"],
        traces: &["$COPILOT_HOME", "~/.copilot"],
        user_file: same(&["$COPILOT_HOME", "~/.copilot"], &["mcp-config.json"]),
        project_file: Some(".mcp.json"),
        shape: Shape::Copilot,
        timeout: timeout("timeout", 3_600_000, None),
        skills: skills(&[SHARED_SKILLS], Some(SHARED_PROJECT_SKILLS)),
        ..PLAIN
    },
    McpClient {
        id: "qwen",
        name: "Qwen Code",
        programs: &["qwen"],
        traces: &["~/.qwen"],
        user_file: same(&["~/.qwen"], &["settings.json"]),
        project_file: Some(".qwen/settings.json"),
        shape: Shape::Qwen,
        skills: skills(&["~/.qwen/skills"], Some(".qwen/skills")),
        ..PLAIN
    },
    McpClient {
        id: "kimi",
        name: "Kimi Code",
        programs: &["kimi"],
        traces: &["~/.kimi-code"],
        user_file: same(&["~/.kimi-code"], &["mcp.json"]),
        timeout: timeout("toolTimeoutMs", 3_600_000, Some(1_500)),
        skills: skills(&[SHARED_SKILLS], None),
        ..PLAIN
    },
    McpClient {
        id: "cline",
        name: "Cline (CLI)",
        programs: &["cline"],
        traces: &["~/.cline"],
        user_file: same(&["~/.cline/data/settings"], &["cline_mcp_settings.json"]),
        timeout: timeout("timeout", 3_600, Some(1_500)),
        skills: skills(&["~/.cline/skills"], None),
        ..PLAIN
    },
    McpClient {
        id: "cline-vscode",
        name: "Cline (VS Code)",
        user_file: Some(UserFile {
            linux: &[
                "$XDG_CONFIG_HOME/Code/User/globalStorage/saoudrizwan.claude-dev/settings",
                "~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings",
            ],
            macos: &[
                "~/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings",
            ],
            names: &["cline_mcp_settings.json"],
        }),
        timeout: timeout("timeout", 3_600, Some(1_500)),
        skills: skills(&["~/.cline/skills"], None),
        ..PLAIN
    },
    McpClient {
        id: "claude-desktop",
        name: "Claude Desktop",
        traces: &[
            "$XDG_CONFIG_HOME/Claude",
            "~/.config/Claude",
            "~/Library/Application Support/Claude",
        ],
        user_file: Some(UserFile {
            linux: &["$XDG_CONFIG_HOME/Claude", "~/.config/Claude"],
            macos: &["~/Library/Application Support/Claude"],
            names: &["claude_desktop_config.json"],
        }),
        is_desktop_app: true,
        ..PLAIN
    },
    McpClient {
        id: "jetbrains",
        name: "JetBrains IDEs",
        is_desktop_app: true,
        note: Some(
            "paste it in Settings | Tools | AI Assistant | Model Context Protocol (MCP), or in the MCP settings of Junie",
        ),
        ..PLAIN
    },
];

/// Returns the client with an id.
#[must_use]
pub fn find_client(id: &str) -> Option<&'static McpClient> {
    CLIENTS.iter().find(|client| client.id == id)
}
