//! Facts about the volumes of a pod: those shared with other pods, and those whose data stay on its node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;

/// Volumes of a pod that matter if it moves to another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVolumes {
    /// PersistentVolumeClaims that the pod names.
    pub claims: Vec<String>,
    /// Volumes whose data are lost with the pod: emptyDir on disk, and ephemeral claims.
    pub scratch: Vec<String>,
    /// Directories of the node that a container of the pod may write to.
    pub host_paths: Vec<String>,
}

impl From<&PodSpec> for PodVolumes {
    fn from(spec: &PodSpec) -> Self {
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
        let written: BTreeSet<&str> =
            mounts.filter(|mount| mount.read_only != Some(true)).map(|mount| mount.name.as_str()).collect();
        let mut found = Self::default();
        for volume in spec.volumes.iter().flatten() {
            if let Some(claim) = &volume.persistent_volume_claim {
                found.claims.push(claim.claim_name.clone());
            }
            let on_disk = volume.empty_dir.as_ref().is_some_and(|dir| dir.medium.as_deref() != Some("Memory"));
            if on_disk || volume.ephemeral.is_some() {
                found.scratch.push(volume.name.clone());
            }
            if let Some(host) = volume.host_path.as_ref().filter(|_| written.contains(volume.name.as_str()))
                && matches!(host.type_.as_deref(), None | Some("" | "Directory" | "DirectoryOrCreate"))
            {
                found.host_paths.push(host.path.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn found(claims: &[&str], scratch: &[&str], host_paths: &[&str]) -> PodVolumes {
        let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        PodVolumes { claims: own(claims), scratch: own(scratch), host_paths: own(host_paths) }
    }

    #[rstest]
    #[case::claim(json!({"persistentVolumeClaim": {"claimName": "data"}}), false, found(&["data"], &[], &[]))]
    #[case::disk(json!({"emptyDir": {}}), false, found(&[], &["v"], &[]))]
    #[case::memory(json!({"emptyDir": {"medium": "Memory"}}), false, found(&[], &[], &[]))]
    #[case::own_claim(json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}), false, found(&[], &["v"], &[]))]
    #[case::node(json!({"hostPath": {"path": "/srv"}}), false, found(&[], &[], &["/srv"]))]
    #[case::node_read(json!({"hostPath": {"path": "/srv"}}), true, found(&[], &[], &[]))]
    #[case::socket(json!({"hostPath": {"path": "/run/d.sock", "type": "Socket"}}), false, found(&[], &[], &[]))]
    #[case::config(json!({"configMap": {"name": "c"}}), true, found(&[], &[], &[]))]
    fn only_volumes_with_data_count(#[case] mut volume: Value, #[case] read_only: bool, #[case] expected: PodVolumes) {
        volume["name"] = json!("v");
        let mount = json!({"name": "v", "mountPath": "/v", "readOnly": read_only});
        let spec = json!({"containers": [{"name": "main", "volumeMounts": [mount]}], "volumes": [volume]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(PodVolumes::from(&spec), expected);
    }
}
