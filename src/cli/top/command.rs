//! Changes that a user can make from the view: which objects have them, the right that each needs, and the patch.

use serde_json::{Value, json};

use super::facts::{TopDetail, TopId, TopObject};
use super::kinds::TopKind;
use crate::operator::drain::abort_spec;
use ganglion_actions_plan::drain::UserRight;
use ganglion_api::GROUP;

/// A change that a key starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopCommand {
    Suspend,
    Resume,
    Abort,
    Approve,
}

impl TopCommand {
    pub fn verb(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Abort => "abort",
            Self::Approve => "approve",
        }
    }
}

/// The write of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum TopWrite {
    /// Merge patch of the spec.
    Spec(Value),
    /// Approval of the proposal with this digest; None until the proposal has been read.
    Approval(Option<String>),
}

/// A change of one object. `uid` guards against an object that was deleted and created again.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCommand {
    pub command: TopCommand,
    pub id: TopId,
    pub uid: String,
    pub write: TopWrite,
    /// Question to the user.
    pub question: String,
}

impl PlannedCommand {
    /// The change of this object, or why there is none. `mode`: mode of a paused loop before it was paused, if this
    /// view has seen it.
    pub fn new(command: TopCommand, object: &TopObject, mode: Option<&str>) -> Result<Self, String> {
        let (write, effect) = write(command, object, mode)?;
        let verb = command.verb();
        let capital = verb[..1].to_uppercase() + &verb[1..];
        let owner = object.owner.as_ref().filter(|_| object.id.kind == TopKind::Node);
        let owner = owner.map(|owner| format!(" {owner} owns it and may set it back.")).unwrap_or_default();
        let question = format!("{capital} {}? {effect}{owner}", object.id.words());
        Ok(Self { command, id: object.id.clone(), uid: object.uid.clone(), write, question })
    }

    /// The right that the write needs.
    pub fn right(&self) -> UserRight {
        let namespace = Some(self.id.namespace.clone()).filter(|namespace| !namespace.is_empty());
        let resource = self.id.kind.plural();
        UserRight { verb: "patch", group: GROUP, resource, namespace, name: Some(self.id.name.clone()) }
    }

    /// The same with the proposal that was read.
    pub fn with_proposal(self, seq: i64, digest: String, words: &str) -> Self {
        let question = format!("Approve decision {seq} of {}? It proposes: {words}", self.id.words());
        Self { write: TopWrite::Approval(Some(digest)), question, ..self }
    }
}

fn write(command: TopCommand, object: &TopObject, mode: Option<&str>) -> Result<(TopWrite, String), String> {
    let spec = |spec: Value, effect: &str| Ok((TopWrite::Spec(spec), effect.to_owned()));
    let words = object.id.words();
    match (command, &object.detail) {
        (TopCommand::Suspend, TopDetail::Loop { mode, .. }) if mode == "Paused" => {
            Err(format!("{words} is paused already"))
        }
        (TopCommand::Suspend, TopDetail::Loop { mode, .. }) => {
            spec(json!({"mode": "Paused"}), &format!("This sets spec.mode from {mode} to Paused."))
        }
        (TopCommand::Resume, TopDetail::Loop { mode: now, .. }) if now == "Paused" => match mode {
            Some(mode) => spec(json!({"mode": mode}), &format!("This sets spec.mode back to {mode}.")),
            None => spec(
                json!({"mode": "Auto"}),
                "This sets spec.mode to Auto; this view has not seen the mode before Paused.",
            ),
        },
        (TopCommand::Resume, TopDetail::Loop { mode, .. }) => Err(format!("{words} is not paused; its mode is {mode}")),
        (TopCommand::Suspend | TopCommand::Resume, TopDetail::Policy { .. }) => {
            Err(format!("{words} cannot be suspended; spec.mode Shadow makes a policy score without an effect"))
        }
        (TopCommand::Suspend | TopCommand::Resume | TopCommand::Abort, TopDetail::Action { has_ended: true, .. }) => {
            Err(format!("{words} has ended"))
        }
        (TopCommand::Suspend, _) if object.is_suspended => Err(format!("{words} is suspended already")),
        (TopCommand::Suspend, _) => spec(json!({"suspend": true}), "This sets spec.suspend to true."),
        (TopCommand::Resume, _) if !object.is_suspended => Err(format!("{words} is not suspended")),
        (TopCommand::Resume, _) => spec(json!({"suspend": false}), "This sets spec.suspend to false."),
        (TopCommand::Abort, TopDetail::Action { .. }) => {
            spec(abort_spec(), "It is undone if no pod has been evicted yet, and otherwise completed.")
        }
        (TopCommand::Abort, _) => Err(format!("{words} cannot be aborted; only a WorkloadAction can")),
        (TopCommand::Approve, TopDetail::Loop { .. }) => {
            let proposed = object.condition("Proposed").is_some_and(|proposed| proposed.status == "True");
            if !proposed {
                return Err(format!("{words} has no proposal that waits for approval"));
            }
            Ok((TopWrite::Approval(None), String::new()))
        }
        (TopCommand::Approve, _) => Err(format!("{words} has no proposals; only a ClosedLoop has")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::testing::object;

    fn planned(command: TopCommand, kind: TopKind, spec: Value, conditions: Value) -> Result<PlannedCommand, String> {
        PlannedCommand::new(command, &object(kind, "web", spec, json!({"conditions": conditions})), None)
    }

    fn patch(command: TopCommand, kind: TopKind, spec: Value) -> Value {
        match planned(command, kind, spec, json!([])).unwrap().write {
            TopWrite::Spec(patch) => patch,
            TopWrite::Approval(_) => panic!("an approval"),
        }
    }

    #[test]
    fn patches_write_the_fields_of_the_spec() {
        let (on, off) = (json!({"suspend": true}), json!({"suspend": false}));
        for kind in [TopKind::Action, TopKind::Pool, TopKind::Node] {
            assert_eq!(patch(TopCommand::Suspend, kind, json!({})), on);
            assert_eq!(patch(TopCommand::Resume, kind, on.clone()), off);
        }
        assert_eq!(patch(TopCommand::Suspend, TopKind::Loop, json!({"mode": "DryRun"})), json!({"mode": "Paused"}));
        assert_eq!(patch(TopCommand::Resume, TopKind::Loop, json!({"mode": "Paused"})), json!({"mode": "Auto"}));
        assert_eq!(patch(TopCommand::Abort, TopKind::Action, json!({})), json!({"abort": true, "suspend": false}));
    }

    #[test]
    fn a_resumed_loop_gets_its_mode_back() {
        let paused = object(TopKind::Loop, "web", json!({"mode": "Paused"}), json!({}));
        let planned = PlannedCommand::new(TopCommand::Resume, &paused, Some("Approve")).unwrap();
        assert_eq!(planned.write, TopWrite::Spec(json!({"mode": "Approve"})));
        assert_eq!(planned.question, "Resume ClosedLoop shop/web? This sets spec.mode back to Approve.");
        assert_eq!(planned.right().to_string(), "patch closedloops.ganglion.dev (web) in namespace shop");
    }

    #[test]
    fn a_change_that_is_not_possible_says_why() {
        for (command, kind, spec, conditions, expected) in [
            (TopCommand::Suspend, TopKind::Loop, json!({"mode": "Paused"}), json!([]), "is paused already"),
            (TopCommand::Resume, TopKind::Loop, json!({}), json!([]), "is not paused; its mode is Auto"),
            (TopCommand::Resume, TopKind::Pool, json!({}), json!([]), "is not suspended"),
            (TopCommand::Suspend, TopKind::Policy, json!({}), json!([]), "cannot be suspended"),
            (TopCommand::Abort, TopKind::Loop, json!({}), json!([]), "cannot be aborted"),
            (TopCommand::Approve, TopKind::Loop, json!({}), json!([]), "has no proposal that waits"),
            (TopCommand::Approve, TopKind::Pool, json!({}), json!([]), "has no proposals"),
        ] {
            let error = planned(command, kind, spec, conditions).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_action_that_has_ended_is_left_alone() {
        let ended = object(TopKind::Action, "go", json!({}), json!({"finishedAt": "2026-11-21T10:00:30Z"}));
        for command in [TopCommand::Suspend, TopCommand::Resume, TopCommand::Abort] {
            assert_eq!(PlannedCommand::new(command, &ended, None).unwrap_err(), "WorkloadAction shop/go has ended");
        }
    }

    #[test]
    fn an_approval_names_what_is_approved() {
        let proposed = json!([{"type": "Proposed", "status": "True"}]);
        let planned = planned(TopCommand::Approve, TopKind::Loop, json!({}), proposed).unwrap();
        let read = planned.with_proposal(3, "abc".to_owned(), "scale Deployment/web from 3 to 4");
        assert_eq!(read.write, TopWrite::Approval(Some("abc".to_owned())));
        assert!(read.question.ends_with("It proposes: scale Deployment/web from 3 to 4"), "{}", read.question);
    }
}
