//! Survey before a removal and report after it, as data and as text. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::sweep::SweptKind;
use ganglion_core::words::counted;

/// Maximum number of objects of one kind that the text names.
const SHOWN: usize = 20;

/// Process that completes the work in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RemovalActor {
    /// A running operator, with the identity in its lease.
    Operator(String),
    /// This process, with the controllers of the operator and the rights of the user.
    ThisProcess,
}

/// An object, and the marks that are removed from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CleanedObject {
    pub kind: SweptKind,
    /// Kind and name, with the namespace if there is one: `Pod shop/web-1`.
    pub object: String,
    pub removed: Vec<String>,
}

/// State of the cluster before a removal.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovalSurvey {
    pub actor: RemovalActor,
    /// Namespaces whose objects go; None: all, and those of the cluster.
    pub namespaces: Option<Vec<String>>,
    /// Number of objects by kind.
    pub objects: BTreeMap<String, usize>,
    /// Objects that a GitOps tool creates again, with the tool.
    pub managed: Vec<String>,
    pub marked: Vec<CleanedObject>,
    /// Workloads whose template has the operator's scheduling gate.
    pub gated: Vec<String>,
}

/// Result of a removal.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovalReport {
    /// Number of deleted objects by kind.
    pub deleted: BTreeMap<String, usize>,
    /// Objects that lost marks which no controller removed.
    pub cleaned: Vec<CleanedObject>,
    /// Workloads whose template has the operator's scheduling gate.
    pub gated: Vec<String>,
    /// Objects that stay, with the reason.
    pub left: Vec<String>,
}

/// Text after an interruption: what goes on in the cluster, and what to do. `waits_for`: objects that are not gone yet.
pub fn interruption_text(actor: &RemovalActor, waits_for: &[String]) -> String {
    let open = if waits_for.is_empty() { String::new() } else { format!(" Not complete: {}.", waits_for.join("; ")) };
    match actor {
        RemovalActor::Operator(identity) => format!(
            "Interrupted.{open} Deletions go on: operator {identity} completes or undoes the actions of deleted objects. Run \
             the same command again to follow them and to remove the rest."
        ),
        RemovalActor::ThisProcess => format!(
            "Interrupted.{open} No operator runs, so nothing goes on in the cluster, and deleted actions stay as they are: \
             run the same command again, or start the operator."
        ),
    }
}

/// Text of a survey.
pub fn survey_text(survey: &RemovalSurvey) -> String {
    let mut text = String::new();
    let place = match &survey.namespaces {
        None => "of the whole cluster".to_owned(),
        Some(names) => format!("in {}", names.join(", ")),
    };
    let _ = writeln!(text, "Objects {place} that are deleted: {}.", counts(&survey.objects));
    let by = match &survey.actor {
        RemovalActor::Operator(identity) => format!("the running operator {identity}"),
        RemovalActor::ThisProcess => "this process, since no operator runs".to_owned(),
    };
    let _ = writeln!(text, "Actions in progress are completed or undone by {by}.");
    cleaned_lines(&mut text, "Marks that are removed", &survey.marked);
    for object in &survey.managed {
        let _ = writeln!(text, "warning: {object}; remove it from its repository first, or it comes back");
    }
    text += &gated_text(&survey.gated);
    text
}

/// Text of a report.
pub fn report_text(report: &RemovalReport) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "Deleted: {}.", counts(&report.deleted));
    cleaned_lines(&mut text, "Marks that were removed", &report.cleaned);
    for left in &report.left {
        let _ = writeln!(text, "left: {left}");
    }
    text += &gated_text(&report.gated);
    text += "Now delete the operator itself: kubectl delete -k OVERLAY\n";
    text
}

fn counts(objects: &BTreeMap<String, usize>) -> String {
    let counts: Vec<String> =
        objects.iter().filter(|(_, count)| **count > 0).map(|(kind, count)| counted_kind(*count, kind)).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

/// A number of objects of a kind: `1 SwarmPool`, `3 PlacementPolicies`.
fn counted_kind(count: usize, kind: &str) -> String {
    match kind.strip_suffix('y') {
        Some(stem) if count != 1 => format!("{count} {stem}ies"),
        _ => counted(count as u64, kind),
    }
}

fn cleaned_lines(text: &mut String, title: &str, objects: &[CleanedObject]) {
    if objects.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}: {}.", counted(objects.len() as u64, "object"));
    for kind in SweptKind::ALL {
        let of_kind: Vec<&CleanedObject> = objects.iter().filter(|object| object.kind == kind).collect();
        for object in of_kind.iter().take(SHOWN) {
            let _ = writeln!(text, "  {}: {}", object.object, object.removed.join(", "));
        }
        if of_kind.len() > SHOWN {
            let _ = writeln!(text, "  and {} more; -o json lists all", of_kind.len() - SHOWN);
        }
    }
}

fn gated_text(workloads: &[String]) -> String {
    let advice = |workload: &String| {
        format!(
            "warning: {workload} has the scheduling gate ganglion.dev/placement in its template: without the operator, \
             its new pods wait for ever; remove the gate from the template before you delete the operator\n"
        )
    };
    workloads.iter().map(advice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_says_what_goes_who_ends_it_and_what_comes_back() {
        let marked = |at: usize| CleanedObject {
            kind: SweptKind::Pod,
            object: format!("Pod shop/web-{at}"),
            removed: vec!["annotation ganglion.dev/worker".to_owned()],
        };
        let survey = RemovalSurvey {
            actor: RemovalActor::Operator("one".to_owned()),
            namespaces: None,
            objects: BTreeMap::from([
                ("PlacementPolicy".to_owned(), 2),
                ("SwarmPool".to_owned(), 1),
                ("X".to_owned(), 0),
            ]),
            managed: vec!["SwarmPool shop/web belongs to Flux".to_owned()],
            marked: (0..=SHOWN).map(marked).collect(),
            gated: vec!["StatefulSet shop/db".to_owned()],
        };
        let text = survey_text(&survey);
        for part in [
            "Objects of the whole cluster that are deleted: 2 PlacementPolicies, 1 SwarmPool.\n",
            "by the running operator one.\n",
            "Marks that are removed: 21 objects.\n  Pod shop/web-0: annotation ganglion.dev/worker\n",
            "  and 1 more; -o json lists all\n",
            "warning: SwarmPool shop/web belongs to Flux; remove it from its repository first, or it comes back\n",
            "warning: StatefulSet shop/db has the scheduling gate",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let here = RemovalSurvey {
            actor: RemovalActor::ThisProcess,
            namespaces: Some(vec!["a".to_owned(), "b".to_owned()]),
            objects: BTreeMap::new(),
            ..survey
        };
        let text = survey_text(&here);
        assert!(text.starts_with("Objects in a, b that are deleted: none.\n"), "{text}");
        assert!(text.contains("by this process, since no operator runs.\n"), "{text}");
    }

    #[test]
    fn an_interruption_says_what_goes_on_and_who_does_it() {
        let waits_for = ["WorkloadAction shop/go".to_owned()];
        let text = interruption_text(&RemovalActor::Operator("one".to_owned()), &waits_for);
        let start = "Interrupted. Not complete: WorkloadAction shop/go. Deletions go on: operator one completes";
        assert!(text.starts_with(start), "{text}");
        let text = interruption_text(&RemovalActor::ThisProcess, &[]);
        assert!(text.starts_with("Interrupted. No operator runs, so nothing goes on in the cluster"), "{text}");
    }

    #[test]
    fn a_report_says_what_is_left_to_do() {
        let report = RemovalReport {
            deleted: BTreeMap::from([("ClosedLoop".to_owned(), 1)]),
            cleaned: Vec::new(),
            gated: Vec::new(),
            left: vec!["Pod shop/web-1: no record confirms it".to_owned()],
        };
        assert_eq!(
            report_text(&report),
            "Deleted: 1 ClosedLoop.\nleft: Pod shop/web-1: no record confirms it\n\
             Now delete the operator itself: kubectl delete -k OVERLAY\n"
        );
    }
}
