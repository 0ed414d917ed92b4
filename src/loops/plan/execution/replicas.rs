//! Targets that set no number of replicas: how the API server reports them, and what to do.

use serde_json::{Value, json};

use ganglion_api::closed_loop::TargetRef;
use ganglion_core::facts::group;

/// Path in the message with which the API server refuses to read the scale of a custom resource whose spec does not
/// contain the number: `the spec replicas field ".spec.size" does not exist`, with HTTP 500.
pub fn unset_replicas(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("the spec replicas field \"")?;
    let (path, _) = rest.split_once("\" does not exist")?;
    Some(path.strip_prefix('.').unwrap_or(path).to_owned())
}

/// Message for a target that sets no number of replicas at this path. A scale write could set it, but the loop would
/// not know what it changes.
pub fn unset_message(target: &TargetRef, namespace: &str, path: &str) -> String {
    let TargetRef { api_version, kind, name } = target;
    let resource = match group(api_version) {
        "" => kind.to_lowercase(),
        group => format!("{}.{group}", kind.to_lowercase()),
    };
    let patch = path.rsplit('.').fold(Value::from(1), |inner, part| json!({part: inner}));
    format!(
        "{kind} {name} sets no number of replicas: set {path}, so that the loop can change it, for example by \
         `kubectl patch {resource} {name} -n {namespace} --type=merge -p '{patch}'`"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("Internal error occurred: the spec replicas field \".spec.size\" does not exist", Some("spec.size"))]
    #[case("Internal error occurred: the spec replicas field \".spec.a.b\" does not exist", Some("spec.a.b"))]
    #[case("the spec replicas field \"spec.size\" does not exist", Some("spec.size"))]
    #[case("etcdserver: request timed out", None)]
    #[case("the spec replicas field \"", None)]
    fn the_answer_of_the_api_server_names_the_path(#[case] message: &str, #[case] path: Option<&str>) {
        assert_eq!(unset_replicas(message).as_deref(), path);
    }

    #[rstest]
    #[case(
        "ganglion.dev/v1alpha1",
        "SwarmPool",
        "spec.replicas",
        "swarmpool.ganglion.dev",
        r#"{"spec":{"replicas":1}}"#
    )]
    #[case("shop.example/v1", "Cache", "spec.size", "cache.shop.example", r#"{"spec":{"size":1}}"#)]
    #[case("shop.example/v1", "Cache", "spec.a.size", "cache.shop.example", r#"{"spec":{"a":{"size":1}}}"#)]
    fn the_advice_fits_the_kind_and_the_path(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] path: &str,
        #[case] resource: &str,
        #[case] patch: &str,
    ) {
        let target = TargetRef { api_version: api_version.into(), kind: kind.into(), name: "web".into() };
        let message = unset_message(&target, "shop", path);
        assert!(
            message.starts_with(&format!("{kind} web sets no number of replicas: set {path}, so that")),
            "{message}"
        );
        let command = format!("`kubectl patch {resource} web -n shop --type=merge -p '{patch}'`");
        assert!(message.ends_with(&command), "{message}");
    }
}
