//! A hub that dies before or after it commits a call about peers: the call is repeated with its
//! key, and is made once.

use super::{Pair, add, kill_hub};
use crate::serve::hub_with;
use crate::support::TestHome;
use adjutant_api::view::{
    AddPeer, BlockPeer, Call, ErrorView, FollowChat, InvitePeer, RemovePeer, ShareChat,
    UnfollowChat,
};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Child;

const FAILPOINTS: [&str; 2] = ["store.before_commit", "store.after_commit"];

/// A hub that dies at a failpoint as soon as a file is removed.
struct Dying<'a> {
    home: &'a TestHome,
    hub: Child,
    failpoint: &'static str,
    fired: PathBuf,
    calls: usize,
}

impl<'a> Dying<'a> {
    /// Replaces the hub of a home.
    fn new(home: &'a TestHome, failpoint: &'static str) -> Self {
        home.ok(&["stop"]);
        let fired = home.work().join("fired");
        std::fs::write(&fired, "").expect("a file");
        let hub = hub_with(home, &format!("{failpoint}={}", fired.display()));
        Self {
            home,
            hub,
            failpoint,
            fired,
            calls: 0,
        }
    }

    /// Makes a call during which the hub dies, twice more with the next hub, and again after `undo`
    /// has reverted it.
    fn make_once<C: Call>(&mut self, call: &C, is_made: impl Fn() -> bool, undo: impl FnOnce()) {
        self.calls += 1;
        let name = format!("{}-{}-{}", self.failpoint, C::NAME, self.calls);
        let make = || {
            self.home
                .call(call, &name)
                .map(|reply| serde_json::to_value(reply).expect("JSON"))
        };
        assert!(!is_made(), "{name}: before the call");
        std::fs::remove_file(&self.fired).expect("it is there");
        let lost: Result<Value, ErrorView> = make();
        assert!(lost.is_err(), "{name}: {lost:?}");
        assert!(!self.hub.wait().expect("it dies").success(), "{name}");
        std::fs::write(&self.fired, "").expect("a file");
        self.hub = hub_with(
            self.home,
            &format!("{}={}", self.failpoint, self.fired.display()),
        );
        let replies = [0, 1].map(|_| make().unwrap_or_else(|error| panic!("{name}: {error:?}")));
        assert_eq!(replies[0], replies[1], "{name}");
        assert!(is_made(), "{name}: after the call");
        undo();
        assert!(!is_made(), "{name}: after it was reverted");
        assert_eq!(
            make().unwrap_or_else(|error| panic!("{name}: {error:?}")),
            replies[0],
            "{name}"
        );
        assert!(!is_made(), "{name}: a repeated call has a second effect");
    }
}

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        // A failed test must not leave it.
        let _killed = self.hub.kill();
        let _reaped = self.hub.wait();
    }
}

/// Returns a field of the only peer. `Null`: there is none.
fn of_caller(home: &TestHome, field: &str) -> Value {
    home.json(&["peer", "list"])["peers"][0][field].clone()
}

fn share(shared: bool) -> ShareChat {
    ShareChat {
        chat_id: 1,
        peer: "lab".to_owned(),
        read_only: false,
        shared,
    }
}

fn block(blocked: bool) -> BlockPeer {
    BlockPeer {
        name: "lab".to_owned(),
        blocked,
    }
}

#[test]
fn call_about_access_during_which_the_hub_dies_is_made_once() {
    for failpoint in FAILPOINTS {
        let home = TestHome::new();
        home.ok(&["chat", "start", "plans"]);
        let mut dying = Dying::new(&home, failpoint);
        let run = |args: &'static [&'static str]| drop(home.ok(args));
        let is_known = || of_caller(&home, "name") == "lab";
        let invite = InvitePeer {
            name: "lab".to_owned(),
            sha256: "ab".repeat(32),
        };
        dying.make_once(&invite, is_known, || run(&["peer", "remove", "lab"]));
        run(&["peer", "invite", "lab"]);
        let is_shared = || of_caller(&home, "shared") == 1;
        dying.make_once(&share(true), is_shared, || {
            run(&["chat", "unshare", "1", "lab"])
        });
        run(&["chat", "share", "1", "lab"]);
        dying.make_once(
            &share(false),
            || !is_shared(),
            || run(&["chat", "share", "1", "lab"]),
        );
        let is_blocked = || of_caller(&home, "blocked") == true;
        dying.make_once(&block(true), is_blocked, || {
            run(&["peer", "unblock", "lab"])
        });
        run(&["peer", "block", "lab"]);
        dying.make_once(
            &block(false),
            || !is_blocked(),
            || run(&["peer", "block", "lab"]),
        );
        let removal = RemovePeer {
            name: "lab".to_owned(),
        };
        dying.make_once(&removal, || !is_known(), || run(&["peer", "invite", "lab"]));
    }
}

#[test]
fn call_about_following_during_which_the_hub_dies_is_made_once() {
    for failpoint in FAILPOINTS {
        let pair = Pair::strangers();
        let token = pair.invite();
        pair.office.ok(&["chat", "start", "plans"]);
        pair.office.ok(&["chat", "share", "1", "lab"]);
        pair.lab.ok(&["ps"]);
        let mut dying = Dying::new(&pair.lab, failpoint);
        let secrets = || std::fs::read_dir(pair.lab.home.peers_dir()).map_or(0, Iterator::count);
        let office = AddPeer {
            name: "office".to_owned(),
            url: pair.url(),
            token: token.clone(),
            fingerprint: None,
            plain: false,
        };
        let is_added = || {
            let is_known = of_caller(&pair.lab, "name") == "office";
            // One private file for the peer, whatever calls were lost.
            assert_eq!(secrets(), usize::from(is_known), "{failpoint}");
            is_known
        };
        let remove = || drop(pair.lab.ok(&["peer", "remove", "office"]));
        dying.make_once(&office, is_added, remove);
        add(&pair.lab, "office", &pair.url(), &token).expect("added");
        let follow = || drop(pair.lab.ok(&["chat", "follow", "office", "1"]));
        let is_followed = || of_caller(&pair.lab, "followed") == 1;
        let unfollow = |chat: &str| {
            pair.lab.ok(&["chat", "unfollow", chat]);
            // A repeated call does not need the other hub.
            kill_hub(&pair.office);
        };
        let call = FollowChat {
            peer: "office".to_owned(),
            chat: 1,
            client: None,
        };
        dying.make_once(&call, is_followed, || unfollow("1"));
        pair.office.ok(&["ps"]);
        follow();
        // The tasks of the copy commit nothing while the other hub is unreachable.
        kill_hub(&pair.office);
        let has_problem =
            || pair.lab.json(&["chat", "show", "2"])["chat"]["followed"]["problem"].is_string();
        pair.lab
            .until("the copy has a problem", || has_problem().then_some(()));
        let refollow = || {
            pair.office.ok(&["ps"]);
            follow();
        };
        dying.make_once(&UnfollowChat { chat_id: 2 }, || !is_followed(), refollow);
        assert_eq!(
            pair.lab
                .json(&["chat", "ls", "--all"])
                .as_array()
                .map(Vec::len),
            Some(3),
            "one copy for each of three calls"
        );
    }
}
