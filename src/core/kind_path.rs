//! URL paths of the API server. Every path that contains text of a user is built here, from checked segments: no text
//! addresses anything but the objects of one kind.

use thiserror::Error;

use crate::names::{is_api_version, is_name};
use crate::words::quoted;

/// URL path of the objects of a kind, in a namespace or in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindPath(String);

/// The text cannot be part of a path.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{} cannot be part of a path of the API server", quoted(.0))]
pub struct BadSegment(String);

impl KindPath {
    /// Path of the namespaced objects of this kind.
    pub fn namespaced(api_version: &str, namespace: &str, plural: &str) -> Result<Self, BadSegment> {
        let Self(version) = Self::of_version(api_version)?;
        Ok(Self(format!("{version}/namespaces/{}/{}", segment(namespace)?, segment(plural)?)))
    }

    /// Path of an API version, where the API server lists its kinds.
    pub fn of_version(api_version: &str) -> Result<Self, BadSegment> {
        if !is_api_version(api_version) {
            return Err(BadSegment(api_version.to_owned()));
        }
        let root = if api_version.contains('/') { "apis" } else { "api" };
        Ok(Self(format!("/{root}/{api_version}")))
    }

    /// Path of the reviews of this kind, which have neither name nor namespace.
    pub fn of_review(api_version: &str, plural: &str) -> Result<Self, BadSegment> {
        let Self(version) = Self::of_version(api_version)?;
        Ok(Self(format!("{version}/{}", segment(plural)?)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks text that becomes a segment of a path.
pub fn segment(text: &str) -> Result<&str, BadSegment> {
    is_name(text).then_some(text).ok_or_else(|| BadSegment(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v1", "shop", "pods", "/api/v1/namespaces/shop/pods")]
    #[case("apps/v1", "shop", "deployments", "/apis/apps/v1/namespaces/shop/deployments")]
    fn paths_of_kinds(#[case] version: &str, #[case] namespace: &str, #[case] plural: &str, #[case] expected: &str) {
        let path = KindPath::namespaced(version, namespace, plural);
        assert_eq!(path.as_ref().map(KindPath::as_str), Ok(expected));
    }

    #[rstest]
    #[case::a_kind_of_the_cluster("apps/v1/replicasets", "a", "b")]
    #[case::a_name("v1", "a", "b/c")]
    #[case::another_namespace("v1", "a/../b", "c")]
    #[case::up("v1", "..", "c")]
    #[case::query("apps/v1?watch=true", "a", "b")]
    #[case::escaped("apps%2Fv1", "a", "b")]
    #[case::empty("", "a", "b")]
    #[case::no_version("apps/", "a", "b")]
    fn text_that_leads_elsewhere_is_refused(#[case] version: &str, #[case] namespace: &str, #[case] plural: &str) {
        assert!(KindPath::namespaced(version, namespace, plural).is_err());
    }

    proptest! {
        #[test]
        fn no_text_adds_or_removes_a_segment(version in ".{0,20}", namespace in ".{0,20}", plural in ".{0,20}") {
            if let Ok(path) = KindPath::namespaced(&version, &namespace, &plural) {
                let parts: Vec<&str> = path.as_str().split('/').skip(1).collect();
                let own = if version.contains('/') { 3 } else { 2 };
                prop_assert_eq!(parts.len(), own + 3);
                prop_assert_eq!(&parts[own..], ["namespaces", &namespace, &plural]);
                prop_assert!(parts.iter().all(|part| !part.trim_matches('.').is_empty()));
                prop_assert!(!path.as_str().contains(['?', '#', '%', ' ']));
            }
        }
    }
}
