//! Programs of the user that save a file at each moment of its replacement.

use super::{Cause, Content, FileOutcome, LeftAlone, Settled, Slot, Stamp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

type Save = Box<dyn FnMut(&str)>;

thread_local! {
    static SAVE: RefCell<Option<Save>> = const { RefCell::new(None) };
}

/// Lets the program of a test work at a moment.
pub(super) fn reach(moment: &str) {
    SAVE.with_borrow_mut(|save| {
        if let Some(save) = save {
            save(moment);
        }
    });
}

/// A directory of the user in which `file` is replaced by `new`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        fs::write(place.path("file"), "old\n").expect("a file");
        place
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn slot(&self) -> Slot {
        Slot::new(
            File::open(self.0.path()).expect("a directory").into(),
            OsStr::new("file"),
            Path::new("file"),
        )
    }

    fn seen(&self) -> Option<Stamp> {
        Stamp::of(&self.path("file")).expect("a stamp")
    }

    /// Replaces the file, while `save` works at the given moments.
    fn replace(&self, save: impl FnMut(&str) + 'static) -> FileOutcome {
        let seen = self.seen();
        with(save, || {
            self.slot()
                .replace(seen, make("new\n"))
                .expect("the disk works")
        })
    }

    fn remove(&self, save: impl FnMut(&str) + 'static) -> FileOutcome {
        let seen = self.seen();
        with(save, || self.slot().remove(seen).expect("the disk works"))
    }

    /// All files with their content.
    fn files(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.0.path()).expect("a directory").flatten();
        let read = |path: &Path| match fs::read_link(path) {
            Ok(target) => format!("-> {}", target.display()),
            Err(_) if path.is_dir() => "directory".to_owned(),
            Err(_) => fs::read_to_string(path).expect("a text"),
        };
        entries
            .map(|entry| {
                (
                    entry.file_name().to_string_lossy().into_owned(),
                    read(&entry.path()),
                )
            })
            .collect()
    }

    fn expect(&self, files: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        assert_eq!(self.files(), expected);
    }

    /// Saves the file as editors do that write another file first.
    fn saver(&self, at: &'static [&'static str]) -> impl FnMut(&str) + use<> {
        let (path, mut count) = (self.path("file"), 0);
        move |moment: &str| {
            if at.contains(&moment) {
                count += 1;
                fs::write(path.with_extension("swp"), format!("save {count}\n")).expect("a file");
                fs::rename(path.with_extension("swp"), &path).expect("it is saved");
            }
        }
    }
}

fn with<T>(save: impl FnMut(&str) + 'static, work: impl FnOnce() -> T) -> T {
    SAVE.set(Some(Box::new(save)));
    let done = work();
    SAVE.set(None);
    done
}

fn make(text: &str) -> impl FnOnce(BorrowedFd<'_>, &OsStr) -> std::io::Result<()> {
    move |dir, name| {
        use rustix::fs::{Mode, OFlags};
        let file = rustix::fs::openat(
            dir,
            name,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
            Mode::from_raw_mode(0o644),
        )?;
        File::from(file).write_all(text.as_bytes())
    }
}

const CHANGED: FileOutcome = FileOutcome::LeftAlone(LeftAlone {
    cause: Cause::Changed,
    kept_as: None,
});

fn kept(cause: Cause) -> FileOutcome {
    FileOutcome::LeftAlone(LeftAlone {
        cause,
        kept_as: Some("file.adj-kept-1".into()),
    })
}

/// The expected files of a directory: names with contents.
type Files = &'static [(&'static str, &'static str)];

#[test]
fn file_is_replaced_created_and_removed() {
    let place = Place::new();
    assert_eq!(place.replace(|_| {}), FileOutcome::Done);
    place.expect(&[("file", "new\n")]);
    assert_eq!(place.remove(|_| {}), FileOutcome::Done);
    place.expect(&[]);
    assert_eq!(
        place.remove(|_| {}),
        FileOutcome::Done,
        "it is gone already"
    );
    assert_eq!(place.replace(|_| {}), FileOutcome::Done);
    place.expect(&[("file", "new\n")]);
    fs::remove_file(place.path("file")).expect("removed");
    symlink("elsewhere", place.path("file")).expect("a link");
    assert_eq!(place.replace(|_| {}), FileOutcome::Done);
    place.expect(&[("file", "new\n")]);
}

#[test]
fn save_before_the_last_look_is_left_alone() {
    let place = Place::new();
    let seen = place.seen();
    let mut save = place.saver(&["now"]);
    save("now");
    assert_eq!(
        place
            .slot()
            .replace(seen, make("new\n"))
            .expect("the disk works"),
        CHANGED
    );
    assert_eq!(place.slot().remove(seen).expect("the disk works"), CHANGED);
    assert_eq!(
        place
            .slot()
            .replace(None, make("new\n"))
            .expect("the disk works"),
        CHANGED,
        "it was to be created"
    );
    place.expect(&[("file", "save 1\n")]);
}

#[test]
fn save_at_the_last_look_is_put_back() {
    for name in [
        "rename",
        "write",
        "same size and times",
        "mode",
        "link",
        "directory",
        "removed",
    ] {
        let place = Place::new();
        let path = place.path("file");
        let change = move |moment: &str| {
            if moment != "looked" {
                return;
            }
            let clear = || fs::remove_file(&path).expect("removed");
            match name {
                "rename" => {
                    fs::write(path.with_extension("swp"), "save 1\n").expect("a file");
                    fs::rename(path.with_extension("swp"), &path).expect("it is saved");
                }
                "write" => fs::write(&path, "save 1\n").expect("a file"),
                "same size and times" => {
                    let times = fs::metadata(&path)
                        .expect("a file")
                        .modified()
                        .expect("a time");
                    fs::write(&path, "OLD\n").expect("a file");
                    File::options()
                        .write(true)
                        .open(&path)
                        .and_then(|file| file.set_modified(times))
                        .expect("a time");
                }
                "mode" => {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode")
                }
                "link" => {
                    clear();
                    symlink("elsewhere", &path).expect("a link");
                }
                "directory" => {
                    clear();
                    fs::create_dir(&path).expect("a directory");
                }
                _ => clear(),
            }
        };
        let expected = match name {
            "rename" | "write" => "save 1\n",
            "same size and times" => "OLD\n",
            "mode" => "old\n",
            "link" => "-> elsewhere",
            _ => "directory",
        };
        assert_eq!(place.replace(change), CHANGED, "{name}");
        if name == "removed" {
            place.expect(&[]);
        } else {
            place.expect(&[("file", expected)]);
        }
    }
}

#[test]
fn second_save_keeps_both() {
    let cases: [(&[&str], Files, FileOutcome); 4] = [
        // The new file is saved over before the check: what the user saved was based on it.
        (&["exchanged"], &[("file", "save 1\n")], FileOutcome::Done),
        (
            &["looked", "exchanged"],
            &[("file", "save 2\n"), ("file.adj-kept-1", "save 1\n")],
            kept(Cause::Changed),
        ),
        (
            &["looked", "checked"],
            &[("file", "save 2\n"), ("file.adj-kept-1", "save 1\n")],
            kept(Cause::Changed),
        ),
        (
            &["looked", "swapping"],
            &[("file", "save 2\n"), ("file.adj-kept-1", "save 1\n")],
            kept(Cause::Changed),
        ),
    ];
    for (at, files, outcome) in cases {
        let place = Place::new();
        let at: &'static [&'static str] = at
            .iter()
            .map(|at| &*at.to_string().leak())
            .collect::<Vec<&'static str>>()
            .leak();
        // At `swapping`, it saves each time: the newest save has the name.
        let mut saves = 0;
        let mut save = place.saver(at);
        let limited = move |moment: &str| {
            if at.contains(&moment) && saves < at.len() {
                saves += 1;
                save(moment);
            }
        };
        assert_eq!(place.replace(limited), outcome, "{at:?}");
        place.expect(files);
    }
}

#[test]
fn endless_saves_end_with_both_files() {
    let place = Place::new();
    let outcome = place.replace(place.saver(&["looked", "exchanged", "checked", "swapping"]));
    assert!(
        matches!(
            outcome,
            FileOutcome::LeftAlone(LeftAlone {
                kept_as: Some(_),
                ..
            })
        ),
        "{outcome:?}"
    );
    let files = place.files();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(
        files.values().all(|text| text.starts_with("save ")),
        "{files:?}"
    );
}

#[test]
fn created_file_never_replaces_another() {
    let place = Place::new();
    fs::remove_file(place.path("file")).expect("removed");
    assert_eq!(place.replace(place.saver(&["looked"])), CHANGED);
    place.expect(&[("file", "save 1\n")]);
}

#[test]
fn removal_is_reverted() {
    let place = Place::new();
    assert_eq!(place.remove(place.saver(&["looked"])), CHANGED);
    place.expect(&[("file", "save 1\n")]);
    // The second save has the name before the first one comes back.
    assert_eq!(
        place.remove(place.saver(&["looked", "swapping"])),
        kept(Cause::Changed)
    );
    place.expect(&[("file", "save 2\n"), ("file.adj-kept-1", "save 1\n")]);
    // A new file under the name stays, and the old one is removed.
    let place = Place::new();
    assert_eq!(place.remove(place.saver(&["exchanged"])), FileOutcome::Done);
    place.expect(&[("file", "save 1\n")]);
}

#[test]
fn file_open_for_writing_is_left_alone() {
    let place = Place::new();
    let mut open = OpenOptions::new()
        .append(true)
        .open(place.path("file"))
        .expect("a file");
    let in_use = FileOutcome::LeftAlone(Cause::InUse.into());
    assert_eq!(place.replace(|_| {}), in_use);
    assert_eq!(place.remove(|_| {}), in_use);
    open.write_all(b"more\n").expect("it can be written");
    place.expect(&[("file", "old\nmore\n")]);
    drop(open);
    let reader = File::open(place.path("file")).expect("a file");
    assert_eq!(
        place.replace(|_| {}),
        FileOutcome::Done,
        "reading does not prevent it"
    );
    drop(reader);
}

#[test]
fn what_a_killed_process_left_is_settled() {
    let content = |text: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("x"), text).expect("a file");
        Content::of(&dir.path().join("x")).expect("a content")
    };
    let known = [content("old\n"), content("new\n")];
    let beside = |place: &Place| place.slot().beside.to_string_lossy().into_owned();
    let cases: [(&str, Option<&str>, Settled, Files); 6] = [
        ("old\n", Some("new\n"), Settled::Clean, &[("file", "new\n")]),
        ("new\n", Some("old\n"), Settled::Clean, &[("file", "old\n")]),
        (
            "new\n",
            Some("edited\n"),
            Settled::Clean,
            &[("file", "edited\n")],
        ),
        (
            "saved\n",
            Some("new\n"),
            Settled::PutBack,
            &[("file", "saved\n")],
        ),
        ("saved\n", None, Settled::PutBack, &[("file", "saved\n")]),
        (
            "saved\n",
            Some("again\n"),
            Settled::Kept("file.adj-kept-1".into()),
            &[("file", "again\n"), ("file.adj-kept-1", "saved\n")],
        ),
    ];
    for (stray, file, settled, files) in cases {
        let place = Place::new();
        fs::write(place.path(&beside(&place)), stray).expect("a file");
        fs::write(place.path(&format!("{}.new", beside(&place))), "ne").expect("a file");
        match file {
            Some(text) => fs::write(place.path("file"), text).expect("a file"),
            None => fs::remove_file(place.path("file")).expect("removed"),
        }
        assert_eq!(
            place.slot().settle(&known).expect("the disk works"),
            settled,
            "{stray} {file:?}"
        );
        place.expect(files);
    }
}

#[test]
fn kept_names_are_never_taken_twice() {
    let place = Place::new();
    fs::write(place.path("file.adj-kept-1"), "an earlier one\n").expect("a file");
    place.replace(place.saver(&["looked", "checked"]));
    place.expect(&[
        ("file", "save 2\n"),
        ("file.adj-kept-1", "an earlier one\n"),
        ("file.adj-kept-2", "save 1\n"),
    ]);
}
