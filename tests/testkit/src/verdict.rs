//! Evaluation of the eye's events: the lowest number of Ready replicas, terminated pods, new pods with their nodes, and
//! changes of the workload's own object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::eye::{Eye, Happening, Seen};

/// Label by which workloads, Services and budgets of the tests select their pods.
pub const APP: &str = "app";

/// Events of one workload from a certain moment on.
#[derive(Clone, Debug)]
pub struct Story {
    app: String,
    from: usize,
    before: BTreeMap<String, Arc<Pod>>,
}

/// Result of a story. Pods that were both created and terminated within the story are in `passing`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub lowest_ready: usize,
    /// Pods that existed at the beginning and terminated, in the order of their termination.
    pub died: Vec<String>,
    /// Pods created within the story that still exist, with their nodes.
    pub came: Vec<(String, String)>,
    /// Pods created and terminated within the story: surplus pods, and replacements that were given up.
    pub passing: Vec<String>,
    /// Each `spec.replicas` of the app's Deployment or ReplicaSet, in the observed order, without repeats.
    pub replicas: Vec<i32>,
    /// Number of generations of that object.
    pub generations: usize,
}

impl Story {
    /// Begins the story of the workload with this name and app label.
    pub fn begin(eye: &Eye, app: &str) -> Self {
        let seen = eye.now();
        let before = pods_of(&seen, app).map(|pod| (pod.name_any(), pod.clone())).collect();
        Self { app: app.to_owned(), from: seen.history.len(), before }
    }

    /// Pods at the beginning: name and node.
    pub fn pods(&self) -> Vec<(String, String)> {
        self.before.values().map(|pod| (pod.name_any(), node_of(pod))).collect()
    }

    /// Result so far.
    pub fn verdict(&self, eye: &Eye) -> Verdict {
        self.judge(&eye.now())
    }

    fn judge(&self, seen: &Seen) -> Verdict {
        let mut pods = self.before.clone();
        let mut born = BTreeSet::new();
        let mut dead: Vec<String> = Vec::new();
        let mut verdict = Verdict { lowest_ready: ready(&pods), ..Verdict::default() };
        let mut generations = BTreeSet::new();
        for happening in self.early(seen).chain(seen.history.iter().skip(self.from)) {
            match happening {
                Happening::Pod(pod) if is_of(pod, &self.app) => {
                    let name = pod.name_any();
                    if !self.before.contains_key(&name) {
                        born.insert(name.clone());
                    }
                    if pod.metadata.deletion_timestamp.is_some() && !dead.contains(&name) {
                        dead.push(name.clone());
                    }
                    pods.insert(name, pod.clone());
                }
                Happening::Pod(pod) => {
                    // Its labels changed, so no Service selects it any more.
                    pods.remove(&pod.name_any());
                }
                Happening::PodGone(pod) => {
                    let name = pod.name_any();
                    if pods.remove(&name).is_some() && !dead.contains(&name) {
                        dead.push(name);
                    }
                }
                Happening::Deployment(object) if object.name_any() == self.app => {
                    generations.insert(object.metadata.generation);
                    note(&mut verdict.replicas, object.spec.as_ref().and_then(|spec| spec.replicas));
                }
                Happening::Set(object) if object.name_any() == self.app => {
                    generations.insert(object.metadata.generation);
                    note(&mut verdict.replicas, object.spec.as_ref().and_then(|spec| spec.replicas));
                }
                Happening::Deployment(_) | Happening::Set(_) | Happening::Action(_) => {}
            }
            verdict.lowest_ready = verdict.lowest_ready.min(ready(&pods));
        }
        verdict.generations = generations.len();
        let here = |name: &String| pods.get(name).is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
        verdict.came = born.iter().filter(|name| here(name)).map(|name| (name.clone(), node_of(&pods[name]))).collect();
        verdict.passing = born.iter().filter(|name| !here(name)).cloned().collect();
        verdict.died = dead.into_iter().filter(|name| self.before.contains_key(name)).collect();
        verdict
    }

    /// Events of the workload's own object before the beginning.
    fn early<'a>(&self, seen: &'a Seen) -> impl Iterator<Item = &'a Happening> {
        let app = self.app.clone();
        let own = move |happening: &&Happening| match happening {
            Happening::Deployment(object) => object.name_any() == app,
            Happening::Set(object) => object.name_any() == app,
            Happening::Pod(_) | Happening::PodGone(_) | Happening::Action(_) => false,
        };
        seen.history.iter().take(self.from).rev().find(own).into_iter()
    }
}

/// Pods that a Service of this app selects.
pub fn pods_of<'a>(seen: &'a Seen, app: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
    seen.pods.values().filter(move |pod| is_of(pod, app))
}

fn is_of(pod: &Pod, app: &str) -> bool {
    pod.labels().get(APP).is_some_and(|value| value == app)
}

/// Node to which a pod is bound, or an empty string.
pub fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

/// Whether the pod is Ready and not terminating.
pub fn serves(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

fn ready(pods: &BTreeMap<String, Arc<Pod>>) -> usize {
    pods.values().filter(|pod| serves(pod)).count()
}

fn note(replicas: &mut Vec<i32>, now: Option<i32>) {
    let now = now.unwrap_or(1);
    if replicas.last() != Some(&now) {
        replicas.push(now);
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the verdict on artificial histories.

    use super::*;
    use serde_json::json;

    fn pod(name: &str, ready: bool, dying: bool) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": format!("on-{name}"), "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        });
        if dying {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn judge(events: Vec<Happening>) -> Verdict {
        let before = [pod("a", true, false), pod("b", true, false)];
        let story = Story {
            app: "web".to_owned(),
            from: 0,
            before: before.into_iter().map(|pod| (pod.name_any(), pod)).collect(),
        };
        story.judge(&Seen { history: events, ..Seen::default() })
    }

    #[test]
    fn a_pod_that_begins_to_die_serves_no_more() {
        let verdict = judge(vec![Happening::Pod(pod("a", true, true)), Happening::Pod(pod("c", true, false))]);
        assert_eq!((verdict.lowest_ready, verdict.died), (1, vec!["a".to_owned()]));
        assert_eq!(verdict.came, [("c".to_owned(), "on-c".to_owned())]);
    }

    #[test]
    fn a_pod_that_comes_first_keeps_the_number_up_and_the_surplus_is_passing() {
        let verdict = judge(vec![
            Happening::Pod(pod("c", true, false)),
            Happening::Pod(pod("s", false, false)),
            Happening::PodGone(pod("s", false, true)),
            Happening::Pod(pod("a", true, true)),
            Happening::PodGone(pod("a", true, true)),
        ]);
        assert_eq!((verdict.lowest_ready, verdict.passing), (2, vec!["s".to_owned()]));
    }
}
