//! Memory usage of pods from metrics.k8s.io, which a resize compares with lower limits.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{Actor, PODS};
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::items::Items;
use ganglion_core::kind_path::KindPath;
use ganglion_core::quantity;
use ganglion_runtime::error::Error;

/// Maximum age of a measurement. A metrics-server that measures once a minute does not exceed it.
const MAX_AGE: SignedDuration = SignedDuration::from_secs(150);

/// Used fields of a `PodMetricsList`.
#[derive(Deserialize)]
struct UsedPods {
    #[serde(default)]
    items: Items<UsedPod, PODS>,
}

#[derive(Deserialize)]
struct UsedPod {
    metadata: UsedPodMeta,
    /// End of the period of the measurement.
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    containers: Vec<UsedContainer>,
}

#[derive(Deserialize)]
struct UsedPodMeta {
    name: String,
}

#[derive(Deserialize)]
struct UsedContainer {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    usage: Amounts,
}

/// Memory usage of the containers of pods, in bytes, by the name of the pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PodUsages(BTreeMap<String, Vec<(String, i64)>>);

impl PodUsages {
    /// Usage of this container, or of all containers of the pod. None if it is not known.
    pub fn of(&self, pod: &str, container: Option<&str>) -> Option<i64> {
        let containers = self.0.get(pod).filter(|containers| !containers.is_empty())?;
        match container {
            Some(name) => containers.iter().find(|(known, _)| known == name).map(|(_, bytes)| *bytes),
            None => Some(containers.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))),
        }
    }

    /// Reads the list. A pod counts only if all its containers are measured, and not too long ago.
    fn from_list(list: UsedPods, now: Timestamp) -> Self {
        let is_fresh = |pod: &UsedPod| {
            let at = pod.timestamp.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
            at.is_none_or(|at| now.duration_since(at) <= MAX_AGE)
        };
        let pods = list.items.kept.into_iter().filter(is_fresh).filter_map(|pod| {
            let containers = pod.containers.into_iter().map(|container| {
                let bytes = quantity::bytes(container.usage.memory.as_deref()?).ok()?;
                Some((container.name, bytes))
            });
            Some((pod.metadata.name, containers.collect::<Option<_>>()?))
        });
        Self(pods.collect())
    }
}

/// Reads the usage of the pods with these labels as the loop's account. The second value says why it is not known.
pub async fn read(actor: &Actor, selector: &str, now: Timestamp) -> Result<(PodUsages, Option<String>), Error> {
    let kind = KindPath::namespaced("metrics.k8s.io/v1beta1", &actor.loop_key.namespace, "pods")?;
    let why = match actor.account.list::<UsedPods>(&kind, selector).await {
        Ok(list) => return Ok((PodUsages::from_list(list, now), None)),
        Err(Error::NotLeader) => return Err(Error::NotLeader),
        Err(Error::NotFound(_)) => {
            "the cluster does not serve the API metrics.k8s.io: install metrics-server".to_owned()
        }
        Err(Error::Forbidden(refused)) => actor.account.refusal_message(&refused),
        Err(error) => format!("the API metrics.k8s.io: {error}"),
    };
    Ok((PodUsages::default(), Some(why.chars().take(300).collect())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_measured_only_with_all_its_containers_and_recently() {
        let container = |name: &str, memory: &str| json!({"name": name, "usage": {"cpu": "1m", "memory": memory}});
        let pod = |name: &str, at: &str, containers: &[_]| json!({"metadata": {"name": name}, "timestamp": at, "containers": containers});
        let (recent, old) = ("2026-11-21T10:00:00Z", "2026-11-21T09:50:00Z");
        let whole = [container("app", "300Mi"), container("side", "1Mi")];
        let list = json!({"items": [
            pod("a", recent, &whole),
            pod("old", old, &whole),
            pod("half", recent, &[container("app", "1Mi"), json!({"name": "side", "usage": {}})]),
            pod("none", recent, &[]),
        ]});
        let now = "2026-11-21T10:01:00Z".parse().unwrap();
        let usages = PodUsages::from_list(serde_json::from_value(list).unwrap(), now);
        let mib = |count: i64| Some(count << 20);
        assert_eq!((usages.of("a", Some("app")), usages.of("a", None)), (mib(300), mib(301)));
        assert_eq!(usages.of("a", Some("other")), None);
        for pod in ["old", "half", "none", "unknown"] {
            assert_eq!(usages.of(pod, Some("app")), None, "{pod}");
            assert_eq!(usages.of(pod, None), None, "{pod}");
        }
    }
}
