//! Facts about objects of other kinds that own ReplicaSets, such as an Argo Rollout.
//!
//! Such kinds are not watched. The facts are read for an action that changes the replicas of the object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::workload::scale;
use super::{Identity, ScaleFact};

/// A kind that is known only at run time, as the API server serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherKind {
    pub api_version: String,
    pub kind: String,
    pub plural: String,
}

/// An object of another kind that owns ReplicaSets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerFact {
    pub id: Identity,
    pub kind: OtherKind,
    pub scale: ScaleFact,
    pub generation: i64,
    pub observed_generation: i64,
    pub terminating: bool,
}

impl OwnerFact {
    /// Converts an object of this kind. Fails with a message if the object lacks a field that is needed to change its
    /// replicas: the desired replicas, the generation, or the generation that its controller has observed.
    pub fn read(kind: OtherKind, meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let replicas = object.pointer("/spec/replicas").and_then(Value::as_i64).and_then(|many| many.try_into().ok());
        let replicas: i32 = replicas.ok_or("has no number in spec.replicas; set it")?;
        let generation = meta.generation.ok_or("has no metadata.generation, which shows changes of its spec")?;
        let observed = object.pointer("/status/observedGeneration").and_then(number);
        let observed = observed.ok_or(
            "has no number in status.observedGeneration, which shows that its controller has observed a change; is its \
             controller running?",
        )?;
        Ok(Self {
            id: meta.into(),
            kind,
            scale: scale(meta, Some(replicas)),
            generation,
            observed_generation: observed,
            terminating: meta.deletion_timestamp.is_some(),
        })
    }
}

/// Some kinds store the observed generation as text.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// Group of an API version; empty for the core group.
pub fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn meta(generation: Option<i64>) -> ObjectMeta {
        ObjectMeta { name: Some("web".into()), generation, ..ObjectMeta::default() }
    }

    #[rstest]
    #[case::number(json!(7))]
    #[case::text(json!("7"))]
    fn an_object_is_read_whose_controller_says_what_it_has_seen(#[case] observed: Value) {
        let object = json!({"spec": {"replicas": 3}, "status": {"observedGeneration": observed}});
        let fact = OwnerFact::read(OtherKind::default(), &meta(Some(8)), &object).unwrap();
        assert_eq!((fact.scale.replicas, fact.generation, fact.observed_generation), (3, 8, 7));
    }

    #[rstest]
    #[case::no_replicas(json!({"status": {"observedGeneration": 1}}), Some(1), "spec.replicas")]
    #[case::words(json!({"spec": {"replicas": "many"}, "status": {"observedGeneration": 1}}), Some(1), "spec.replicas")]
    #[case::not_seen(json!({"spec": {"replicas": 3}}), Some(1), "status.observedGeneration")]
    #[case::a_hash(json!({"spec": {"replicas": 3}, "status": {"observedGeneration": "c5f9"}}), Some(1), "status.observedGeneration")]
    #[case::no_generation(json!({"spec": {"replicas": 3}, "status": {"observedGeneration": 1}}), None, "metadata.generation")]
    fn an_object_that_leaves_open_what_its_controller_does_is_not(
        #[case] object: Value,
        #[case] generation: Option<i64>,
        #[case] field: &str,
    ) {
        let error = OwnerFact::read(OtherKind::default(), &meta(generation), &object).unwrap_err();
        assert!(error.contains(field), "{error}");
    }
}
