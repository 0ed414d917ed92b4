//! The table of the comparison with `kubectl drain`: scenes, commands, and the expected ends of both.

use serde_json::{Value, json};
use testkit::action::with;
use testkit::testbed::rest::BARE;
use testkit::testbed::workload::BEHAVIOR;
use testkit::verdict::APP;

use super::{EMPTY, STAYS, TIMED_OUT};

/// Exit code of `kubectl drain` for all that it does not evict, a timeout included.
const FAILED: i32 = 1;

/// Name of the ConfigMap that stands for an object of a custom controller.
pub const OWNER: &str = "owner";

/// Label of the nodes of a scene.
pub const SCENE: &str = "test.ganglion.dev/scene";

/// Value of [`SCENE`] on the node that has room for the pods of all scenes.
pub const SHARED: &str = "shared";

/// Expected end of a drain with these options.
pub struct Run {
    pub options: &'static [&'static str],
    pub code: i32,
    /// Number of pods on the node afterwards.
    pub left: usize,
}

fn run(options: &'static [&'static str], code: i32, left: usize) -> Run {
    Run { options, code, left }
}

/// Nodes for the pods that leave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    Room,
    /// The only other node is full.
    Full,
    /// The only other node is full. Another one joins when the new pods wait for it.
    Joins,
}

/// Change of a scene before the drains, when its pods run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// A quota that allows as many pods as there are.
    Quota,
    /// A webhook for new pods that does not answer.
    Webhook,
    /// A new template is not rolled out, since the Deployment is paused.
    Paused,
    /// The new pods of a rollout start slowly.
    Rollout,
    /// The new pod of a rollout never becomes Ready, and the Deployment has given up.
    StuckRollout,
    /// Its pods have ended, and count as pods that are left.
    Finished,
}

/// One comparison: objects of a scene, and the drains of two such scenes.
pub struct Row {
    pub name: &'static str,
    pub objects: fn(&Side) -> Vec<Value>,
    pub theirs: Run,
    pub ours: Run,
    pub elsewhere: Elsewhere,
    pub disturbance: Disturbance,
    /// Why ours leaves pods that kubectl evicts.
    pub because: Option<&'static str>,
}

impl Row {
    fn without_room(self, elsewhere: Elsewhere) -> Self {
        Self { elsewhere, ..self }
    }

    fn amid(self, disturbance: Disturbance) -> Self {
        Self { disturbance, ..self }
    }

    fn because(self, words: &'static str) -> Self {
        Self { because: Some(words), ..self }
    }
}

/// One of the two equal scenes of a row: an app on a node that is drained.
pub struct Side {
    pub app: String,
    pub namespace: String,
    /// Label of the objects outside the namespace.
    pub mark: (String, String),
    pub home: String,
    /// Terms that select the nodes of the scene.
    pub terms: Value,
    /// uid of [`OWNER`].
    pub owner: String,
}

impl Side {
    fn metadata(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": {APP: self.app}})
    }

    /// Metadata of an object outside all namespaces. Its name is unique in the cluster.
    pub fn cluster_metadata(&self) -> Value {
        json!({"name": format!("{}-{}", self.mark.1, self.app), "labels": {&self.mark.0: self.mark.1}})
    }

    fn template(&self, more: Value) -> Value {
        let spec = json!({
            "containers": [{"name": "main", "image": "registry.example/app:1"}], "terminationGracePeriodSeconds": 1,
        });
        let mut template = json!({"metadata": {"labels": {APP: self.app}}, "spec": with(self.terms.clone(), spec)});
        json_patch::merge(&mut template, &more);
        template
    }

    fn workload(&self, kind: &str, more: Value, template: Value) -> Value {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": self.metadata(&self.app),
            "spec": {"selector": {"matchLabels": {APP: self.app}}, "template": self.template(template)},
        });
        json_patch::merge(&mut object["spec"], &more);
        object
    }

    fn deployment(&self, replicas: usize) -> Value {
        self.workload("Deployment", json!({"replicas": replicas}), json!({}))
    }

    /// A Deployment with two replicas that never become Ready.
    fn unready(&self) -> Value {
        self.workload("Deployment", json!({"replicas": 2}), behaves("never-ready"))
    }

    /// A pod on the first node without a controller.
    fn bare(&self, more: Value) -> Value {
        let mut pod = self.template(json!({"spec": {"nodeName": self.home}}));
        let mut metadata = self.metadata(&self.app);
        metadata["labels"][BARE] = json!("yes");
        pod["metadata"] = metadata;
        json_patch::merge(&mut pod, &json!({"apiVersion": "v1", "kind": "Pod"}));
        json_patch::merge(&mut pod, &more);
        pod
    }

    /// A pod that belongs to an object of another kind.
    fn custom(&self, more: Value) -> Value {
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": self.owner, "controller": true,
        });
        let mut pod = self.bare(json!({"metadata": {"ownerReferences": [owner]}}));
        json_patch::merge(&mut pod, &more);
        pod
    }

    /// A pod of another project's kind with the name of a kind of `apps`.
    fn namesake(&self) -> Value {
        let owner = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": OWNER, "uid": self.owner,
            "controller": true,
        });
        self.custom(json!({"metadata": {"ownerReferences": [owner]}}))
    }

    /// A ReplicaSet whose Service selects by its only label, so that no pod can be detached.
    fn attached(&self) -> Vec<Value> {
        let ports = json!([{"port": 80}]);
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": self.metadata(&self.app),
            "spec": {"selector": {APP: self.app}, "ports": ports}});
        vec![self.workload("ReplicaSet", json!({"replicas": 1}), json!({})), service]
    }

    fn budget(&self, name: &str, available: usize) -> Value {
        let name = format!("{}-{name}", self.app);
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self.metadata(&name),
            "spec": {"minAvailable": available, "selector": {"matchLabels": {APP: self.app}}}})
    }

    fn on_disk(&self) -> Value {
        let volume = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
        self.workload("Deployment", json!({}), volume)
    }

    fn job(&self) -> Value {
        let mut runs = behaves("never-ready");
        runs["spec"] = json!({"restartPolicy": "Never"});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": self.metadata(&self.app),
            "spec": {"template": self.template(runs)}})
    }

    fn set(&self, more: Value) -> Value {
        self.workload("StatefulSet", with(json!({"serviceName": self.app}), more), json!({}))
    }

    /// Name of the claim of the first replica of [`Self::zonal_set`].
    fn claim(&self) -> String {
        format!("data-{}-0", self.app)
    }

    /// A volume that can be used in the zone of the first node only. No other node is in this zone.
    fn volume(&self) -> Value {
        let here = json!([{"key": SCENE, "operator": "In", "values": [self.app]}]);
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": self.cluster_metadata(), "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": self.namespace, "name": self.claim()},
            "nfs": {"server": "nfs.example", "path": "/"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}}})
    }

    fn claim_spec(&self) -> Value {
        json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}})
    }

    fn zonal_set(&self) -> Vec<Value> {
        let claim = json!({"metadata": {"name": "data"}, "spec": self.claim_spec()});
        vec![self.set(json!({"volumeClaimTemplates": [claim]})), self.volume()]
    }

    /// A pod of another controller with a volume of a zone.
    fn zonal_custom(&self) -> Vec<Value> {
        let claim = self.claim();
        let volume = json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}});
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": self.metadata(&claim),
            "spec": self.claim_spec()});
        vec![self.custom(volume), self.volume(), claim]
    }

    /// A Deployment whose pods count for a quota of their own.
    fn of_class(&self) -> Vec<Value> {
        let class = self.cluster_metadata();
        let template = json!({"spec": {"priorityClassName": class["name"]}});
        let deployment = self.workload("Deployment", json!({"replicas": 2}), template);
        let class =
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": class, "value": 0});
        vec![deployment, class]
    }
}

/// Annotations of a pod whose kubelet behaves like this.
pub fn behaves(word: &str) -> Value {
    json!({"metadata": {"annotations": {BEHAVIOR: word}}})
}

/// Annotation of a static pod's mirror.
fn mirror() -> Value {
    json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}})
}

fn held() -> Value {
    json!({"metadata": {"finalizers": ["example.com/keep"]}})
}

fn slow_to_end() -> Value {
    let annotations = json!({BEHAVIOR: "slow-termination", "kwok.ganglion.dev/termination-delay": "2s"});
    json!({"metadata": {"annotations": annotations}, "spec": {"terminationGracePeriodSeconds": 30}})
}

fn row(name: &'static str, objects: fn(&Side) -> Vec<Value>, theirs: Run, ours: Run) -> Row {
    Row { name, objects, theirs, ours, elsewhere: Elsewhere::Room, disturbance: Disturbance::None, because: None }
}

const ASKS: &str = "it asks for an option before it interrupts or loses something; the next row has the option";

/// Row by row what `kubectl drain` does, and what ours does. Where they differ, ours is gentler, or asks for an option.
pub fn rows() -> Vec<Row> {
    [of_deployments(), of_rollouts(), of_refused_pods(), of_other_pods(), of_options()].into_iter().flatten().collect()
}

fn of_deployments() -> Vec<Row> {
    vec![
        row("free", |side| vec![side.deployment(2)], run(&[], 0, 0), run(&[], EMPTY, 0)),
        row("budget-many", |side| vec![side.deployment(2), side.budget("b", 0)], run(&[], 0, 0), run(&[], EMPTY, 0)),
        row("budget-one", |side| vec![side.deployment(2), side.budget("b", 1)], run(&[], 0, 0), run(&[], EMPTY, 0)),
        // Only a replacement that comes first can empty the node.
        row(
            "budget-none",
            |side| vec![side.deployment(2), side.budget("b", 2)],
            run(&["--timeout=3s"], FAILED, 2),
            run(&[], EMPTY, 0),
        ),
        row(
            "budgets",
            |side| vec![side.deployment(1), side.budget("b", 0), side.budget("c", 0)],
            run(&["--timeout=3s"], FAILED, 1),
            run(&[], STAYS, 1),
        ),
        row("unready", |side| vec![side.unready()], run(&[], 0, 0), run(&[], EMPTY, 0)),
        row(
            "unready-budget",
            |side| vec![side.unready(), side.budget("b", 1)],
            run(&["--timeout=3s"], FAILED, 2),
            run(&["--timeout=3s"], TIMED_OUT, 2),
        ),
        row("full", |side| vec![side.deployment(1)], run(&[], 0, 0), run(&["--timeout=3s"], TIMED_OUT, 1))
            .without_room(Elsewhere::Full)
            .because("a replica that serves does not go before another node has room for its successor"),
        row("joins", |side| vec![side.deployment(2)], run(&[], 0, 0), run(&[], EMPTY, 0))
            .without_room(Elsewhere::Joins),
        row("disk", |side| vec![side.on_disk()], run(&[], FAILED, 1), run(&[], STAYS, 1)),
        row(
            "disk-lost",
            |side| vec![side.on_disk()],
            run(&["--delete-emptydir-data"], 0, 0),
            run(&["--disruption"], EMPTY, 0),
        ),
        row(
            "grace",
            |side| vec![side.workload("Deployment", json!({"replicas": 2}), slow_to_end())],
            run(&[], 0, 0),
            run(&[], EMPTY, 0),
        ),
        row(
            "grace-period",
            |side| vec![side.workload("Deployment", json!({}), slow_to_end())],
            run(&["--grace-period=7"], 0, 0),
            run(&["--grace-period=7"], EMPTY, 0),
        ),
        row("kube-system", |side| vec![side.deployment(1)], run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)),
    ]
}

fn of_rollouts() -> Vec<Row> {
    let two: fn(&Side) -> Vec<Value> = |side| vec![side.deployment(2)];
    vec![
        row("paused", two, run(&[], 0, 0), run(&[], EMPTY, 0)).amid(Disturbance::Paused),
        row("rollout", two, run(&[], 0, 0), run(&[], EMPTY, 0)).amid(Disturbance::Rollout),
        row("rollout-stuck", two, run(&[], 0, 0), run(&[], STAYS, 2)).amid(Disturbance::StuckRollout).because(ASKS),
        row("rollout-stuck-out", two, run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)).amid(Disturbance::StuckRollout),
    ]
}

fn of_refused_pods() -> Vec<Row> {
    let because = "a replica that serves does not go while the API server refuses its successor";
    vec![
        row("quota", Side::of_class, run(&[], 0, 0), run(&["--timeout=3s"], TIMED_OUT, 2))
            .amid(Disturbance::Quota)
            .because(because),
        row("webhook", |side| vec![side.deployment(2)], run(&[], 0, 0), run(&["--timeout=3s"], TIMED_OUT, 2))
            .amid(Disturbance::Webhook)
            .because(because),
    ]
}

fn of_other_pods() -> Vec<Row> {
    let zone = "the successor could not use the volume elsewhere, and would wait for this node";
    vec![
        row("bare", |side| vec![side.bare(json!({}))], run(&[], FAILED, 1), run(&[], STAYS, 1)),
        row("bare-force", |side| vec![side.bare(json!({}))], run(&["--force"], 0, 0), run(&["--force"], EMPTY, 0)),
        row(
            "bare-budget",
            |side| vec![side.bare(json!({})), side.budget("b", 1)],
            run(&["--force", "--timeout=3s"], FAILED, 1),
            run(&["--force", "--timeout=3s"], TIMED_OUT, 1),
        ),
        row(
            "daemon",
            |side| vec![side.workload("DaemonSet", json!({}), json!({}))],
            run(&[], 0, 1),
            run(&[], EMPTY, 1),
        ),
        row("mirror", |side| vec![side.bare(mirror())], run(&["--force"], 0, 1), run(&["--force"], EMPTY, 1)),
        row("job-left", |side| vec![side.job()], run(&[], 0, 0), run(&["--leave-jobs"], STAYS, 1)).because(ASKS),
        row("job", |side| vec![side.job()], run(&[], 0, 0), run(&["--evict-jobs"], EMPTY, 0)),
        row("set", |side| vec![side.set(json!({}))], run(&[], 0, 0), run(&[], STAYS, 1)).because(ASKS),
        row("set-out", |side| vec![side.set(json!({}))], run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)),
        row("set-zone", Side::zonal_set, run(&[], 0, 0), run(&["--disruption"], STAYS, 1)).because(zone),
        row("custom", |side| vec![side.custom(json!({}))], run(&[], 0, 0), run(&[], STAYS, 1)).because(ASKS),
        row("custom-out", |side| vec![side.custom(json!({}))], run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)),
        row("namesake", |side| vec![side.namesake()], run(&[], 0, 0), run(&[], STAYS, 1)).because(ASKS),
        row("namesake-out", |side| vec![side.namesake()], run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)),
        row("attached", Side::attached, run(&[], 0, 0), run(&[], STAYS, 1)).because(ASKS),
        row("attached-out", Side::attached, run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)),
        row("finished", |side| vec![side.bare(json!({}))], run(&[], 0, 0), run(&[], EMPTY, 1))
            .amid(Disturbance::Finished)
            .because("a pod that has ended keeps nothing on the node but its log; the next row has the option"),
        row("finished-out", |side| vec![side.bare(json!({}))], run(&[], 0, 0), run(&["--disruption"], EMPTY, 0))
            .amid(Disturbance::Finished),
        row("custom-zone", Side::zonal_custom, run(&[], 0, 0), run(&["--disruption"], STAYS, 1)).because(zone),
        row(
            "custom-grace",
            |side| vec![side.custom(slow_to_end())],
            run(&["--grace-period=7"], 0, 0),
            run(&["--disruption", "--grace-period=7"], EMPTY, 0),
        ),
        row(
            "custom-budget",
            |side| vec![side.custom(json!({})), side.budget("b", 1)],
            run(&["--timeout=3s"], FAILED, 1),
            run(&["--disruption", "--timeout=3s"], TIMED_OUT, 1),
        ),
        row(
            "finalizer",
            |side| vec![side.custom(held())],
            run(&["--timeout=3s"], FAILED, 1),
            run(&["--disruption", "--timeout=3s"], TIMED_OUT, 1),
        ),
    ]
}

fn of_options() -> Vec<Row> {
    vec![
        row(
            "selected",
            |side| vec![side.deployment(1)],
            run(&["--pod-selector=app=other"], 0, 1),
            run(&["--pod-selector=app=other"], EMPTY, 1),
        ),
        row(
            "dry-run",
            |side| vec![side.deployment(2)],
            run(&["--dry-run=client"], 0, 2),
            run(&["--dry-run=client"], EMPTY, 2),
        ),
    ]
}

#[test]
fn each_row_that_leaves_more_than_kubectl_has_a_reason() {
    for row in rows() {
        assert_eq!(row.ours.left > row.theirs.left, row.because.is_some(), "{}", row.name);
    }
}
