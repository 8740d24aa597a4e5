//! Attempts of a fenced agent to undo its fence.

use super::{SHELL, assert_said, attempt, fenced, text};
use crate::support::TestHome;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn mounts_cannot_be_undone() {
    let home = TestHome::with_config(SHELL);
    let at = text(&home.home.dir);
    let outside = text(home.work().parent().expect("a directory"));
    let nested =
        |command: &str| format!("unshare --user --map-root-user --mount sh -c '{command}'");
    let script = [
        attempt("unmount", &format!("umount {at} || umount -l {at}")),
        attempt(
            "remount",
            "mount -o remount,rw / || mount -o remount,bind,rw /",
        ),
        attempt("bind", &format!("mount --bind {outside} /mnt")),
        attempt("nested works", &nested("true")),
        attempt(
            "nested unmount",
            &nested(&format!("umount {at} || umount -l {at}")),
        ),
        attempt(
            "nested remount",
            &nested(
                "mount -o remount,rw / || mount -o remount,bind,rw / || mount -o remount,bind,rw /etc",
            ),
        ),
        attempt(
            "nested bind",
            &nested(&format!("mount --bind {outside} /mnt && echo x > /mnt/new")),
        ),
        attempt(
            "nested copy",
            &nested("mount --rbind / /mnt && echo x > /mnt/etc/new"),
        ),
        attempt(
            "pivot",
            &nested(
                "mount -t tmpfs x /mnt && mkdir /mnt/old && pivot_root /mnt /mnt/old && umount -l /old",
            ),
        ),
        attempt(
            "namespace of init",
            "nsenter --target 1 --mount true || nsenter --target 1 --user --mount true",
        ),
    ];
    let (_, log) = fenced(&home, "escapes", &script.concat());
    let denied = [
        "unmount",
        "remount",
        "bind",
        "nested unmount",
        "nested remount",
        "nested bind",
        "nested copy",
        "namespace of init",
    ];
    assert_said(&log, &denied.map(|what| (what, false)));
    assert_said(&log, &[("nested works", true)]);
    assert!(!home.work().with_file_name("new").exists());
}

#[test]
fn services_and_browsers_of_the_user_are_hidden() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    if !Path::new("/usr/bin/python3").exists() {
        return crate::support::skip("python3 is not installed");
    }
    let home = TestHome::with_config(SHELL);
    let user_home = home
        .work()
        .parent()
        .expect("the home of the user")
        .to_owned();
    let profile = user_home.join(".config/chromium/Default");
    std::fs::create_dir_all(&profile).expect("made");
    std::fs::write(profile.join("Cookies"), "secret").expect("written");
    std::fs::create_dir_all(user_home.join("services")).expect("made");
    let at = user_home.join("services/agent.sock");
    let _service = UnixListener::bind(&at).expect("bound");
    let name = format!("adj-test-{}", std::process::id());
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name"))
            .expect("bound");
    let connect = |to: &str| {
        format!(
            "/usr/bin/python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect({to})\""
        )
    };
    let own = "import socket; a = socket.socket(socket.AF_UNIX); a.bind(chr(0) + str(1)); a.listen(); socket.socket(socket.AF_UNIX).connect(chr(0) + str(1))";
    let script = [
        attempt(
            "profile",
            &format!("grep -q secret {}/Cookies", profile.display()),
        ),
        attempt(
            "profile is listed",
            &format!("ls {} | grep -q .", profile.display()),
        ),
        attempt("service", &connect(&format!("'{}'", at.display()))),
        attempt("abstract service", &connect(&format!("chr(0) + '{name}'"))),
        attempt("its own service", &format!("/usr/bin/python3 -c '{own}'")),
        attempt("beside", "ls $HOME/services"),
    ];
    let (_, log) = fenced(&home, "reaches", &script.concat());
    assert_said(
        &log,
        &[
            ("profile", false),
            ("profile is listed", false),
            ("service", false),
            ("its own service", true),
            ("beside", true),
        ],
    );
    // Since Linux 6.12.
    if landlock_version() >= 6 {
        assert_said(&log, &[("abstract service", false)]);
    }
}

/// Returns the kernel's version of Landlock, or 0.
fn landlock_version() -> i64 {
    let code = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))";
    let told = Command::new("/usr/bin/python3")
        .args(["-c", code])
        .output()
        .expect("python starts");
    String::from_utf8_lossy(&told.stdout)
        .trim()
        .parse()
        .unwrap_or(0)
}

#[test]
fn processes_outside_cannot_be_reached() {
    let home = TestHome::with_config(SHELL);
    let mut outside = Command::new("/bin/sleep")
        .arg("600")
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = outside.id();
    let script = [
        attempt("its own", "test -d /proc/self/root"),
        attempt(
            "its process",
            &format!("test -e /proc/{pid}/root/etc && grep -q sleep /proc/{pid}/cmdline"),
        ),
        attempt(
            "signal",
            &format!("kill -0 {pid} && grep -q sleep /proc/{pid}/cmdline"),
        ),
        attempt("hub", &format!("kill {}", std::process::id())),
        attempt(
            "root of another",
            "for p in /proc/[0-9]*; do test -e $p/root/etc && ls $p/root/../ | grep -q . && echo x > $p/root/etc/new && exit 0; done; exit 1",
        ),
    ];
    let (_, log) = fenced(&home, "reaches", &script.concat());
    outside.kill().expect("it is ours");
    outside.wait().expect("it ends");
    assert_said(
        &log,
        &[
            ("its own", true),
            ("its process", false),
            ("signal", false),
            ("hub", false),
            ("root of another", false),
        ],
    );
}

#[test]
fn root_reaches_neither_disks_nor_kernel_settings() {
    let home = TestHome::with_config(SHELL);
    let script = [
        attempt(
            "core pattern",
            "cat /proc/sys/kernel/core_pattern > /tmp/old && cat /tmp/old > /proc/sys/kernel/core_pattern",
        ),
        attempt("sysrq", "echo h > /proc/sysrq-trigger"),
        attempt(
            "fresh proc",
            "unshare --user --map-root-user --mount --pid --fork sh -c 'mount -t proc proc /proc && cat /proc/sys/kernel/core_pattern > /tmp/old && cat /tmp/old > /proc/sys/kernel/core_pattern'",
        ),
        attempt(
            "disk",
            "for d in /dev/vd* /dev/sd* /dev/nvme* /dev/loop0 /dev/mem; do dd if=$d of=/dev/null bs=1 count=1 && exit 0; done; exit 1",
        ),
        attempt(
            "own device",
            "mknod disk b 254 0 && dd if=disk of=/dev/null bs=1 count=1",
        ),
        attempt(
            "services",
            "ls /run | grep -v -e systemd -e resolvconf -e nscd -e NetworkManager | grep -q .",
        ),
    ];
    let (_, log) = fenced(&home, "roots", &script.concat());
    assert_said(
        &log,
        &[
            "core pattern",
            "sysrq",
            "fresh proc",
            "disk",
            "own device",
            "services",
        ]
        .map(|what| (what, false)),
    );
}
