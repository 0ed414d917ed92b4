//! Facts about PersistentVolumeClaims.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{Identity, texts};

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimFact {
    pub id: Identity,
    pub created: Timestamp,
    /// Access modes of the bound volume; those of the claim's spec before it is bound.
    pub access_modes: Vec<String>,
    /// PersistentVolume that the claim is bound to or requests.
    pub volume: Option<String>,
}

impl ClaimFact {
    /// Whether pods on two nodes may mount the volume at the same time.
    pub fn is_shared(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
    }
}

impl From<PersistentVolumeClaim> for ClaimFact {
    fn from(claim: PersistentVolumeClaim) -> Self {
        let (spec, status) = (claim.spec.unwrap_or_default(), claim.status.unwrap_or_default());
        let modes = status.access_modes.filter(|modes| !modes.is_empty()).or(spec.access_modes);
        Self {
            id: (&claim.metadata).into(),
            created: claim.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            access_modes: distinct(modes.unwrap_or_default()),
            volume: spec.volume_name.filter(|name| !name.is_empty()).map(|name| texts::name(&name)),
        }
    }
}

/// The modes without repetitions, of which a claim may have any number. The API server accepts four modes.
fn distinct(mut modes: Vec<String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    modes.retain(|mode| known.insert(mode.clone()));
    modes.shrink_to_fit();
    modes
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::asked_for(json!(["ReadWriteOnce"]), json!({}), &["ReadWriteOnce"], false)]
    #[case::bound(json!(["ReadWriteOnce"]), json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}), &["ReadWriteOnce", "ReadWriteMany"], true)]
    #[case::read_only(json!(["ReadOnlyMany"]), json!({"accessModes": []}), &["ReadOnlyMany"], true)]
    #[case::one_pod(json!(["ReadWriteOncePod"]), json!({}), &["ReadWriteOncePod"], false)]
    fn a_claim_has_the_modes_of_its_volume(
        #[case] asked: Value,
        #[case] status: Value,
        #[case] modes: &[&str],
        #[case] shared: bool,
    ) {
        let object = json!({"metadata": {"name": "data", "namespace": "default", "uid": "u", "resourceVersion": "7"},
            "spec": {"accessModes": asked, "volumeName": ""}, "status": status});
        let fact = ClaimFact::from(serde_json::from_value::<PersistentVolumeClaim>(object).unwrap());
        assert_eq!(
            (fact.access_modes.as_slice(), fact.is_shared()),
            (modes.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice(), shared)
        );
        assert_eq!((fact.id.key.name.as_str(), fact.volume), ("data", None));
    }
}
