//! All limits that users can reach. Each name ends with its unit.

/// Longest question, answer, prompt message or note, in bytes of UTF-8.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Longest last message of a run that is kept, in bytes of UTF-8. Of a longer one, the end is kept;
/// the log has the rest.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// How much of the end of a last message is shown with its run, in bytes.
pub const RESULT_SHOWN_BYTES_MAX: usize = 16 * 1024;
/// Longest prompt of a run, in bytes of UTF-8.
pub const PROMPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest run or client name given by a user, in bytes.
pub const NAME_BYTES_MAX: usize = 50;
/// Longest idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 200;
/// Maximum number of answers to choose from in one question.
pub const OPTIONS_MAX: usize = 20;
/// Longest option of a question, in bytes.
pub const OPTION_BYTES_MAX: usize = 2_000;
/// Longest preview of an action to approve, in bytes. A longer one could not be reviewed.
pub const PREVIEW_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of requests that one run may have open at once.
pub const OPEN_REQUESTS_MAX: usize = 20_000;
/// Unread messages of a chat are counted up to this number.
pub const UNREAD_COUNTED_MAX: i64 = 1_000;
/// How long a question stays open by default: 24 hours.
pub const EXPIRY_MS_DEFAULT: i64 = 24 * 60 * 60 * 1000;
/// Longest expiry that can be requested: 30 days.
pub const EXPIRY_MS_MAX: i64 = 30 * 24 * 60 * 60 * 1000;
/// Shortest expiry of an approval or a delegation: 60 s, or the configured expiry if that is
/// shorter.
pub const DECISION_EXPIRY_MS_MIN: i64 = 60 * 1000;
/// How long one `check_answer` waits before it fails as stalled: 300 s.
pub const PATIENCE_MS_DEFAULT: i64 = 300 * 1000;
/// How long an agent may neither write nor make a call before it is reported as silent: 10 minutes.
pub const STALL_MS_DEFAULT: i64 = 10 * 60 * 1000;
/// How long an agent may neither write nor make a call after its report before its run needs
/// attention: 1 minute.
pub const REPORT_GRACE_MS_DEFAULT: i64 = 60 * 1000;
/// Grace between TERM and KILL when an attempt is stopped.
pub const GRACE_MS_DEFAULT: i64 = 8 * 1000;
/// How long a stopped run can be resumed before it is finished: 7 days.
pub const STOPPED_RETENTION_MS_DEFAULT: i64 = 7 * 24 * 60 * 60 * 1000;
