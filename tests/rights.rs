//! The operator's roles are exactly what it uses: each permission is used by a story of the suite `cluster`, and no
//! request was rejected for a missing permission. Runs after that suite, on the audit logs of its planes; fails if
//! there are none.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use testkit::plane::audit::{Request, read_kept};

/// API group, resource, verb.
type Right = (String, String, String);

/// Permissions that no request uses, with the reason for each.
const UNUSED: &[(&str, &str, &str, &str)] = &[
    ("apps", "replicasets/finalizers", "update", "asked for by OwnerReferencesPermissionEnforcement only"),
    ("ganglion.dev", "workloadactions/finalizers", "update", "asked for by OwnerReferencesPermissionEnforcement only"),
    ("ganglion.dev", "closedloops/finalizers", "update", "asked for by OwnerReferencesPermissionEnforcement only"),
    (
        "ganglion.dev",
        "nodeconfigtemplates/finalizers",
        "update",
        "asked for by OwnerReferencesPermissionEnforcement only",
    ),
    ("ganglion.dev", "swarmpools/finalizers", "update", "asked for by OwnerReferencesPermissionEnforcement only"),
];

/// Permissions that are used only if a watch is lost just after a write, or a write meets a newer object: the object is
/// then read again. No story causes that for each kind.
const SELDOM: &[(&str, &str, &str)] = &[
    ("apps", "statefulsets", "get"),
    ("ganglion.dev", "closedloops", "get"),
    ("ganglion.dev", "executions", "get"),
    ("ganglion.dev", "monitorings", "get"),
    ("ganglion.dev", "nodeconfigs", "get"),
    ("ganglion.dev", "nodeconfigtemplates", "get"),
    ("ganglion.dev", "placementpolicies", "get"),
    ("ganglion.dev", "swarmpools", "get"),
];

/// Requests whose rejection some stories expect: in a namespace without its binding, and without the components
/// publish-usage and rollouts.
const REFUSED: &[(&str, &str, &str)] =
    &[("", "secrets", "get"), ("", "configmaps", "list"), ("", "nodes", "patch"), ("argoproj.io", "rollouts", "get")];

fn right(group: &str, resource: &str, verb: &str) -> Right {
    (group.to_owned(), resource.to_owned(), verb.to_owned())
}

fn expand(rules: Vec<PolicyRule>) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                all.extend(rule.verbs.iter().map(|verb| right(group, resource, verb)));
            }
        }
    }
    all
}

/// Permissions that the operator's roles in kustomize/base grant.
fn granted() -> BTreeSet<Right> {
    let text = std::fs::read_to_string(testkit::root().join("kustomize/base/rbac.yaml")).unwrap();
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
    let mut all = BTreeSet::new();
    for document in documents {
        let rules = match document["kind"].as_str() {
            Some("ClusterRole") => serde_json::from_value::<ClusterRole>(document).unwrap().rules,
            Some("Role") => serde_json::from_value::<Role>(document).unwrap().rules,
            _ => None,
        };
        all.extend(expand(rules.unwrap_or_default()));
    }
    all
}

#[test]
fn roles_have_no_wildcards() {
    assert!(granted().iter().all(|(group, resource, verb)| ![group, resource, verb].contains(&&"*".to_owned())));
}

/// If an object is written, and then deleted while the watch is lost, only a read reveals that it is gone.
#[test]
fn what_is_watched_and_written_may_be_read() {
    let granted = granted();
    let holds = |group: &str, resource: &str, verb: &str| granted.contains(&right(group, resource, verb));
    let written = |group: &str, resource: &str| {
        let status = format!("{resource}/status");
        ["create", "patch", "update"].iter().any(|verb| holds(group, resource, verb) || holds(group, &status, verb))
    };
    let watched = granted.iter().filter(|(_, _, verb)| verb == "watch");
    let unread: Vec<_> =
        watched.filter(|(group, resource, _)| written(group, resource) && !holds(group, resource, "get")).collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn each_right_is_used_and_none_is_missing() {
    let requests = read_kept().unwrap_or_else(|error| panic!("{error:#}; run `hack/test cluster`"));
    let mut used: BTreeMap<Right, usize> = BTreeMap::new();
    let mut refused: BTreeMap<Right, usize> = BTreeMap::new();
    for Request { group, resource, verb, impersonates, forbidden, .. } in requests.iter().filter(|one| one.by_operator)
    {
        let right =
            if *impersonates { right("", "serviceaccounts", "impersonate") } else { right(group, resource, verb) };
        // If the operator impersonates an account, the rejection concerns that account.
        let count = if *forbidden && !impersonates { &mut refused } else { &mut used };
        *count.entry(right).or_default() += 1;
    }
    assert!(!used.is_empty(), "the operator asked for nothing; run `hack/test cluster`");
    let idle: BTreeSet<Right> = UNUSED.iter().map(|(group, resource, verb, _)| right(group, resource, verb)).collect();
    let expected: BTreeSet<Right> =
        REFUSED.iter().map(|(group, resource, verb)| right(group, resource, verb)).collect();
    let granted = granted();
    let seldom: BTreeSet<Right> = SELDOM.iter().map(|(group, resource, verb)| right(group, resource, verb)).collect();
    let is_unused = |right: &&Right| !used.contains_key(*right) && !idle.contains(*right) && !seldom.contains(*right);
    let unused: Vec<&Right> = granted.iter().filter(is_unused).collect();
    let stale: Vec<&Right> = idle
        .iter()
        .filter(|right| used.contains_key(*right))
        .chain(idle.union(&seldom).filter(|right| !granted.contains(*right)))
        .collect();
    // An API server that has just started rejects requests that it allows as soon as it has loaded the roles.
    let is_missing = |right: &Right| !expected.contains(right) && !granted.contains(right);
    let missing: Vec<(&Right, &usize)> = refused.iter().filter(|(right, _)| is_missing(right)).collect();
    assert!(unused.is_empty(), "no story uses {unused:?}: take the right away, or list it in UNUSED with the reason");
    assert!(stale.is_empty(), "{stale:?} is used, or no right: take it off the list UNUSED");
    assert!(missing.is_empty(), "the operator was refused {missing:?}");
}
