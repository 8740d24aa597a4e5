//! The search index of requests and reports, which is updated from the event history in the
//! background.
//!
//! Events say what may have changed. A document is built from the current state of the store, so
//! indexing an event twice is harmless.

use super::unspaced::{indexed, joined};
use super::{FoundText, Hit, Part, Query, Source, Terms, collect, tag};
use crate::store::db::{params, params_from_iter};
use crate::store::ids::{request_id, run_id};
use crate::store::{
    Connection, Request, Run, StoreError, Tx, report_of, request_by_id, run_by_id, turn_of_run,
};
use adjutant_core::chat::Viewer;
use adjutant_core::report::Report;
use adjutant_core::signal::Clarification;
use adjutant_core::{EventKind, Principal, RequestId, RequestKind, RunId, Time};

/// Maximum number of events that one step examines.
const EVENTS_MAX: i64 = 20_000;
/// Maximum number of documents that one transaction indexes, so that other writers do not wait
/// long.
const MADE_MAX: usize = 50;
/// Of how many documents the sources are read together, because a server then answers in few round
/// trips.
const READ_TOGETHER_MAX: usize = 12;

/// The next part to index.
#[derive(Debug, Clone, Default)]
pub struct Backlog {
    jobs: Vec<Job>,
    /// The stored position up to which the history is indexed.
    pub put_down: i64,
    /// The position up to which the history is indexed after these jobs.
    pub seq: i64,
    /// Whether there are further events.
    pub more: bool,
}

impl Backlog {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Request(RequestId),
    Report(RunId),
    /// All runs of a tree, because its owner changed.
    Tree(RunId),
}

/// The kinds of events after which something is indexed.
const INDEXED: [EventKind; 6] = [
    EventKind::RequestAsked,
    EventKind::RequestAnswered,
    EventKind::RequestRevoked,
    EventKind::RunReported,
    EventKind::RunFinished,
    EventKind::RunAdopted,
];

/// Finds what must be indexed for the events after `after`.
///
/// # Errors
/// A failure of the store.
pub fn search_backlog(connection: &Connection, after: i64) -> Result<Backlog, StoreError> {
    let seen: i64 = connection
        .prepare_cached("SELECT seq FROM search_seen")?
        .read_row([])?;
    let after = after.max(seen);
    let last: i64 = connection
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM events")?
        .read_row([])?;
    let end = last.min(after + EVENTS_MAX).max(after);
    let mut backlog = Backlog {
        seq: after,
        put_down: seen,
        ..Backlog::default()
    };
    let kinds = INDEXED.map(|kind| format!("'{}'", kind.word())).join(", ");
    let sql = format!(
        "SELECT seq, kind, run, request FROM events WHERE seq > ?1 AND seq <= ?2 AND kind IN ({kinds}) ORDER BY seq"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([after, end])?;
    while let Some(row) = rows.next()? {
        let (seq, kind, run, request): (i64, String, String, Option<String>) = row.read()?;
        let run = || run_id(&run);
        let job = match EventKind::from_word(&kind) {
            Some(
                EventKind::RequestAsked | EventKind::RequestAnswered | EventKind::RequestRevoked,
            ) => request
                .map(|id| request_id(&id))
                .transpose()?
                .map(Job::Request),
            Some(EventKind::RunReported | EventKind::RunFinished) => Some(Job::Report(run()?)),
            Some(EventKind::RunAdopted) => Some(Job::Tree(run()?)),
            _ => None,
        };
        if let Some(job) = job.filter(|job| !backlog.jobs.contains(job)) {
            if backlog.jobs.len() == MADE_MAX {
                backlog.more = true;
                return Ok(backlog);
            }
            backlog.jobs.push(job);
        }
        backlog.seq = seq;
    }
    backlog.seq = end;
    backlog.more = end < last;
    Ok(backlog)
}

/// The content of a document, and the run that it belongs to.
struct Document {
    kind: &'static str,
    reference: String,
    run: RunId,
    at: Time,
    tags: Vec<String>,
    text: String,
}

fn known_document(connection: &Connection, reference: &str) -> Result<Option<i64>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT id FROM search_docs WHERE ref = ?1")?
        .find_row([reference])?)
}

fn document_of_request(request: &Request) -> Document {
    let mut text = request.question.clone();
    let mut tags = vec![
        tag('o', &request.owner.to_string()),
        tag('a', &Principal::Run(request.run).to_string()),
        "k1".to_owned(),
    ];
    if request.subject.kind() == RequestKind::Question || text.contains('?') {
        tags.push("q".to_owned());
    }
    // The clarification of a group is indexed with its first question.
    let is_first = request.group.is_none_or(|group| group.first == request.no);
    let clarification = request
        .clarification
        .clone()
        .filter(|_| is_first)
        .unwrap_or_default();
    let Clarification {
        reason,
        blocked_at,
        resume_with,
        state,
    } = &clarification;
    let along = [reason, blocked_at, resume_with, state]
        .into_iter()
        .flatten();
    for more in request.context.iter().chain(along).chain(&request.options) {
        text.push('\n');
        text.push_str(more);
    }
    if let Some(answer) = request.state.answer() {
        text.push_str("\n→ ");
        text.push_str(&answer.decision.to_text());
        tags.push(tag('a', &answer.by.to_string()));
    }
    Document {
        kind: "request",
        reference: request.id.to_string(),
        run: request.run,
        at: request.asked_at,
        tags,
        text,
    }
}

impl Tx<'_> {
    /// Updates the index to the end of a backlog.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn index(&mut self, backlog: &Backlog) -> Result<(), StoreError> {
        for jobs in backlog.jobs.chunks(READ_TOGETHER_MAX) {
            jobs.iter().for_each(|job| announce_sources(self, *job));
            // All of them are read before the first one is stored.
            let mut documents = Vec::with_capacity(jobs.len());
            for job in jobs {
                let document = match job {
                    Job::Request(id) => request_by_id(self.connection(), *id)?
                        .map(|request| document_of_request(&request)),
                    Job::Report(id) => match run_by_id(self.connection(), *id)? {
                        Some(run) => document_of_report(self, &run)?,
                        None => None,
                    },
                    Job::Tree(_) => None,
                };
                if let Some(document) = document {
                    documents.push((
                        known_document(self.connection(), &document.reference)?,
                        document,
                    ));
                }
            }
            for (known, document) in &documents {
                store_document(self, *known, document)?;
            }
            for job in jobs {
                if let Job::Tree(id) = job {
                    index_tree(self, *id)?;
                }
            }
        }
        self.prepare("UPDATE search_seen SET seq = larger(seq, ?1)")?
            .run([backlog.seq])?;
        Ok(())
    }
}

fn index_tree(tx: &mut Tx<'_>, root: RunId) -> Result<(), StoreError> {
    let found: Vec<(String, String)> = tx
        .prepare("SELECT d.kind, d.ref FROM runs r JOIN search_docs d ON d.run = r.id WHERE r.root = (SELECT root FROM runs WHERE id = ?1)")?
        .read_rows([root.to_string()])?;
    for (kind, reference) in found {
        match kind.as_str() {
            "request" => {
                if let Some(request) = request_by_id(tx.connection(), request_id(&reference)?)? {
                    store_again(tx, &document_of_request(&request))?;
                }
            }
            _ => {
                let document = run_by_id(tx.connection(), run_id(&reference)?)?
                    .map(|run| document_of_report(tx, &run))
                    .transpose()?
                    .flatten();
                if let Some(document) = document {
                    store_again(tx, &document)?;
                }
            }
        }
    }
    Ok(())
}

/// `None`: there is nothing to index.
fn document_of_report(tx: &Tx<'_>, run: &Run) -> Result<Option<Document>, StoreError> {
    // An answer in a chat is already indexed as an entry.
    if turn_of_run(tx.connection(), run.id)?.is_some() {
        return Ok(None);
    }
    let (report, _) = report_of(tx.connection(), run.id)?;
    let mut parts: Vec<&str> = run.summary.iter().map(String::as_str).collect();
    if let Some(Report {
        status: _,
        summary,
        deliverables,
        metrics,
        issues,
        recommendations,
        duration: _,
    }) = &report
    {
        parts.push(summary);
        parts.extend(deliverables.iter().map(String::as_str));
        parts.extend(
            [metrics, issues, recommendations]
                .into_iter()
                .flatten()
                .map(String::as_str),
        );
    }
    parts.extend(run.reconstructed.as_deref().or(run.result.as_deref()));
    let mut unique: Vec<&str> = Vec::new();
    for part in parts {
        if !part.trim().is_empty() && !unique.contains(&part) {
            unique.push(part);
        }
    }
    if unique.is_empty() {
        return Ok(None);
    }
    let text = unique.join("\n");
    let mut tags = vec![
        tag('o', &run.owner.to_string()),
        tag('a', &Principal::Run(run.id).to_string()),
        "k2".to_owned(),
    ];
    tags.extend(run.parent.map(|parent| tag('p', &parent.to_string())));
    if text.contains('?') {
        tags.push("q".to_owned());
    }
    Ok(Some(Document {
        kind: "report",
        reference: run.id.to_string(),
        run: run.id,
        at: run.ended_at.unwrap_or(tx.now()),
        tags,
        text,
    }))
}

/// Announces the reads for a document.
fn announce_sources(tx: &Tx<'_>, job: Job) {
    let connection = tx.connection();
    match job {
        Job::Request(id) => {
            connection.announce(|connection| request_by_id(connection, id));
            connection.announce(|connection| known_document(connection, &id.to_string()));
        }
        Job::Report(id) => {
            connection.announce(|connection| run_by_id(connection, id));
            connection.announce(|connection| turn_of_run(connection, id));
            connection.announce(|connection| report_of(connection, id));
            connection.announce(|connection| known_document(connection, &id.to_string()));
        }
        Job::Tree(_) => {}
    }
}

fn store_again(tx: &mut Tx<'_>, document: &Document) -> Result<(), StoreError> {
    let known = known_document(tx.connection(), &document.reference)?;
    store_document(tx, known, document)
}

/// Stores a document. `known`: its number, if it is stored already.
fn store_document(
    tx: &mut Tx<'_>,
    known: Option<i64>,
    document: &Document,
) -> Result<(), StoreError> {
    let Document {
        kind,
        reference,
        run,
        at,
        tags,
        text,
    } = document;
    let id = match known {
        Some(id) => {
            tx.prepare("DELETE FROM search_fts WHERE rowid = ?1")?
                .run([id])?;
            tx.prepare("UPDATE search_docs SET at = ?2 WHERE id = ?1")?
                .run(params![id, at.0])?;
            id
        }
        None => tx
            .prepare("INSERT INTO search_docs (kind, ref, run, at) VALUES (?1, ?2, ?3, ?4)")?
            .insert("id", params![kind, reference, run.to_string(), at.0])?,
    };
    let text = if tx.connection().has_fts5() {
        indexed(text)
    } else {
        text.into()
    };
    tx.prepare("INSERT INTO search_fts (rowid, tags, text) VALUES (?1, ?2, ?3)")?
        .run(params![id, tags.join(" "), text])?;
    Ok(())
}

pub(super) fn find(
    connection: &Connection,
    viewer: &Viewer,
    query: &Query,
    words: &str,
) -> Result<Part, StoreError> {
    let wants = |source| query.within.is_empty() || query.within.contains(&source);
    let mut terms = Terms::new(words);
    match (wants(Source::Questions), wants(Source::Reports)) {
        (true, true) => {}
        (true, false) => terms.tags(&["k1".to_owned()]),
        (false, true) => terms.tags(&["k2".to_owned()]),
        (false, false) => return Ok(Part::default()),
    }
    let who = viewer.who.to_string();
    match &viewer.who {
        Principal::Person => {}
        Principal::Client(_) => {
            terms.tags(&[tag('o', &who)]);
            terms.add("r.owner = ?", who);
        }
        // A run sees its own requests and reports, and the reports of runs that it delegated to.
        Principal::Run(id) => {
            terms.tags(&[tag('a', &who), tag('p', &id.to_string())]);
            terms.add(
                "(d.run = ? OR (d.kind = 'report' AND r.parent = ?))",
                id.to_string(),
            );
        }
    }
    if let Some(from) = &query.from {
        terms.tags(&[tag('a', from)]);
    }
    if query.has_question {
        terms.tags(&["q".to_owned()]);
    }
    for (time, condition) in [(query.since, "d.at >= ?"), (query.until, "d.at < ?")] {
        if let Some(Time(at)) = time {
            terms.add(condition, at);
        }
    }
    let order = if query.best {
        terms.among_newest(connection, "search_fts")?;
        "f.rank"
    } else {
        "f.rowid DESC"
    };
    let sql = format!(
        "SELECT d.kind, d.ref, d.at, snippet(search_fts, 1, char(2), char(3), '…', {})
         FROM search_fts f CROSS JOIN search_docs d ON d.id = f.rowid CROSS JOIN runs r ON r.id = d.run
         WHERE search_fts MATCH ?1{} ORDER BY {order} LIMIT ?{}",
        terms.snippet_words,
        terms.conditions,
        terms.values.len() + 1
    );
    let mut statement = connection.prepare_cached(&sql)?;
    collect(
        statement.query(params_from_iter(terms.values(query.limit)))?,
        |row| {
            let (kind, reference, at, snippet): (String, String, _, _) = row.read()?;
            let corrupt = || StoreError::Corrupt(format!("{kind} {reference} of the index"));
            let found = if kind == "request" {
                let id = RequestId::parse(&reference).map_err(|_| corrupt())?;
                FoundText::Request(Box::new(
                    request_by_id(connection, id)?.ok_or_else(corrupt)?,
                ))
            } else {
                let id = RunId::parse(&reference).map_err(|_| corrupt())?;
                FoundText::Report(Box::new(run_by_id(connection, id)?.ok_or_else(corrupt)?))
            };
            Ok(Hit {
                found,
                at,
                snippet: joined(snippet),
            })
        },
    )
}
