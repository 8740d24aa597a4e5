//! Completion reports: a run's claims about its work. They are checked against evidence (the exit
//! of the process, the named files, the acceptance command): each field is verified, unverified or
//! contradicted, with a reason.

use crate::units::duration;
use crate::{Exit, words};

/// Maximum number of files that are looked up for one report.
pub const FILES_MAX: usize = 64;
/// Longest path that is looked up, in bytes.
const PATH_BYTES_MAX: usize = 1_024;

/// The status that a run claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportStatus {
    Success,
    Partial,
    Failed,
}

words!(ReportStatus { Success = "success", Partial = "partial_success", Failed = "failed" });

/// A run's claim about its end: a status of its report, or `completed`, which means success. These
/// are the words of a block and of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    Success,
    Completed,
    Partial,
    Failed,
}

words!(Claim { Success = "success", Completed = "completed", Partial = "partial_success" | "partial", Failed = "error" | "failed" });

impl Claim {
    /// Returns the claim that a run's own word states. `None`: no claim, or a success with
    /// reservations, which is none.
    #[must_use]
    pub fn spoken(text: &str) -> Option<Self> {
        let (claim, is_alone) = words::spoken_first(text)?;
        match claim {
            Self::Success | Self::Completed if !is_alone => None,
            claim => Some(claim),
        }
    }

    /// Returns the corresponding status of a report.
    #[must_use]
    pub fn status(self) -> ReportStatus {
        match self {
            Self::Success | Self::Completed => ReportStatus::Success,
            Self::Partial => ReportStatus::Partial,
            Self::Failed => ReportStatus::Failed,
        }
    }
}

impl From<ReportStatus> for Claim {
    fn from(status: ReportStatus) -> Self {
        match status {
            ReportStatus::Success => Self::Success,
            ReportStatus::Partial => Self::Partial,
            ReportStatus::Failed => Self::Failed,
        }
    }
}

/// A run's completion report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub status: ReportStatus,
    pub summary: String,
    pub deliverables: Vec<String>,
    pub metrics: Option<String>,
    pub issues: Option<String>,
    pub recommendations: Option<String>,
    pub duration: Option<String>,
}

impl Report {
    /// Formats the report without its summary, for readers who build on the work.
    #[must_use]
    pub fn details(&self) -> String {
        let Self {
            status,
            summary: _,
            deliverables,
            metrics,
            issues,
            recommendations,
            duration: _,
        } = self;
        let part = |label: &str, text: &Option<String>| {
            text.as_ref()
                .map(|text| format!("{label}: {}", text.trim()))
        };
        let parts = [
            (*status != ReportStatus::Success).then(|| format!("Status: {}", status.word())),
            (!deliverables.is_empty())
                .then(|| format!("Deliverables: {}", deliverables.join(", "))),
            part("Metrics", metrics),
            part("Issues", issues),
            part("Recommendations", recommendations),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

/// The state of a file that a report names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// A regular file. `sha256` is in hex; `None` for a file that is too large to be read.
    File {
        bytes: u64,
        sha256: Option<String>,
    },
    Directory,
    Missing,
    /// Outside of the run's directory, so it was not examined.
    Outside,
    /// It exists and could not be examined.
    Unreadable(String),
}

/// A file that a report names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedFile {
    pub path: String,
    pub seen: FileState,
}

/// The result of the acceptance command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptanceResult {
    Ended(Exit),
    /// It was stopped, because its time was used up or with the run.
    Stopped(String),
    /// It could not be started, or its result is unknown.
    NotKnown(String),
}

impl AcceptanceResult {
    /// Returns whether it has passed, or `None` if that is unknown.
    #[must_use]
    pub fn passed(&self) -> Option<bool> {
        match self {
            Self::Ended(exit) => Some(*exit == Exit::Code(0)),
            Self::Stopped(_) => Some(false),
            Self::NotKnown(_) => None,
        }
    }
}

/// The evidence against which a report is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The exit of the agent's process. `None`: it is running.
    pub exit: Option<Exit>,
    /// The run was stopped.
    pub stopped: bool,
    /// The state of the named files. `None`: they were not examined.
    pub files: Option<Vec<ReportedFile>>,
    pub acceptance: Option<AcceptanceResult>,
    pub open_requests: u64,
    /// The measured active time.
    pub active_ms: i64,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Verified,
    Unverified,
    Contradicted,
}

words!(Verdict { Verified = "verified", Unverified = "unverified", Contradicted = "contradicted" });

/// The verdict about one field of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The field's name in the protocol.
    pub field: &'static str,
    pub verdict: Verdict,
    pub reason: String,
}

/// Finds the files that deliverables name. In each entry or line, text in backquotes is a path;
/// otherwise a single word is one; otherwise each word that contains a slash or ends like a file
/// name (a dot and 1 to 10 letters and digits, the first of them a letter). URLs are not paths.
#[must_use]
pub fn named_files(deliverables: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in deliverables.iter().flat_map(|entry| entry.lines()) {
        let line = line.trim().trim_start_matches(['-', '*', '•']).trim();
        let quoted: Vec<&str> = line
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .collect();
        let words: Vec<&str> = line.split_whitespace().map(bare).collect();
        let paths = match (quoted.is_empty(), words.as_slice()) {
            (false, _) => quoted,
            // A word with a colon is a heading, not a path.
            (true, [one]) if !line.ends_with(':') => vec![*one],
            (true, all) => all
                .iter()
                .copied()
                .filter(|word| is_like_a_path(word))
                .collect(),
        };
        for path in paths {
            let usable = !path.is_empty()
                && path.len() <= PATH_BYTES_MAX
                && !path.contains("://")
                && !path.contains('\0');
            if usable && found.len() < FILES_MAX && !found.iter().any(|known| known == path) {
                found.push(path.to_owned());
            }
        }
    }
    found
}

/// Removes surrounding punctuation from a word.
fn bare(word: &str) -> &str {
    word.trim_start_matches(['(', '[', '<', '"', '\'', '→', '✓', '✗'])
        .trim_end_matches([')', ']', '>', '"', '\'', ',', ';', ':', '!', '?', '.'])
}

fn is_like_a_path(word: &str) -> bool {
    let stem_and_end = word.rsplit_once('.').filter(|(stem, end)| {
        let named =
            stem.chars().any(char::is_alphanumeric) && (stem.chars().count() > 1 || end.len() > 1);
        named
            && (1..=10).contains(&end.len())
            && end.starts_with(|c: char| c.is_ascii_alphabetic())
            && end.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    let has_inner_slash =
        word.trim_matches('/').contains('/') || (word.len() > 2 && word.ends_with('/'));
    stem_and_end.is_some() || (has_inner_slash && word.chars().any(char::is_alphabetic))
}

/// Checks a report against the evidence. Returns a finding for each field that it has.
#[must_use]
pub fn check(report: &Report, saw: &Evidence) -> Vec<Finding> {
    let mut findings = vec![status(report, saw), prose("summary")];
    if !report.deliverables.is_empty() {
        findings.push(deliverables(saw));
    }
    if report.metrics.is_some() {
        findings.push(metrics(report.status, saw));
    }
    if report.issues.is_some() {
        findings.push(prose("issues_encountered"));
    }
    if report.recommendations.is_some() {
        findings.push(prose("recommendations"));
    }
    if report.duration.is_some() {
        let reason = format!("measured: {} of active time", duration::text(saw.active_ms));
        findings.push(Finding {
            field: "total_duration",
            verdict: Verdict::Unverified,
            reason,
        });
    }
    findings
}

/// Returns the overall verdict: contradicted if any finding is, verified if the status is.
#[must_use]
pub fn overall(findings: &[Finding]) -> Verdict {
    if findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Contradicted)
    {
        return Verdict::Contradicted;
    }
    findings
        .iter()
        .find(|finding| finding.field == "status")
        .map_or(Verdict::Unverified, |finding| finding.verdict)
}

fn prose(field: &'static str) -> Finding {
    Finding {
        field,
        verdict: Verdict::Unverified,
        reason: "a claim that cannot be checked".to_owned(),
    }
}

fn status(report: &Report, saw: &Evidence) -> Finding {
    let made = |verdict, reason: &str| Finding {
        field: "status",
        verdict,
        reason: reason.to_owned(),
    };
    let passed = saw.acceptance.as_ref().and_then(AcceptanceResult::passed);
    let missing = saw
        .files
        .iter()
        .flatten()
        .filter(|file| file.seen == FileState::Missing)
        .count();
    let Some(exit) = saw.exit else {
        return made(Verdict::Unverified, "the run has not ended");
    };
    match report.status {
        ReportStatus::Failed if passed == Some(true) => {
            made(Verdict::Contradicted, "the acceptance command passed")
        }
        ReportStatus::Failed if passed == Some(false) => {
            made(Verdict::Verified, "the acceptance command did not pass")
        }
        ReportStatus::Failed if exit != Exit::Code(0) && !saw.stopped => {
            made(Verdict::Verified, &format!("its process ended with {exit}"))
        }
        ReportStatus::Failed => made(Verdict::Unverified, "nothing found confirms the failure"),
        ReportStatus::Success | ReportStatus::Partial if exit != Exit::Code(0) && !saw.stopped => {
            made(
                Verdict::Contradicted,
                &format!("its process ended with {exit}"),
            )
        }
        ReportStatus::Success if passed == Some(false) => {
            made(Verdict::Contradicted, "the acceptance command did not pass")
        }
        ReportStatus::Success if missing > 0 => made(
            Verdict::Contradicted,
            &format!("{missing} of its deliverables are missing"),
        ),
        ReportStatus::Success if saw.open_requests > 0 => made(
            Verdict::Contradicted,
            &format!("{} of its requests are open", saw.open_requests),
        ),
        ReportStatus::Success if passed == Some(true) => {
            made(Verdict::Verified, "the acceptance command passed")
        }
        ReportStatus::Partial if passed.is_some() => made(
            Verdict::Unverified,
            "an acceptance command does not measure partial success",
        ),
        ReportStatus::Success | ReportStatus::Partial => match &saw.acceptance {
            Some(AcceptanceResult::NotKnown(why)) => made(
                Verdict::Unverified,
                &format!("the result of the acceptance command is unknown: {why}"),
            ),
            _ => made(Verdict::Unverified, "no acceptance command was given"),
        },
    }
}

fn deliverables(saw: &Evidence) -> Finding {
    let made = |verdict, reason: String| Finding {
        field: "deliverables",
        verdict,
        reason,
    };
    let Some(files) = &saw.files else {
        return made(Verdict::Unverified, "not checked".to_owned());
    };
    let named = |test: fn(&FileState) -> bool| {
        files
            .iter()
            .filter(|file| test(&file.seen))
            .map(|file| file.path.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let missing = named(|seen| *seen == FileState::Missing);
    let outside = named(|seen| *seen == FileState::Outside);
    let unreadable = named(|seen| matches!(seen, FileState::Unreadable(_)));
    if !missing.is_empty() {
        return made(Verdict::Contradicted, format!("missing: {missing}"));
    }
    if !outside.is_empty() {
        return made(
            Verdict::Unverified,
            format!("outside the run's directory, not checked: {outside}"),
        );
    }
    if !unreadable.is_empty() {
        return made(Verdict::Unverified, format!("cannot be read: {unreadable}"));
    }
    match files.len() {
        0 => made(Verdict::Unverified, "it names no file".to_owned()),
        1 => made(Verdict::Verified, "it is there".to_owned()),
        all => made(Verdict::Verified, format!("all {all} exist")),
    }
}

fn metrics(claimed: ReportStatus, saw: &Evidence) -> Finding {
    let made = |verdict, reason: &str| Finding {
        field: "metrics_achieved",
        verdict,
        reason: reason.to_owned(),
    };
    match (
        saw.acceptance.as_ref().and_then(AcceptanceResult::passed),
        claimed,
    ) {
        (Some(true), _) => made(Verdict::Verified, "the acceptance command passed"),
        (Some(false), ReportStatus::Success) => {
            made(Verdict::Contradicted, "the acceptance command did not pass")
        }
        (Some(false), _) => made(Verdict::Unverified, "the acceptance command did not pass"),
        (None, _) => prose("metrics_achieved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: ReportStatus) -> Report {
        Report {
            status,
            summary: "done".to_owned(),
            deliverables: vec!["A.md".to_owned()],
            metrics: Some("✓ all".to_owned()),
            issues: None,
            recommendations: None,
            duration: None,
        }
    }

    fn seen(path: &str, seen: FileState) -> ReportedFile {
        ReportedFile {
            path: path.to_owned(),
            seen,
        }
    }

    fn ended(files: Vec<ReportedFile>, acceptance: Option<AcceptanceResult>) -> Evidence {
        Evidence {
            exit: Some(Exit::Code(0)),
            files: Some(files),
            acceptance,
            ..Evidence::default()
        }
    }

    fn verdict_of(findings: &[Finding], field: &str) -> Verdict {
        findings
            .iter()
            .find(|finding| finding.field == field)
            .map(|finding| finding.verdict)
            .expect("a finding")
    }

    #[test]
    fn files_are_found_in_lists_and_in_prose() {
        let lines = |text: &str| named_files(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        let original = "Generated files:\n- SECURITY_ANALYSIS.md (comprehensive report)\n- SECURITY_FINDINGS.jsonl (structured findings, 47 entries)\n- docs/plan (prioritized)";
        assert_eq!(
            lines(original),
            [
                "SECURITY_ANALYSIS.md",
                "SECURITY_FINDINGS.jsonl",
                "docs/plan"
            ]
        );
        assert_eq!(lines("Makefile\nsrc/lib.rs"), ["Makefile", "src/lib.rs"]);
        assert_eq!(
            lines("The report is in `out dir/a b.txt`, see also x.md."),
            ["out dir/a b.txt"]
        );
        assert_eq!(
            lines("Wrote out/a.csv, and b.json; see https://x.org/y.html (e.g. version 2.0)"),
            ["out/a.csv", "b.json"]
        );
        assert_eq!(
            lines("../../etc/passwd\nA.md\nA.md"),
            ["../../etc/passwd", "A.md"]
        );
        assert_eq!(
            named_files(&(0..200).map(|n| format!("f{n}.txt")).collect::<Vec<_>>()).len(),
            FILES_MAX
        );
    }

    #[test]
    fn success_is_verified_only_by_evidence() {
        let there = || {
            vec![seen(
                "A.md",
                FileState::File {
                    bytes: 1,
                    sha256: None,
                },
            )]
        };
        let claims = report(ReportStatus::Success);
        let passed = check(
            &claims,
            &ended(there(), Some(AcceptanceResult::Ended(Exit::Code(0)))),
        );
        assert_eq!(overall(&passed), Verdict::Verified);
        assert_eq!(verdict_of(&passed, "metrics_achieved"), Verdict::Verified);
        let alone = check(&claims, &ended(there(), None));
        assert_eq!(
            (overall(&alone), verdict_of(&alone, "deliverables")),
            (Verdict::Unverified, Verdict::Verified)
        );
        for evidence in [
            ended(vec![seen("A.md", FileState::Missing)], None),
            ended(there(), Some(AcceptanceResult::Ended(Exit::Code(1)))),
            ended(
                there(),
                Some(AcceptanceResult::Stopped("its time was used up".to_owned())),
            ),
            Evidence {
                exit: Some(Exit::Code(3)),
                ..ended(there(), None)
            },
            Evidence {
                open_requests: 1,
                ..ended(there(), None)
            },
        ] {
            assert_eq!(
                overall(&check(&claims, &evidence)),
                Verdict::Contradicted,
                "{evidence:?}"
            );
        }
        let unknown = check(
            &claims,
            &ended(
                there(),
                Some(AcceptanceResult::NotKnown("its supervisor died".to_owned())),
            ),
        );
        assert_eq!(overall(&unknown), Verdict::Unverified);
    }

    #[test]
    fn files_outside_the_directory_are_never_verified() {
        let outside = check(
            &report(ReportStatus::Success),
            &ended(vec![seen("../x.md", FileState::Outside)], None),
        );
        assert_eq!(verdict_of(&outside, "deliverables"), Verdict::Unverified);
    }

    #[test]
    fn claimed_failure_is_checked_too() {
        let claims = report(ReportStatus::Failed);
        assert_eq!(
            verdict_of(
                &check(
                    &claims,
                    &ended(vec![], Some(AcceptanceResult::Ended(Exit::Code(0))))
                ),
                "status"
            ),
            Verdict::Contradicted
        );
        assert_eq!(
            verdict_of(
                &check(
                    &claims,
                    &ended(vec![], Some(AcceptanceResult::Ended(Exit::Code(2))))
                ),
                "status"
            ),
            Verdict::Verified
        );
        assert_eq!(
            verdict_of(&check(&claims, &ended(vec![], None)), "status"),
            Verdict::Unverified
        );
    }
}
