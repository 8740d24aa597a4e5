//! A run's completion report and the evidence for it.

use crate::store::db::{Connection, params};
use crate::store::events::first_line;
use crate::store::records::run::Run;
use crate::store::{StoreError, Tx, append_event};
use adjutant_core::report::{Claim, Report, ReportStatus};
use adjutant_core::{EventKind, EventSeq, Principal, RunId};
use serde::{Deserialize, Serialize};

/// A serialized report.
#[derive(Serialize, Deserialize)]
struct ReportRow {
    status: String,
    summary: String,
    deliverables: Vec<String>,
    metrics: Option<String>,
    issues: Option<String>,
    recommendations: Option<String>,
    duration: Option<String>,
}

impl ReportRow {
    fn of(report: &Report) -> Self {
        let Report {
            status,
            summary,
            deliverables,
            metrics,
            issues,
            recommendations,
            duration,
        } = report.clone();
        Self {
            status: status.word().to_owned(),
            summary,
            deliverables,
            metrics,
            issues,
            recommendations,
            duration,
        }
    }

    fn decode(self) -> Option<Report> {
        let Self {
            status,
            summary,
            deliverables,
            metrics,
            issues,
            recommendations,
            duration,
        } = self;
        let status = ReportStatus::from_word(&status)?;
        Some(Report {
            status,
            summary,
            deliverables,
            metrics,
            issues,
            recommendations,
            duration,
        })
    }
}

/// Reads a run's report, and the evidence as its supervisor stated it.
///
/// # Errors
/// A failure of the store.
pub fn report_of(
    connection: &Connection,
    run: RunId,
) -> Result<(Option<Report>, Option<String>), StoreError> {
    let row: Option<(Option<String>, Option<String>)> = connection
        .prepare_cached("SELECT report, saw FROM reports WHERE run = ?1")?
        .find_row([run.to_string()])?;
    let Some((report, evidence)) = row else {
        return Ok((None, None));
    };
    let corrupt = |error: String| StoreError::Corrupt(format!("the report of run {run}: {error}"));
    let report = report
        .map(|text| serde_json::from_str::<ReportRow>(&text))
        .transpose()
        .map_err(|error| corrupt(error.to_string()))?;
    let report = report
        .map(|row| row.decode().ok_or_else(|| corrupt("its status".to_owned())))
        .transpose()?;
    Ok((report, evidence))
}

impl Tx<'_> {
    /// Records a run's completion report. The newest one counts.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn report(&mut self, run: &Run, claim: Claim, report: &Report) -> Result<Run, StoreError> {
        let text = format!("{}: {}", claim.word(), first_line(&report.summary));
        let by = Principal::Run(run.id).to_string();
        let seq = append_event(
            self,
            EventKind::RunReported,
            run.id,
            &run.owner.to_string(),
            None,
            &by,
            text.trim_end(),
        )?;
        let summary = Some(&report.summary).filter(|summary| !summary.is_empty());
        self.prepare("UPDATE runs SET claim = ?2, summary = coalesce(?3, summary) WHERE id = ?1")?
            .run(params![run.id.to_string(), claim.word(), summary])?;
        self.set_reported(run.id, seq)?;
        let text = serde_json::to_string(&ReportRow::of(report))
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("INSERT INTO reports (run, report) VALUES (?1, ?2) ON CONFLICT (run) DO UPDATE SET report = excluded.report")?
            .run(params![run.id.to_string(), text])?;
        self.touch(run.id, seq)?;
        self.run(run.id)
    }

    /// Records that a run has reported its result with this event, so that its end is expected.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_reported(&self, run: RunId, seq: EventSeq) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET reported_at = ?2, report_seq = ?3 WHERE id = ?1")?
            .run(params![run.to_string(), self.happened_at().0, seq.0])?;
        Ok(())
    }

    /// Stores the evidence that a supervisor collected after the end of an attempt.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_evidence(&mut self, run: RunId, evidence: &str) -> Result<(), StoreError> {
        self.prepare("INSERT INTO reports (run, saw) VALUES (?1, ?2) ON CONFLICT (run) DO UPDATE SET saw = excluded.saw")?
            .run(params![run.to_string(), evidence])?;
        Ok(())
    }
}

/// Records that a run which has reported makes another statement: it works on, so the report is
/// no reason to expect its end.
///
/// # Errors
/// A failure of the store.
pub(in crate::store) fn supersede_report(tx: &Tx<'_>, run: &Run) -> Result<(), StoreError> {
    if run.reported.is_some() {
        tx.prepare("UPDATE runs SET reported_at = NULL, report_seq = NULL WHERE id = ?1")?
            .run([run.id.to_string()])?;
    }
    Ok(())
}
