//! Files that a merge or an undo writes have the modes that git would give them for the user.

use super::{git_output, name_user, repository, start_clone, succeeded};
use adjutant_api::view::GetHub;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn merged_and_restored_files_have_the_users_umask() {
    for (umask, file, program, dir) in [("002", 0o664, 0o775, 0o775), ("077", 0o600, 0o700, 0o700)]
    {
        let home = repository();
        let work = home.work();
        name_user(&work);
        let own = home.command(&["__hub"]);
        let mut hub = Command::new("sh");
        hub.args(["-c", &format!("umask {umask}; exec \"$0\" __hub")])
            .arg(own.get_program())
            .env_clear();
        hub.envs(
            own.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(&work);
        let mut hub = hub
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a hub");
        home.until("the hub takes calls", || home.call(&GetHub {}, "").ok());
        start_clone(
            &home,
            "adds",
            "mkdir -p new/dir; echo x > new/dir/file; echo x > new/tool; chmod +x new/tool",
        );
        succeeded(&home, "adds");
        home.ok(&["merge", "adds"]);
        let modes = || {
            ["new/dir/file", "new/tool", "new/dir"].map(|path| {
                fs::metadata(work.join(path))
                    .expect("it is there")
                    .permissions()
                    .mode()
                    & 0o777
            })
        };
        assert_eq!(modes(), [file, program, dir], "merged with umask {umask}");
        assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
        home.ok(&["run", "-w", "-a", "sh", "-n", "removes", "do rm -r new"]);
        home.ok(&["undo", "removes"]);
        assert_eq!(modes(), [file, program, dir], "restored with umask {umask}");
        home.ok(&["stop"]);
        hub.wait().expect("it ends");
    }
}
