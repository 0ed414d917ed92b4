//! The replay of one loop as text.

use jiff::SignedDuration;

use super::ShownReplay;
use ganglion_api::decision::Outcome;
use ganglion_core::duration::show;
use ganglion_core::layout::{clock, paragraph, table};
use ganglion_loops_plan::replay::{AlarmTime, ReplayReport, ReplayedDecision};

/// Number of rows of decisions that are listed.
pub const LISTED: usize = 200;

/// A decision, and how often it was made before another one was carried out.
pub struct RepeatedDecision<'a> {
    pub decision: &'a ReplayedDecision,
    times: usize,
}

impl RepeatedDecision<'_> {
    /// The change or the reason, with the number of times if there are several.
    pub fn change(&self) -> String {
        let change = change(self.decision);
        if self.times > 1 { format!("{change} ({} times)", self.times) } else { change }
    }
}

/// The decisions. Until the next one is carried out, those that changed nothing for the same reason are one row.
pub fn folded(decisions: &[ReplayedDecision]) -> Vec<RepeatedDecision<'_>> {
    let mut rows: Vec<RepeatedDecision> = Vec::new();
    let mut begin = 0;
    for decision in decisions {
        let is_same = |row: &&mut RepeatedDecision| {
            let other = row.decision;
            (&other.when, other.outcome, other.rung, change(other))
                == (&decision.when, decision.outcome, decision.rung, change(decision))
        };
        let is_served = decision.outcome == Some(Outcome::Served);
        match rows.iter_mut().skip(begin).find(is_same).filter(|_| !is_served) {
            Some(row) => row.times += 1,
            None => rows.push(RepeatedDecision { decision, times: 1 }),
        }
        if is_served {
            begin = rows.len();
        }
    }
    rows
}

/// The text of the terminal.
pub fn text(shown: &ShownReplay) -> String {
    let ShownReplay { file, report, .. } = shown;
    let mut text = format!("ClosedLoop {} of {file}\n", report.name);
    text += &basis(shown);
    text += &section("DECISIONS", decisions(report));
    text += &paragraph("TOTALS  ", &totals(report));
    text += &section("ALARMS", alarms(report));
    text += &section("NOT SERVED", held(report));
    text += &unknown(report);
    text += &limits(report);
    text
}

/// Range, origin and effect.
pub fn basis(shown: &ShownReplay) -> String {
    let ShownReplay { values, report, .. } = shown;
    let length = show(report.end.duration_since(report.start));
    let range = format!(
        "{} to {} UTC ({length}), {} evaluations; values of {values}",
        clock(report.start),
        clock(report.end),
        report.evaluations
    );
    paragraph("  ", &range) + &paragraph("  effect of the actions on the values: ", &report.effect)
}

/// A table with a title; empty if the table is.
fn section(title: &str, table: String) -> String {
    if table.is_empty() { String::new() } else { format!("\n{title}\n{table}\n") }
}

fn decisions(report: &ReplayReport) -> String {
    if report.decisions.is_empty() {
        return "none\n".to_owned();
    }
    let row = |row: &RepeatedDecision| {
        let decision = row.decision;
        vec![
            clock(decision.at),
            decision.when.clone(),
            decision.value.clone().unwrap_or_else(|| "-".to_owned()),
            decision.action.clone(),
            row.change(),
            outcome(decision).to_owned(),
        ]
    };
    let rows = folded(&report.decisions);
    let left_out = rows.len().saturating_sub(LISTED);
    let earlier = left_out_text(left_out);
    let header = ["TIME", "ALARM", "VALUE", "ACTION", "CHANGE", "OUTCOME"];
    earlier + &table(header, rows.iter().skip(left_out).map(row).collect())
}

/// Says how many rows are not listed; empty if all are.
pub fn left_out_text(count: usize) -> String {
    if count == 0 {
        String::new()
    } else {
        format!("{count} earlier rows are not listed; -o csv lists all decisions\n")
    }
}

/// The change of a decision, or why there is none.
fn change(decision: &ReplayedDecision) -> String {
    match (&decision.before, &decision.after) {
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (None, Some(after)) => after.clone(),
        (_, None) => decision.message.clone().unwrap_or_default(),
    }
}

/// Name of the outcome.
pub fn outcome(decision: &ReplayedDecision) -> &'static str {
    decision.outcome.map_or("Proposed", |outcome| match outcome {
        Outcome::Served => "Served",
        Outcome::DryRun => "DryRun",
        Outcome::Limited => "Limited",
        Outcome::Failed => "Failed",
        Outcome::Overtaken => "Overtaken",
        Outcome::Lost => "Lost",
        Outcome::Withdrawn => "Withdrawn",
    })
}

fn totals(report: &ReplayReport) -> String {
    let totals = &report.totals;
    let counts = [
        (totals.served, "carried out"),
        (totals.dry_run, "would be carried out in mode Auto"),
        (totals.limited, "at a bound"),
        (totals.failed, "failed"),
        (totals.withdrawn, "withdrawn"),
        (totals.proposed, "not approved"),
        (totals.reversals, "in the opposite direction of the one before"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
    let parts: Vec<String> = [format!("{} decisions", totals.decisions)].into_iter().chain(counts).collect();
    let starved = match report.starved.as_slice() {
        [] => String::new(),
        starved => format!("; never served although others were: {}", starved.join(", ")),
    };
    format!("{}{starved}", parts.join(", "))
}

/// Time in words.
pub fn seconds(seconds: f64) -> String {
    show(SignedDuration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Name of an alarm, with its level.
pub fn alarm_name(alarm: &AlarmTime) -> String {
    let level = alarm.level.as_ref().map(|level| format!(" ({level})")).unwrap_or_default();
    format!("{} {}{level}", alarm.side, alarm.metric)
}

fn alarms(report: &ReplayReport) -> String {
    let row = |alarm: &AlarmTime| {
        vec![alarm_name(alarm), seconds(alarm.beyond_seconds), seconds(alarm.raised_seconds), alarm.raised.to_string()]
    };
    let rows: Vec<Vec<String>> = report.alarms.iter().map(row).collect();
    if rows.is_empty() { String::new() } else { table(["ALARM (LEVEL)", "BEYOND", "RAISED", "TIMES"], rows) }
}

fn held(report: &ReplayReport) -> String {
    let rows: Vec<Vec<String>> = report
        .held
        .iter()
        .map(|held| vec![held.when.clone(), held.reason.clone(), seconds(held.seconds), held.times.to_string()])
        .collect();
    if rows.is_empty() { String::new() } else { table(["ALARM", "REASON", "TIME", "TIMES"], rows) }
}

/// Times without a value.
pub fn unknown(report: &ReplayReport) -> String {
    let rows: Vec<Vec<String>> = report
        .unknown
        .iter()
        .map(|one| vec![one.metric.clone(), seconds(one.seconds), one.times.to_string(), one.reason.clone()])
        .collect();
    if rows.is_empty() { String::new() } else { section("UNKNOWN", table(["METRIC", "TIME", "TIMES", "REASON"], rows)) }
}

/// Assumptions of the replay, and parts of the loop that the history does not contain.
pub fn limits(report: &ReplayReport) -> String {
    let lines: String = report.limits.iter().map(|limit| paragraph("- ", limit)).collect();
    format!("\nNOT IN THE HISTORY\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(seq: i64, when: &str, outcome: Outcome) -> ReplayedDecision {
        let after = (outcome == Outcome::Served).then(|| "3".to_owned());
        ReplayedDecision {
            seq,
            at: jiff::Timestamp::UNIX_EPOCH,
            when: when.to_owned(),
            value: None,
            rung: 1,
            action: "scale by 1".to_owned(),
            before: after.clone(),
            after,
            outcome: Some(outcome),
            message: Some("it is at 3, and max is 3".to_owned()),
        }
    }

    #[test]
    fn decisions_that_changed_nothing_are_one_row_until_the_next_change() {
        let all = [
            decision(1, "High a", Outcome::Served),
            decision(2, "High a", Outcome::Limited),
            decision(3, "High b", Outcome::Limited),
            decision(4, "High a", Outcome::Limited),
            decision(5, "High a", Outcome::Served),
            decision(6, "High a", Outcome::Limited),
        ];
        let rows = folded(&all);
        let shown: Vec<(i64, String)> = rows.iter().map(|row| (row.decision.seq, row.change())).collect();
        let limited = "it is at 3, and max is 3";
        let expected = [
            (1, "3 -> 3".to_owned()),
            (2, format!("{limited} (2 times)")),
            (3, limited.to_owned()),
            (5, "3 -> 3".to_owned()),
            (6, limited.to_owned()),
        ];
        assert_eq!(shown, expected);
    }
}
