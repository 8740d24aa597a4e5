//! The README's commands bring up a hub and a runner on two machines, which are two network
//! namespaces here.

use crate::readme::{block, blocks, typed};
use crate::support::{Ran, TestHome, skip};
use std::os::unix::fs::PermissionsExt;

const SECTION: &str = "Agents on other machines";

/// Connects a second network namespace, `gpu1`, and gives this one the name `hub.example.org`. For
/// root of a user namespace.
const NETWORK: &str = "
mount -t tmpfs none /run
ip link set lo up
ip netns add gpu1
ip link add gpu1 type veth peer name eth0 netns gpu1
ip address add 10.77.0.1/24 dev gpu1
ip link set gpu1 up
ip -n gpu1 address add 10.77.0.2/24 dev eth0
ip -n gpu1 link set eth0 up
ip -n gpu1 link set lo up
printf '127.0.0.1 localhost\\n10.77.0.1 hub.example.org\\n' > /run/hosts
mount --bind /run/hosts /etc/hosts
";

/// Runs a command on the other machine. Its first argument is the name of the machine.
const SSH: &str = "#!/bin/sh
[ \"$1\" = gpu1 ] && shift
cd \"$THERE\"
[ $# = 1 ] && set -- sh -c \"$1\"
exec nsenter --net=/run/netns/gpu1 env HOME=\"$THERE\" ADJ_HOME=\"$THERE/home\" \"$@\"
";

/// Makes a program beside the working directory.
fn add_program(home: &TestHome, name: &str, text: &str) {
    let path = home.work().with_file_name(name);
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a program");
}

#[test]
fn commands_of_the_readme_connect_two_machines() {
    if !["/usr/sbin/ip", "/sbin/ip"]
        .iter()
        .any(|ip| std::path::Path::new(ip).exists())
    {
        return skip("ip (iproute2) is not installed");
    }
    let home = TestHome::with_config(block(SECTION, "toml"));
    let [bring_up, work] = blocks(SECTION, "sh")[..] else {
        panic!("two blocks of commands")
    };
    let [go, certify, permit, join] = bring_up.lines().collect::<Vec<_>>()[..] else {
        panic!("four lines: {bring_up}")
    };
    // Lines of the README, except that the runner is a background process, and a run that waits for
    // its person ends a wait with 3.
    let work = work.replacen(
        "adj wait far ",
        "code=0; adj wait far || code=$?; [ $code = 3 ] ",
        1,
    );
    let at = home.work().with_file_name("gpu1");
    std::fs::create_dir(&at).expect("a directory");
    add_program(&home, "ssh", SSH);
    let script = format!(
        "{NETWORK}
export PATH={bin}:$PATH:/usr/sbin:/sbin THERE={there}
git config --global user.name U
git config --global user.email u@example.org
git init -q -b main . && git commit -q --allow-empty -m first
( {go}
{certify}
{permit} ) 2> said || {{ cat said; exit 1; }}
printed=\"ssh gpu1 $(sed -n 's/^there: //p' said)\"
documented='{join}'
pin=$(expr \"$printed\" : '.*--fingerprint \\([0-9a-f]*\\)')
[ \"$printed\" = \"$(echo \"$documented\" | sed \"s/SHA256/$pin/; s/gpu1.token/FILE/; s/--pool gpu/--pool POOL/\")\" ] || {{ echo \"$printed\"; exit 1; }}
mkfifo \"$THERE/log\"
line=
[ \"$(stat -c %a \"$THERE/gpu1.token\")\" = 600 ]
eval \"exec $(echo \"$documented\" | sed \"s/SHA256/$pin/\")\" > \"$THERE/log\" 2>&1 &
runner=$!
exec 3< \"$THERE/log\"
until expr \"$line\" : '.*joined'; do read -r line <&3; echo \"$line\"; done
{work}
ip -n gpu1 -o address | grep -q 10.77.0.2
kill $runner
code=0; wait $runner || code=$?
cat <&3
[ $code = 0 ]
adj peer invite lab > invited 2>&1
grep -q 'https://hub.example.org:7317' invited || {{ cat invited; exit 1; }}
adj stop
",
        bin = home.work().parent().expect("a directory").display(),
        there = at.display(),
    );
    let file = home.work().with_file_name("two-machines");
    std::fs::write(&file, script).expect("written");
    let ran: Ran = typed(
        &home,
        &format!(
            "exec timeout 60 unshare --user --map-root-user --net --mount sh -eu {}",
            file.display()
        ),
    )
    .output()
    .expect("a shell")
    .into();
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    assert_eq!(
        std::fs::read_to_string(home.work().join("notes.txt")).expect("merged work"),
        "Hello\n"
    );
    let far = home.show("far");
    assert_eq!(
        (far["outcome"].as_str(), far["pool"].as_str()),
        (Some("succeeded"), Some("gpu")),
        "{far}"
    );
    let clone = at.join("home/workspaces");
    assert!(
        std::fs::read_dir(&clone)
            .expect("workspaces of the runner")
            .count()
            > 0,
        "{ran:?}"
    );
}
