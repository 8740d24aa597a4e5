//! Machines without user namespaces: runs with the fence `best-effort` use Landlock.

use super::{SHELL, assert_said, attempt, text};
use crate::processes::Mark;
use crate::support::TestHome;
use serde_json::json;
use std::process::{Command, Stdio};

/// Runs the first command, and so the hub that it starts, with restricted features of the kernel.
/// `setup` is a shell script that restricts them as root of a user namespace and ends with the
/// command.
fn started_where(home: &TestHome, unshare: &[&str], setup: &str, args: &[&str]) {
    run_where(home, unshare, setup, &home.command(args));
}

/// The same for a prepared command of `adj`.
pub fn run_where(home: &TestHome, unshare: &[&str], setup: &str, own: &Command) {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user"])
        .args(unshare)
        .args(["sh", "-ec", setup, "sh"])
        .arg(own.get_program())
        .args(own.get_args())
        .env_clear();
    command.envs(
        own.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(home.work()).stdin(Stdio::null());
    Mark::of(&home.home.dir).put_on(&mut command);
    let ran = command.output().expect("unshare is installed");
    assert!(ran.status.success(), "{ran:?}");
}

const NO_NAMESPACES: &str = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
/// Also without PID namespaces, which require a capability.
pub const NO_CAPABILITIES: &str = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all -- \"$@\"";

fn keeps_to_its_workspace(unshare: &[&str], setup: &str, containment: &str) {
    let home = TestHome::with_config(SHELL);
    let outside = home.work().with_file_name("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::write(outside.join("readable"), "x").expect("a file");
    let (at, own) = (text(&outside), text(&home.home.dir));
    let script = [
        attempt(
            "inside",
            "echo x > in.txt && mkdir -p a/b && mv a c && rm -r c && ln in.txt hard",
        ),
        attempt("outside", &format!("echo x > {at}/new")),
        attempt("existing outside", &format!("echo y >> {at}/readable")),
        attempt("cut outside", &format!("truncate -s 0 {at}/readable")),
        attempt("removed outside", &format!("rm {at}/readable")),
        attempt(
            "moved outside",
            &format!("mv {at}/readable . || mv in.txt {at} || ln {at}/readable here"),
        ),
        attempt("read outside", &format!("cat {at}/readable && ls {at}")),
        attempt("root", "touch /new || touch /usr/new || touch /etc/new"),
        attempt(
            "shared temporary",
            "echo x > /tmp/mine || echo x > /var/tmp/mine || echo x > /dev/shm/mine",
        ),
        attempt(
            "temporary",
            "echo x > $TMPDIR/mine && cat $TMPDIR/mine && mktemp",
        ),
        attempt("null", "echo x > /dev/null && head -c 3 /dev/urandom"),
        attempt("child", &format!("setsid sh -c 'echo x > {at}/child'")),
        attempt("mount", "mount -t tmpfs x /mnt || mount --bind / /mnt"),
        attempt("store", &format!("cat {own}/adj.db")),
        attempt("settings", &format!("cat {own}/config.toml")),
        attempt("own token", "cat $ADJ_WORKER"),
        attempt("own facts", "cat $(dirname $ADJ_WORKER)/facts.jsonl"),
    ];
    let prompt: String = script
        .concat()
        .lines()
        .map(|line| format!("do {line}\n"))
        .collect();
    started_where(
        &home,
        unshare,
        setup,
        &[
            "run",
            "-w",
            "-a",
            "sh",
            "-n",
            "less",
            "--fence",
            "best-effort",
            &prompt,
        ],
    );
    let view = home.finished("less");
    let log = home.log("less");
    let yes = ["inside", "read outside", "temporary", "null", "own token"];
    let no = [
        "outside",
        "existing outside",
        "cut outside",
        "removed outside",
        "moved outside",
        "root",
        "shared temporary",
        "child",
        "mount",
        "store",
        "settings",
        "own facts",
    ];
    assert_said(&log, &yes.map(|what| (what, true)));
    assert_said(&log, &no.map(|what| (what, false)));
    assert_eq!(
        (&view["fence"]["enforced"], &view["containment"]),
        (&json!("landlock"), &json!(containment)),
        "{view}"
    );
    let gaps = view["fence"]["not_enforced"].to_string();
    assert!(
        gaps.contains("names of hidden files")
            && gaps.contains("modes, owners, times")
            && gaps.contains("Unix socket"),
        "{gaps}"
    );
    assert_eq!(
        gaps.contains("other processes can be seen"),
        containment == "subreaper",
        "{gaps}"
    );
    let shown = home.ok(&["show", "less"]);
    assert!(
        shown.contains("best-effort, enforced by landlock: can write only")
            && shown.contains("NOT enforced: "),
        "{shown}"
    );
}

#[test]
fn landlock_is_used_without_user_namespaces() {
    keeps_to_its_workspace(
        &["--pid", "--fork", "--mount-proc"],
        NO_NAMESPACES,
        "pid_namespace",
    );
}

#[test]
fn landlock_is_used_for_an_ordinary_user() {
    keeps_to_its_workspace(&[], NO_CAPABILITIES, "subreaper");
}

#[test]
fn landlock_does_not_count_as_a_workspace_fence() {
    let home = TestHome::with_config(SHELL);
    started_where(
        &home,
        &[],
        NO_NAMESPACES,
        &[
            "run",
            "-d",
            "-a",
            "sh",
            "-n",
            "whole",
            "--fence",
            "workspace",
            "do touch ran.txt",
        ],
    );
    let view = home.finished("whole");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|why| why.contains("a user namespace cannot be made")),
        "{view}"
    );
    assert!(!home.work().join("ran.txt").exists());
}

#[test]
fn landlock_refuses_a_link_that_the_run_can_make() {
    let home = TestHome::with_config(&format!("{SHELL}fence_write = [\"~/work/cache\"]\n"));
    let outside = home.work().with_file_name("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::os::unix::fs::symlink(&outside, home.work().join("cache")).expect("a link");
    started_where(
        &home,
        &[],
        NO_NAMESPACES,
        &[
            "run",
            "-d",
            "-a",
            "sh",
            "-n",
            "linked",
            "--fence",
            "best-effort",
            "do touch ran.txt cache/new",
        ],
    );
    let view = home.finished("linked");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|why| why.contains("is a link, which the run can change")),
        "{view}"
    );
    assert!(!home.work().join("ran.txt").exists());
}

/// Covers a part of each procfs that is mounted here, for example that of a chroot: one that is
/// wholly visible would let the kernel mount another.
const NO_NEW_PROC: &str = "while read -r _ at kind _; do \
    if [ \"$kind\" = proc ]; then mount --bind /dev/null \"$at/version\"; fi; done < /proc/self/mounts; ";

fn fence_without_proc_starts_nothing(unshare: &[&str], setup: &str) {
    let home = TestHome::with_config(SHELL);
    started_where(
        &home,
        unshare,
        setup,
        &[
            "run",
            "-d",
            "-a",
            "sh",
            "-n",
            "half",
            "--fence",
            "workspace",
            "do touch ran.txt",
        ],
    );
    let view = home.finished("half");
    assert_eq!(
        (&view["outcome"], &view["fence"]["enforced"]),
        (&json!("spawn_failed"), &json!(null)),
        "{view}"
    );
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|why| why.contains("mounting /proc")),
        "{view}"
    );
    assert!(!home.work().join("ran.txt").exists());
    let id = home.run_id("half");
    home.until("no process is left", || {
        home.processes_of(&id).is_empty().then_some(())
    });
}

#[test]
fn partly_failed_fence_starts_nothing() {
    // If a part of /proc is covered, the kernel refuses to mount another: that fails after half of
    // the fence was mounted.
    fence_without_proc_starts_nothing(&["--mount"], &format!("{NO_NEW_PROC} exec \"$@\""));
}

#[test]
fn partly_failed_fence_starts_nothing_beside_another_proc() {
    // The second procfs belongs to a PID namespace, which ends with the command: the run has to end
    // before it.
    let setup = format!(
        "mkdir ../proc; mount -t proc proc ../proc; {NO_NEW_PROC} \"$@\"; \"$1\" wait half || true"
    );
    fence_without_proc_starts_nothing(&["--mount", "--pid", "--fork", "--mount-proc"], &setup);
}
