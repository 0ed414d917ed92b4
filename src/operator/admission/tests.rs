//! Tests of the table: what it covers, and what the API server would not accept.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::*;
use ganglion_core::facts::spec_digest;
use ganglion_core::world::World;

/// Resource and operation of every write that a CRD makes possible.
fn writes(crd: &CustomResourceDefinition) -> Vec<(String, Operation)> {
    let plural = &crd.spec.names.plural;
    let mut writes = WRITES.iter().map(|operation| (plural.clone(), *operation)).collect::<Vec<_>>();
    for subresources in crd.spec.versions.iter().filter_map(|version| version.subresources.as_ref()) {
        if subresources.status.is_some() {
            writes.push((format!("{plural}/status"), Operation::Update));
        }
        if subresources.scale.is_some() {
            writes.push((format!("{plural}/scale"), Operation::Update));
        }
    }
    writes
}

fn is_guarded(policies: &[AdmissionPolicy], resource: &str, operation: Operation) -> bool {
    let guards = policies.iter().flat_map(|policy| &policy.guards);
    guards.into_iter().any(|guarded| guarded.resource == resource && guarded.operations.contains(&operation))
}

#[test]
fn every_write_of_every_kind_is_in_the_table() {
    for crd in ganglion_api::all() {
        for (resource, operation) in writes(&crd) {
            assert!(is_guarded(&policies(), &resource, operation), "{} {resource}", operation.as_str());
        }
    }
}

#[test]
fn the_owners_of_every_kind_are_in_the_table() {
    let all: Vec<AdmissionPolicy> =
        policies().into_iter().filter(|one| ["ganglion-metadata", "ganglion-children"].contains(&one.name)).collect();
    for crd in ganglion_api::all() {
        assert!(is_guarded(&all, &crd.spec.names.plural, Operation::Update), "{}", crd.spec.names.plural);
    }
}

#[test]
fn every_kind_needs_policies_and_every_policy_is_needed() {
    let guards = guards();
    let needed: BTreeSet<&str> = guards.kinds().flat_map(|(_, policies)| policies).copied().collect();
    assert_eq!(needed, guards.names().collect::<BTreeSet<_>>());
    let kinds: BTreeSet<&str> = guards.kinds().map(|(kind, _)| kind).collect();
    let mut expected: BTreeSet<String> = ganglion_api::all().into_iter().map(|crd| crd.spec.names.kind).collect();
    // No controller reconciles receipts: they belong to the actions.
    expected.remove("WorkloadActionReceipt");
    assert_eq!(kinds, expected.iter().map(String::as_str).collect());
    let mut world = World::default();
    world.guard(guards);
    assert!(world.policy_problem("SwarmPool").is_some_and(|problem| problem.policies.len() == 6));
}

/// Rights of the garbage collector on all resources: system:controller:generic-garbage-collector of Kubernetes.
const COLLECTOR: [&str; 6] = ["get", "list", "watch", "patch", "update", "delete"];

#[test]
fn the_garbage_collector_may_change_owners_and_finalizers_of_every_kind() {
    for policy in policies() {
        let is_of_objects = |one: &Guarded| !one.resource.contains('/') && one.operations.contains(&Operation::Update);
        let is_own = |one: &Guarded| one.group == ganglion_api::GROUP;
        let is_about_more =
            policy.conditions.iter().any(|(_, expression)| expression.contains("object.spec != oldObject.spec"));
        if is_about_more || !policy.guards.iter().any(|one| is_own(one) && is_of_objects(one)) {
            continue;
        }
        for rule in &policy.rules {
            let is_exempt = rule.when.as_deref().is_some_and(|when| when.contains(table::COLLECTED));
            let is_granted = rule.rights.iter().all(|right| COLLECTOR.contains(&right.verb));
            assert!(is_exempt || is_granted, "{}: {}", policy.name, rule.expression());
        }
    }
}

/// Number of permission checks in an expression, with the variables that it uses.
fn checks(expression: &str, variables: &[(&str, String)]) -> usize {
    let own = expression.matches(".check('").count();
    let used = variables.iter().filter(|(name, _)| {
        expression
            .match_indices(&format!("variables.{name}"))
            .any(|(at, found)| !expression[at + found.len()..].starts_with(|next: char| next.is_alphanumeric()))
    });
    own + used.map(|(_, text)| checks(text, variables)).sum::<usize>()
}

#[test]
fn no_expression_checks_more_than_two_permissions() {
    for policy in policies() {
        let rules = policy.rules.iter().map(RightsRule::expression);
        let invariants = policy.invariants.iter().map(|one| one.expression.clone());
        let conditions = policy.conditions.iter().map(|(_, expression)| (*expression).to_owned());
        for expression in rules.chain(invariants).chain(conditions) {
            let number = checks(&expression, &policy.variables);
            assert!(number <= 2, "{}: {number} in {expression}", policy.name);
        }
        for message in
            policy.rules.iter().map(RightsRule::message).chain(policy.invariants.iter().map(|one| one.message.clone()))
        {
            assert_eq!(checks(&message, &policy.variables), 0, "{}: {message}", policy.name);
        }
    }
}

#[test]
fn the_manifest_has_the_digest_of_each_spec() {
    let text = manifest::text().unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    assert_eq!(documents.len(), 2 * policies().len());
    for document in documents {
        let digest = &document["metadata"]["annotations"][ganglion_api::marks::POLICY_DIGEST];
        assert_eq!(*digest, spec_digest(&document["spec"]), "{}", document["metadata"]["name"]);
    }
    assert!(text.lines().all(|line| !line.starts_with('#') || line.chars().count() <= 120));
}

/// An edited policy is recognized by the digest of the component.
#[test]
fn the_component_placement_labels_has_the_digest_of_its_spec() {
    let text = include_str!("../../../kustomize/components/placement-labels/policy.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let digest = &documents[0]["metadata"]["annotations"][ganglion_api::marks::POLICY_DIGEST];
    assert_eq!(*digest, spec_digest(&documents[0]["spec"]));
}
