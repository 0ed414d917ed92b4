//! Tests of the parts of a removal that need no cluster: its scope, other operators, and what it says.

use kube::api::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

use super::work::waiting;
use super::*;

fn lease(members: Value) -> Lease {
    let mut whole = json!({"metadata": {"name": "ganglion", "namespace": "ops"}});
    json_patch::merge(&mut whole, &members);
    serde_json::from_value(whole).expect("a lease")
}

#[test]
fn the_scope_is_that_of_the_user_or_of_the_operator() {
    let limited = lease(json!({"metadata": {"annotations": {"ganglion.dev/namespaces": "a,b"}}}));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(scope(&names(&["shop"]), Some(&limited)), Some(names(&["shop"])));
    assert_eq!(scope(&[], Some(&limited)), Some(names(&["a", "b"])));
    assert_eq!(scope(&[], Some(&lease(json!({})))), None);
    assert_eq!(scope(&[], None), None);
}

#[rstest]
#[case::own("ops", "one", 0, false)]
#[case::free("else", "", 0, false)]
#[case::running("else", "one", 5, true)]
#[case::dead("else", "one", 600, false)]
fn an_operator_in_another_namespace_counts_while_it_runs(
    #[case] namespace: &str,
    #[case] holder: &str,
    #[case] age: i64,
    #[case] expected: bool,
) {
    let renewed = Timestamp::now() - jiff::SignedDuration::from_secs(age);
    let renewed = renewed.strftime("%FT%T.%6fZ").to_string();
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed});
    let lease = lease(json!({"metadata": {"namespace": namespace}, "spec": spec}));
    assert_eq!(is_other(&lease, "ops"), expected);
}

#[test]
fn an_object_that_stays_says_why() {
    let action: DynamicObject = serde_json::from_value(json!({
        "metadata": {
            "name": "go", "namespace": "shop", "finalizers": ["ganglion.dev/workload-action", "example.com/mine"],
        },
        "status": {"conditions": [{"type": "Ready", "message": "waits for a budget"}]},
    }))
    .expect("an object");
    let text = waiting(&kinds::actions(), &action);
    assert_eq!(text, "WorkloadAction shop/go, which has the finalizers example.com/mine (waits for a budget)");
    let bare: DynamicObject =
        serde_json::from_value(json!({"metadata": {"name": "go", "namespace": "shop"}})).expect("an object");
    assert_eq!(waiting(&kinds::actions(), &bare), "WorkloadAction shop/go");
}
