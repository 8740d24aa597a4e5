//! The files of the dashboard.

/// One file.
pub(super) struct File {
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! scripts {
    ($($path:literal),* $(,)?) => { [$(File { path: concat!("/", $path), kind: SCRIPT, text: include_str!($path) }),*] };
}

/// The page, its style and its icon, and the style of the page behind a link.
const PAGE: [File; 4] = [
    File {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: include_str!("index.html"),
    },
    File {
        path: "/app.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("app.css"),
    },
    File {
        path: "/answer.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("answer.css"),
    },
    File {
        path: "/icon.svg",
        kind: "image/svg+xml",
        text: include_str!("icon.svg"),
    },
];

const SCRIPTS: [File; 28] = scripts![
    "js/app.js",
    "js/lib.js",
    "js/api.js",
    "js/session.js",
    "js/state.js",
    "js/actions.js",
    "js/keys.js",
    "js/guard.js",
    "js/drafts.js",
    "js/unsent.js",
    "js/not-found.js",
    "js/text.js",
    "js/parts.js",
    "js/request.js",
    "js/dialogs.js",
    "js/pages/board.js",
    "js/pages/inbox.js",
    "js/pages/run.js",
    "js/pages/changes.js",
    "js/pages/chats.js",
    "js/pages/timeline.js",
    "js/pages/tree.js",
    "js/pages/pools.js",
    "vendor/preact.mjs",
    "vendor/hooks.mjs",
    "vendor/signals.mjs",
    "vendor/signals-core.mjs",
    "vendor/htm.mjs",
];

/// Returns the file at a path.
pub(super) fn find(path: &str) -> Option<&'static File> {
    static ALL: [&[File]; 2] = [&PAGE, &SCRIPTS];
    ALL.into_iter().flatten().find(|file| file.path == path)
}
