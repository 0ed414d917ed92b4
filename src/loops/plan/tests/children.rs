//! The specs of a loop's children.

use rstest::rstest;
use serde_json::json;

use super::bench::{at, demo};
use crate::children::{ChildStanding, children, standing};
use crate::decision::DecisionRules;
use crate::monitoring::MonitoringRules;
use crate::tuning::effective_policy::effective;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::marks;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// An object with these owners: kind, name, uid, and whether it is the controller.
fn object(name: &str, uid: &str, owners: &[(&str, &str, &str, bool)]) -> ObjectMeta {
    let owners = owners.iter().map(|(kind, name, uid, controller)| {
        json!({"apiVersion": "a/v1", "kind": kind, "name": name, "uid": uid, "controller": controller})
    });
    let meta = json!({"name": name, "uid": uid, "ownerReferences": owners.collect::<Vec<_>>()});
    serde_json::from_value(meta).unwrap()
}

#[rstest]
#[case::owned(&[("ClosedLoop", "web", "loop", true)], false, ChildStanding::Owned)]
#[case::owned_with_others(&[("ConfigMap", "x", "y", true), ("ClosedLoop", "web", "loop", false)], false, ChildStanding::Owned)]
#[case::removed_known(&[], true, ChildStanding::Damaged)]
#[case::foreign_known(&[("ConfigMap", "x", "y", true)], true, ChildStanding::Damaged)]
#[case::dead_known(&[("ClosedLoop", "web", "dead", true)], true, ChildStanding::Damaged)]
#[case::dead(&[("ClosedLoop", "web", "dead", true)], false, ChildStanding::Orphan)]
#[case::foreign(&[("ConfigMap", "x", "y", true)], false, ChildStanding::Foreign)]
#[case::of_nobody(&[], false, ChildStanding::Foreign)]
fn a_child_is_known_by_what_others_cannot_change(
    #[case] owners: &[(&str, &str, &str, bool)],
    #[case] known: bool,
    #[case] expected: ChildStanding,
) {
    let parent = object("web", "loop", &[]);
    let mut child = object("web", "child", owners);
    assert_eq!(standing(&child, &parent, known), expected);
    child.labels = Some([(marks::LOOP.to_owned(), "web".to_owned())].into());
    let labeled = if owners.is_empty() { ChildStanding::Damaged } else { expected };
    assert_eq!(standing(&child, &parent, known), labeled);
}

#[test]
fn each_gets_the_policy_that_holds() {
    let spec = demo(json!({"rank": ["memory"], "dwell": "60s"}));
    let tuned = json!([{"by": "slow", "uid": "u", "seq": 1, "at": at(0).to_string(), "rank": ["cpu", "memory"]}]);
    let tuning: Vec<_> = serde_json::from_value(tuned).unwrap();
    let policy = effective(&spec, &tuning, None, at(1)).unwrap();
    let all = children(&spec, &policy, Some("x".repeat(2000)), Some("1a2b"));
    assert_eq!(all.decision.rank, ["cpu", "memory"]);
    let decides = all.decision.policy.as_ref().unwrap();
    assert_eq!((decides.rank.clone(), decides.dwell.clone()), (None, Some("60s".into())));
    assert_eq!(all.monitoring.sample, None, "belongs to the sender");
    assert_eq!(all.execution.approve.as_deref(), Some("1a2b"));
    assert_eq!(all.execution.blocked.as_ref().map(String::len), Some(1024));
    assert_eq!(all.decision.blocked, all.execution.blocked);
    MonitoringRules::parse(&all.monitoring).unwrap();
    DecisionRules::parse(&all.decision).unwrap();
}

#[rstest]
#[case(LoopMode::Auto, false)]
#[case(LoopMode::DryRun, false)]
#[case(LoopMode::Approve, false)]
#[case(LoopMode::Paused, true)]
fn a_paused_loop_pauses_all(#[case] mode: LoopMode, #[case] paused: bool) {
    let mut spec = demo(json!({}));
    spec.mode = mode;
    let all = children(&spec, &effective(&spec, &[], None, at(0)).unwrap(), None, None);
    assert_eq!((all.monitoring.paused, all.execution.paused, all.decision.mode), (paused, paused, mode));
}
