//! The state of the labels of a policy, for its status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::contest::NodesAside;
use ganglion_api::placement_policy::labels::TypicalRequest;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::status::LabelStatus;
use ganglion_core::conditions::{Stamp, condition};
use ganglion_core::words::counted;

/// Condition type: each node has the label of the policy.
pub const LABELS_CURRENT: &str = "LabelsCurrent";

/// Share of the nodes, one of so many, whose labels may be outdated while those of the others are valid. One node may
/// always be.
const ASIDE: i64 = 10;

/// Labels of a policy after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelReport {
    /// Generation of the policy that the labels are of.
    pub generation: i64,
    /// Number of nodes, and of those with the label.
    pub nodes: i64,
    pub labeled: i64,
    /// Requests of the pod for which the agents answered.
    pub typical: TypicalRequest,
    /// Time of the oldest label.
    pub oldest: Option<Timestamp>,
    /// Why no node can be labeled.
    pub problem: Option<String>,
    /// Nodes whose labels others change or refuse.
    pub aside: Option<NodesAside>,
    /// Time of the pass.
    pub at: Timestamp,
}

impl LabelReport {
    /// Report for the status: the previous one while nothing has got better or worse, until the labels have to be
    /// confirmed again. A pass with a problem confirms nothing.
    #[must_use]
    pub fn next(previous: Option<&Self>, current: Self, max_age: SignedDuration) -> Self {
        let Some(previous) = previous else { return current };
        if previous.extent() != current.extent() {
            return current;
        }
        let is_due = current.at.duration_since(previous.at) >= max_age / 3;
        if is_due { current } else { previous.clone() }
    }

    fn extent(&self) -> (i64, bool, Option<&str>, Option<&NodesAside>, &TypicalRequest) {
        (self.generation, self.is_complete(), self.problem.as_deref(), self.aside.as_ref(), &self.typical)
    }

    fn is_complete(&self) -> bool {
        self.labeled == self.nodes
    }

    /// Whether all labels were compared and written, but for those of few nodes.
    fn is_current(&self) -> bool {
        let aside = self.aside.as_ref().map_or(0, |aside| i64::try_from(aside.nodes).unwrap_or(i64::MAX));
        let are_few = aside.saturating_mul(ASIDE) <= self.nodes.max(ASIDE);
        self.problem.is_none() && are_few && self.nodes - self.labeled <= aside
    }

    /// Member `labels` of the status.
    pub fn status(&self, key: String) -> LabelStatus {
        let typical_request = self.typical.clone();
        LabelStatus { key, nodes: self.labeled, oldest: self.oldest.map(Time), typical_request }
    }

    /// Time until which the labels are valid; `before` if this pass does not confirm them.
    pub fn valid_until(&self, before: Option<&Time>, max_age: SignedDuration) -> Option<Time> {
        if !self.is_current() {
            return before.cloned();
        }
        // Whole seconds, since the status has no more.
        let until = self.at.saturating_add(max_age).ok()?;
        Timestamp::from_second(until.as_second()).ok().map(Time)
    }

    /// The condition LabelsCurrent. `aside` names the agents that have no part in labels.
    pub fn condition(&self, old: &[Condition], key: &str, aside: Option<&str>, stamp: Stamp) -> Condition {
        let aside = aside.map(|words| format!("; {words}")).unwrap_or_default();
        let (status, reason, message) = match (&self.problem, &self.aside) {
            (Some(problem), _) => ("False", PolicyReason::LabelsNotWritten, problem.clone()),
            (None, Some(NodesAside { reason, words, .. })) if self.is_current() => {
                ("False", *reason, format!("{words}. The labels of the other nodes are valid"))
            }
            (None, Some(NodesAside { reason, words, .. })) => {
                let words = format!(
                    "{words}. Since these are more than a tenth, new pods get no terms after status.validUntil"
                );
                ("False", *reason, words)
            }
            (None, None) if self.is_complete() => {
                let message = format!("{} with the label {key}{aside}", counted(self.nodes, "node"));
                ("True", PolicyReason::Labeled, message)
            }
            (None, None) => {
                let message =
                    format!("{} of {} with the label {key}{aside}", self.labeled, counted(self.nodes, "node"));
                ("False", PolicyReason::LabelsNotWritten, message)
            }
        };
        condition(old, LABELS_CURRENT, status, reason.as_str(), &message, stamp)
    }
}

/// The condition before the first pass: that of the process before, if it is of this generation.
pub fn not_compared(old: &[Condition], stamp: Stamp) -> Condition {
    let is_of_now = |old: &&Condition| old.type_ == LABELS_CURRENT && old.observed_generation == Some(stamp.generation);
    old.iter().find(is_of_now).cloned().unwrap_or_else(|| {
        let message = "the labels of the nodes have not been compared yet";
        condition(old, LABELS_CURRENT, "Unknown", PolicyReason::NotCompared.as_str(), message, stamp)
    })
}

/// The condition while the spec is invalid.
pub fn not_comparable(old: &[Condition], stamp: Stamp) -> Condition {
    let message = "the spec is invalid, so the labels of the nodes stay as they are; new pods get terms until \
                   status.validUntil";
    condition(old, LABELS_CURRENT, "Unknown", PolicyReason::NotCompared.as_str(), message, stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: SignedDuration = SignedDuration::from_mins(5);

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn report(labeled: i64, at: i64) -> LabelReport {
        LabelReport {
            generation: 1,
            nodes: 3,
            labeled,
            typical: TypicalRequest::default(),
            oldest: None,
            problem: None,
            aside: None,
            at: second(at),
        }
    }

    fn failed(at: i64) -> LabelReport {
        LabelReport { problem: Some("node a cannot be labeled: timeout".to_owned()), ..report(3, at) }
    }

    #[test]
    fn labels_are_confirmed_each_third_of_their_age_and_changes_are_told_at_once() {
        let first = report(3, 1000);
        let next = |current: LabelReport| LabelReport::next(Some(&first), current, AGE);
        assert_eq!(next(report(3, 1099)), first);
        assert_eq!(next(report(3, 1100)), report(3, 1100));
        assert_eq!(next(report(2, 1001)), report(2, 1001));
        assert_eq!(next(failed(1001)), failed(1001));
        assert_eq!(next(LabelReport { generation: 2, ..report(3, 1001) }).generation, 2);
    }

    #[test]
    fn a_pass_with_a_problem_or_a_gap_confirms_nothing() {
        let before = Some(Time(second(900)));
        assert_eq!(report(3, 1000).valid_until(before.as_ref(), AGE), Some(Time(second(1300))));
        assert_eq!(report(2, 1000).valid_until(before.as_ref(), AGE), before);
        assert_eq!(failed(1000).valid_until(None, AGE), None);
    }

    #[test]
    fn the_condition_says_how_many_nodes_have_the_label() {
        let stamp = Stamp { generation: 1, now: second(0) };
        let said = |report: LabelReport, aside| {
            let found = report.condition(&[], "d/green", aside, stamp);
            (found.status, found.reason, found.message)
        };
        let expected = |status: &str, reason: &str, message: &str| (status.into(), reason.into(), message.into());
        assert_eq!(said(report(3, 0), None), expected("True", "Labeled", "3 nodes with the label d/green"));
        let aside = "agent spread has no part in it";
        let words = "2 of 3 nodes with the label d/green; agent spread has no part in it";
        assert_eq!(said(report(2, 0), Some(aside)), expected("False", "LabelsNotWritten", words));
        let words = "node a cannot be labeled: timeout";
        assert_eq!(said(failed(0), None), expected("False", "LabelsNotWritten", words));
    }

    /// One node of up to ten, and a tenth of more.
    #[test]
    fn a_few_nodes_may_be_left_aside() {
        let stamp = Stamp { generation: 1, now: second(0) };
        let aside = |count, nodes, labeled| {
            let aside = NodesAside { reason: PolicyReason::LabelsContested, words: "a fight".to_owned(), nodes: count };
            LabelReport { nodes, aside: Some(aside), ..report(labeled, 0) }
        };
        for (count, nodes, labeled, is_valid) in [
            (1, 3, 2, true),
            (1, 3, 3, true),
            (1, 3, 1, false),
            (2, 19, 19, false),
            (2, 20, 18, true),
            (3, 3, 3, false),
        ] {
            let report = aside(count, nodes, labeled);
            assert_eq!(report.valid_until(None, AGE).is_some(), is_valid, "{count} of {nodes}");
            let said = report.condition(&[], "d/green", None, stamp);
            assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "LabelsContested"));
            let end = if is_valid { "The labels of the other nodes are valid" } else { "after status.validUntil" };
            assert!(said.message.starts_with("a fight. ") && said.message.ends_with(end), "{}", said.message);
        }
    }

    #[test]
    fn a_restart_does_not_change_the_condition_and_another_spec_does() {
        let at = |generation| Stamp { generation, now: second(0) };
        let before = [report(3, 0).condition(&[], "d/green", None, at(1))];
        assert_eq!(not_compared(&before, at(1)), before[0]);
        assert_eq!(not_compared(&before, at(2)).reason, "NotCompared");
    }
}
