//! Programs and options, as data: what runs other programs, and which options take a value.

use super::command_words::base_name;

/// Programs whose arguments are programs or code. A pattern that allows one of them must be spelled
/// out.
#[rustfmt::skip]
const RUNNERS: &[&str] = &[
    // Shells.
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "nu", "elvish", "xonsh", "pwsh", "powershell", "cmd", "busybox", "toybox",
    "eval", "exec", "command", "builtin", "source", ".", "trap",
    // Programs that start their arguments.
    "env", "xargs", "sudo", "doas", "su", "nohup", "nice", "time", "timeout", "setsid", "stdbuf", "watch", "parallel", "ssh", "chroot", "unshare",
    "nsenter", "script", "find", "fd", "fdfind", "flock", "ionice", "chrt", "taskset", "strace", "ltrace", "systemd-run", "runuser", "pkexec", "docker", "podman",
    "nerdctl", "kubectl", "npx", "pnpx", "bunx", "uvx", "pipx", "setpriv", "runcon", "firejail", "bwrap", "proot", "fakeroot", "dbus-run-session", "xvfb-run",
    "tmux", "screen", "expect", "entr", "watchexec", "nodemon", "direnv", "mise", "asdf", "nix", "nix-shell", "at", "batch", "crontab", "start-stop-daemon",
    "socat", "nc", "ncat", "telnet", "lldb", "gdb", "valgrind", "perf", "rlwrap", "unbuffer", "faketime", "ld.so", "osascript", "open",
    // Interpreters and programs whose arguments are code.
    "python", "pypy", "ipython", "node", "nodejs", "deno", "bun", "tsx", "ts-node", "perl", "ruby", "irb", "php", "lua", "luajit", "tclsh", "wish", "guile",
    "racket", "R", "Rscript", "julia", "groovy", "scala", "java", "jshell", "ghci", "erl", "elixir", "iex", "swift", "awk", "gawk", "mawk", "nawk", "sed", "gsed",
    "m4", "dc", "ed", "ex", "vi", "vim", "nvim", "view", "emacs", "less", "more", "most", "man", "psql", "mysql", "sqlite3",
];

/// Programs with options or variables that run other programs, or that read a file which does. In a
/// pattern that allows one of them, `**` and options that are not written out would allow any
/// program.
#[rustfmt::skip]
const WITH_RUNNING_OPTIONS: &[&str] = &[
    // Builds and packages.
    "cargo", "rustc", "rustdoc", "rustup", "cross", "npm", "pnpm", "yarn", "corepack", "lerna", "nx", "turbo", "gulp", "grunt", "vite", "webpack", "rollup",
    "esbuild", "tsc", "eslint", "prettier", "jest", "vitest", "mocha", "playwright", "make", "gmake", "bmake", "cmake", "ctest", "ninja", "meson", "bazel", "buck",
    "buck2", "scons", "just", "task", "rake", "bundle", "gem", "go", "gofmt", "golangci-lint", "gradle", "gradlew", "mvn", "mvnw", "ant", "sbt", "lein", "dotnet", "msbuild",
    "stack", "cabal", "mix", "rebar3", "dune", "opam", "zig", "pip", "poetry", "uv", "pdm", "hatch", "conda", "mamba", "tox", "nox", "pytest", "mypy",
    "pylint", "ruff", "black", "coverage", "composer", "phpunit", "rspec", "rubocop", "pre-commit", "brew", "apt", "apt-get", "dpkg", "rpm", "dnf", "yum", "pacman",
    "apk", "gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "as", "ar", "libtool", "install",
    // Version control, remote systems, archives, and tools with a hook for a program.
    "git", "hg", "svn", "jj", "gh", "glab", "tar", "bsdtar", "gtar", "zip", "7z", "cpio", "rsync", "scp", "sftp", "rclone", "curl", "wget", "aria2c", "terraform", "tofu",
    "ansible", "ansible-playbook", "helm", "packer", "vagrant", "aws", "gcloud", "az", "sort", "split", "rg", "ag", "ack", "bat", "delta", "fzf", "gpg", "openssl",
    "ffmpeg", "convert", "magick", "mutt", "mail", "sendmail", "logrotate", "journalctl", "systemctl", "ip", "tcpdump", "date", "journal",
];

/// Global options of common programs that take the next word as their value.
#[rustfmt::skip]
const OPTIONS_WITH_VALUE: &[&str] = &[
    "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path", "--attr-source", "--super-prefix", "--prefix", "--dir", "--cwd", "--directory",
    "--config", "--config-file", "--context", "--kubeconfig", "--cluster", "-n", "-R", "--repo", "--repository", "--profile", "--region", "--project", "--account",
    "-H", "--host", "-f", "--file", "--filter", "-w", "--workspace", "-Z", "--color", "-u", "--user", "--log-level", "-l", "--manifest-path", "--target-dir",
    "--registry", "--userconfig", "--hostname", "-o", "--output", "--token", "--tlscacert", "--tlscert", "--tlskey", "--as", "--server", "-s",
];

/// Returns whether a program runs what its arguments say.
pub(super) fn is_runner(program: &str) -> bool {
    is_one_of(RUNNERS, program)
}

/// Returns whether a program has options that run other programs.
pub(super) fn has_running_options(program: &str) -> bool {
    is_one_of(WITH_RUNNING_OPTIONS, program)
}

/// Returns whether an option of some program takes the next word as its value.
pub(super) fn takes_value(option: &str) -> bool {
    OPTIONS_WITH_VALUE.contains(&option)
}

/// Compares with and without a version: `python3.11`, `gcc-12`.
fn is_one_of(programs: &[&str], program: &str) -> bool {
    let name = base_name(program);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let unversioned = name
        .trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
        .trim_end_matches('-');
    programs.contains(&name) || programs.contains(&unversioned)
}
