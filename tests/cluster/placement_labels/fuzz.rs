//! Generated pods through the MutatingAdmissionPolicy, by server-side dry run. None is refused that is accepted without
//! the policy, none is changed beyond our terms, and a second pass changes nothing.
//!
//! Another seed, or more pods: `GANGLION_LABEL_SEED=7 GANGLION_LABEL_PODS=10000 cargo test --test cluster labels`.

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use futures::{StreamExt, stream};
use ganglion_api::marks::{LABEL_DOMAIN, POD_POLICY, ROLE};
use jiff::Timestamp;
use kube::{Client, Error};
use serde_json::{Map, Value, json};

use super::creation::{STRICT, STRICT_KEY, dry_run, impatient};
use super::scene::{KEY, POLICY, Scene};

const SEED: u64 = 11;
const PODS: usize = 400;

/// Number of pods that are created at once.
const AT_ONCE: usize = 24;

/// A policy for pods of other schedulers, and one without labels.
const OTHER: (&str, &str, [&str; 2]) = (
    "elsewhere",
    "ganglion.node-restriction.kubernetes.io/elsewhere",
    ["gke.io/optimize-utilization-scheduler", "ours"],
);
const IDLE: &str = "idle";

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

pub fn from_environment<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Makes pods of all shapes. Some are invalid.
struct PodMaker(Rng);

impl PodMaker {
    /// Whether something happens that does in this percentage.
    fn is(&mut self, percent: u8) -> bool {
        self.0.u8(..100) < percent
    }

    fn one<'v>(&mut self, values: &[&'v str]) -> &'v str {
        values[self.0.usize(..values.len())]
    }

    fn many(&mut self, most: usize, each: impl Fn(&mut Self) -> Value) -> Value {
        let mut count = self.0.usize(..=3.min(most));
        if self.is(15) {
            count = self.0.usize(..=most);
        }
        (0..count).map(|_| each(self)).collect()
    }

    fn expression(&mut self) -> Value {
        let mut keys = vec!["zone", "disk", "kubernetes.io/hostname", "example.com/number"];
        // Terms that read a label of a policy end ours.
        if self.is(3) {
            keys = vec![KEY, STRICT_KEY, "ganglion.node-restriction.kubernetes.io/foreign"];
        }
        let key = self.one(&keys);
        let operator = self.one(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
        let values = match operator {
            "In" | "NotIn" => self.many(5, |maker| json!(maker.one(&["a", "b", "15", "0", ""]))),
            "Gt" | "Lt" => json!([self.one(&["7", "-3", "0"])]),
            _ => json!([]),
        };
        // An empty list of `In` is invalid.
        let values = if values == json!([]) && matches!(operator, "In" | "NotIn") && !self.is(3) {
            json!(["a"])
        } else {
            values
        };
        if values == json!([]) && self.is(50) {
            return json!({"key": key, "operator": operator});
        }
        json!({"key": key, "operator": operator, "values": values})
    }

    fn term(&mut self) -> Value {
        let mut term = Map::new();
        if self.is(75) {
            term.insert("matchExpressions".into(), self.many(6, Self::expression));
        }
        if self.is(25) {
            let operator = self.one(&["In", "NotIn"]);
            let name = self.one(&["node-0", "node-1", "x"]);
            term.insert(
                "matchFields".into(),
                json!([{"key": "metadata.name", "operator": operator, "values": [name]}]),
            );
        }
        Value::Object(term)
    }

    fn node_affinity(&mut self) -> Value {
        let mut affinity = Map::new();
        if self.is(55) {
            let weighted = |maker: &mut Self| {
                let weight = if maker.is(1) { 101 * maker.0.i64(0..2) } else { maker.0.i64(1..=100) };
                json!({"weight": weight, "preference": maker.term()})
            };
            affinity.insert(PREFERRED.into(), self.many(20, weighted));
        }
        if self.is(55) {
            let terms = match self.many(40, Self::term) {
                // No term at all is invalid.
                Value::Array(terms) if terms.is_empty() && !self.is(5) => json!([self.term()]),
                terms => terms,
            };
            affinity.insert(REQUIRED.into(), json!({"nodeSelectorTerms": terms}));
        }
        Value::Object(affinity)
    }

    fn pod_affinity(&mut self) -> Value {
        let term = |maker: &mut Self| {
            json!({
                "topologyKey": maker.one(&["zone", "kubernetes.io/hostname"]),
                "labelSelector": {"matchLabels": {"app": maker.one(&["x", "y"])}},
            })
        };
        let weighted = |maker: &mut Self| json!({"weight": maker.0.u8(1..=100), "podAffinityTerm": term(maker)});
        match self.0.u8(..3) {
            0 => json!({}),
            1 => json!({REQUIRED: self.many(3, term)}),
            _ => json!({REQUIRED: self.many(3, term), PREFERRED: self.many(3, weighted)}),
        }
    }

    fn affinity(&mut self) -> Value {
        let mut affinity = Map::new();
        if self.is(75) {
            affinity.insert("nodeAffinity".into(), if self.is(3) { Value::Null } else { self.node_affinity() });
        }
        for kind in ["podAffinity", "podAntiAffinity"] {
            if self.is(20) {
                affinity.insert(kind.into(), self.pod_affinity());
            }
        }
        Value::Object(affinity)
    }

    fn metadata(&mut self, number: usize) -> Value {
        let mut metadata = json!({"name": format!("generated-{number}")});
        let mut labels = Map::new();
        if self.is(65) {
            let policy = self.one(&[POLICY, STRICT, STRICT, STRICT, OTHER.0, IDLE, "unknown", ""]);
            labels.insert(POD_POLICY.into(), json!(policy));
        }
        if self.is(3) {
            labels.insert(ROLE.into(), json!("replacement"));
        }
        if self.is(30) {
            labels.insert("app".into(), json!("x"));
        }
        if !labels.is_empty() || self.is(30) {
            metadata["labels"] = Value::Object(labels);
        }
        if self.is(40) {
            let kind = self.one(&["ReplicaSet", "ReplicaSet", "StatefulSet", "Job", "Node", "DaemonSet", "daemonSet"]);
            metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}]);
        }
        if self.is(15) {
            metadata["managedFields"] = self.many(3, Self::managed_fields);
        }
        metadata
    }

    /// An entry in a manifest that was read from another cluster.
    fn managed_fields(&mut self) -> Value {
        let mut entry = json!({
            "manager": self.one(&["kubectl", "kube-controller-manager", "é"]),
            "operation": self.one(&["Update", "Apply"]), "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:x": {}}}},
        });
        match self.0.u8(..4) {
            0 => {}
            1 => entry["time"] = json!("2099-01-01T00:00:00Z"),
            _ => entry["time"] = json!("2020-01-01T00:00:00Z"),
        }
        entry
    }

    fn pod(&mut self, number: usize) -> Value {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(number), "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "main", "image": "registry.example/app:1"}],
        }});
        let spec = &mut pod["spec"];
        if self.is(85) {
            spec["affinity"] = if self.is(3) { Value::Null } else { self.affinity() };
        }
        if self.is(25) {
            spec["schedulerName"] = json!(self.one(&[
                "default-scheduler",
                "",
                "other",
                OTHER.2[0],
                OTHER.2[1],
                "ganglion-scheduler",
                "a b/é"
            ]));
        }
        if self.is(5) {
            spec["nodeName"] = json!("node-0");
        }
        if self.is(20) {
            spec["nodeSelector"] = json!({self.one(&["zone", KEY]): self.one(&["a", "15"])});
        }
        if self.is(10) {
            spec["schedulingGates"] = json!([{"name": "example.com/wait"}]);
        }
        if self.is(10) {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        pod
    }
}

/// Pods whose evaluation costs more than an admission policy may use.
fn large() -> Vec<Value> {
    let mut maker = PodMaker(Rng::with_seed(SEED));
    let mut pod = |name: &str, affinity: Value| {
        let labels = json!({POD_POLICY: STRICT});
        let mut pod = maker.pod(0);
        pod["metadata"] = json!({"name": name, "labels": labels});
        pod["spec"] = json!({
            "automountServiceAccountToken": false, "containers": [{"name": "main", "image": "registry.example/app:1"}],
            "affinity": {"nodeAffinity": affinity},
        });
        pod
    };
    let expression = |at: usize| json!({"key": format!("label-{at}"), "operator": "In", "values": ["a", "b", "c"]});
    let preferred = |count: usize, each: usize| {
        let expressions: Vec<Value> = (0..each).map(expression).collect();
        json!(vec![json!({"weight": 1, "preference": {"matchExpressions": expressions}}); count])
    };
    let required = |count: usize| {
        let terms: Vec<Value> = (0..count).map(|at| json!({"matchExpressions": [expression(at)]})).collect();
        json!({"nodeSelectorTerms": terms})
    };
    vec![
        pod("many-preferred", json!({PREFERRED: preferred(3_000, 1)})),
        pod("long-preferred", json!({PREFERRED: preferred(50, 200)})),
        pod("many-required", json!({REQUIRED: required(3_000)})),
        pod("both", json!({PREFERRED: preferred(800, 2), REQUIRED: required(800)})),
    ]
}

/// Whether it is the expression that keeps pods off rejected nodes.
fn is_of(expression: &Value, key: &str) -> bool {
    expression["key"] == key && expression["operator"] == "NotIn" && expression["values"] == json!(["rejected"])
}

/// Removes the terms of the policy with this key, and lists and objects that are empty then and absent in the pod
/// without the policy. Returns the number of preferred terms, and of required expressions.
fn strip(spec: &mut Value, key: &str, without: &Value) -> (usize, usize) {
    let (mut preferred, mut required) = (0, 0);
    let at = "/affinity/nodeAffinity";
    if let Some(Value::Array(terms)) = spec.pointer_mut(&format!("{at}/{PREFERRED}")) {
        let before = terms.len();
        terms.retain(|term| term["preference"]["matchExpressions"][0]["key"] != key);
        preferred = before - terms.len();
    }
    if let Some(Value::Array(terms)) = spec.pointer_mut(&format!("{at}/{REQUIRED}/nodeSelectorTerms")) {
        for term in terms.iter_mut().filter_map(Value::as_object_mut) {
            let Some(Value::Array(expressions)) = term.get_mut("matchExpressions") else { continue };
            let before = expressions.len();
            expressions.retain(|expression| !is_of(expression, key));
            required += before - expressions.len();
            if expressions.is_empty() {
                term.remove("matchExpressions");
            }
        }
    }
    for (parent, members) in [(at, &[PREFERRED, REQUIRED][..]), ("/affinity", &["nodeAffinity"]), ("", &["affinity"])] {
        let of_user = without.pointer(parent).unwrap_or(&Value::Null);
        if let Some(value) = spec.pointer_mut(parent) {
            prune(value, of_user, members);
        }
    }
    (preferred, required)
}

/// Removes these members if the pod without the policy lacks them and nothing of the user is in them.
fn prune(value: &mut Value, without: &Value, members: &[&str]) {
    let Some(object) = value.as_object_mut() else { return };
    for member in members {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(object) => object.is_empty() || *value == json!({"nodeSelectorTerms": [{}]}),
            _ => false,
        };
        if without[member].is_null() && object.get(*member).is_some_and(is_empty) {
            object.remove(*member);
        }
    }
}

/// The policy whose terms a pod gets, as the page says: its key, and whether its rejections are required.
fn expected(pod: &Value, without: &Value, until: Timestamp) -> Option<(&'static str, bool)> {
    let labels = &pod["metadata"]["labels"];
    let scheduler = without["spec"]["schedulerName"].as_str().unwrap_or_default();
    let is_default = scheduler == "default-scheduler";
    let policy = match labels.get(POD_POLICY).and_then(Value::as_str) {
        None | Some(POLICY) if is_default => (KEY, false),
        Some(STRICT) if is_default => (STRICT_KEY, true),
        Some(name) if name == OTHER.0 && OTHER.2.contains(&scheduler) => (OTHER.1, false),
        _ => return None,
    };
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let is_daemon = owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "DaemonSet"));
    let has_place = !pod["spec"]["nodeName"].is_null() || labels.get(ROLE).is_some();
    let terms = pod["spec"]["affinity"]["nodeAffinity"][PREFERRED].to_string();
    // The times that the API server has recorded, also those of clients.
    let fields = without["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let times: Vec<Timestamp> =
        fields.iter().filter_map(|entry| entry["time"].as_str().and_then(|time| time.parse().ok())).collect();
    let is_valid = times.iter().max().is_some_and(|newest| *newest <= until);
    (!is_daemon && !has_place && is_valid && !terms.contains(LABEL_DOMAIN)).then_some(policy)
}

/// Everything but what the API server chooses.
fn comparable(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod.as_object_mut().map(|pod| pod.remove("status"));
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        for member in ["namespace", "uid", "creationTimestamp", "managedFields"] {
            metadata.remove(member);
        }
    }
    pod
}

struct Fuzz<'a> {
    client: Client,
    namespace: &'a str,
    plain: &'a str,
    until: Timestamp,
}

impl Fuzz<'_> {
    /// Creates a pod in both namespaces. Returns whether it is valid, and has terms.
    async fn check(&self, pod: &Value, is_usual: bool) -> Result<(bool, bool)> {
        let create = |namespace, pod| dry_run(&self.client, namespace, pod);
        let (with, without) = tokio::join!(create(self.namespace, pod), create(self.plain, pod));
        let (with, without) = match (with, without) {
            (Ok(with), Ok(without)) => (with, without),
            (Err(Error::Api(with)), Err(Error::Api(without))) if with.code == without.code => {
                return Ok((false, false));
            }
            (with, without) => bail!("{pod}\nwith the policy: {with:?}\nwithout: {without:?}"),
        };
        let policy = expected(pod, &without, self.until);
        let (key, is_strict) = policy.unwrap_or((KEY, false));
        let mut stripped = comparable(&with);
        let (mut preferred, mut required) = (0, 0);
        if policy.is_some() {
            (preferred, required) = strip(&mut stripped["spec"], key, &without["spec"]);
        }
        let expected = comparable(&without);
        ensure!(stripped == expected, "{pod}\nbecame {stripped}\ninstead of {expected}, without terms of {key}");
        if is_usual {
            let terms = if policy.is_some() { 4 } else { 0 };
            ensure!(preferred == terms, "{pod}\nhas {preferred} terms of {key}, not {terms}: {with}");
            let of_user = &without["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
            let able = of_user.as_array().map_or(1, |terms| terms.iter().filter(|term| **term != json!({})).count());
            let repelled = if is_strict { able } else { 0 };
            ensure!(required == repelled, "{pod}\nis repelled by {required} terms, not {repelled}: {with}");
        }
        let mut again = comparable(&with);
        again["metadata"]["managedFields"] = with["metadata"]["managedFields"].clone();
        let again = create(self.namespace, &again).await.with_context(|| format!("{with}"))?;
        ensure!(again["spec"] == with["spec"], "{with}\nbecame {again} the second time");
        Ok((true, preferred > 0))
    }
}

pub async fn run(scene: &Scene<'_>, plain: &str) -> Result<()> {
    scene.policy(OTHER.0, &json!({"schedulerNames": OTHER.2})).await?;
    scene.policy(IDLE, &json!({"delivery": ["Extender"]})).await?;
    let names_it = json!({"metadata": {"labels": {POD_POLICY: OTHER.0}}, "spec": {"schedulerName": OTHER.2[0]}});
    scene.until("terms of the third policy", &names_it, |pod| pod["spec"]["affinity"].is_object()).await?;
    let status = scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    let until = status.valid_until.context("valid until no time")?.0;
    let fuzz = Fuzz { client: impatient(scene.testbed)?, namespace: &scene.testbed.ns, plain, until };
    let seed = from_environment("GANGLION_LABEL_SEED", SEED);
    let count = from_environment("GANGLION_LABEL_PODS", PODS);
    println!("GANGLION_LABEL_SEED={seed} GANGLION_LABEL_PODS={count}");
    let begun = std::time::Instant::now();
    let mut maker = PodMaker(Rng::with_seed(seed));
    let pods = (0..count).map(|number| (maker.pod(number), true)).chain(large().into_iter().map(|pod| (pod, false)));
    let checked = stream::iter(pods).map(async |(pod, is_usual)| fuzz.check(&pod, is_usual).await);
    let ends: Vec<Result<(bool, bool)>> = checked.buffer_unordered(AT_ONCE).collect().await;
    let faults: Vec<String> = ends.iter().filter_map(|end| Some(format!("{:#}", end.as_ref().err()?))).collect();
    ensure!(faults.is_empty(), "{} of {count} pods:\n{}", faults.len(), faults[..faults.len().min(5)].join("\n"));
    let checked: Vec<(bool, bool)> = ends.into_iter().collect::<Result<_>>()?;
    let valid = checked.iter().filter(|(is_valid, _)| *is_valid).count();
    let with_terms = checked.iter().filter(|(_, has_terms)| *has_terms).count();
    println!("{valid} valid pods, {with_terms} with terms, in {:.1} s", begun.elapsed().as_secs_f64());
    ensure!(valid > count / 2 && valid < checked.len(), "{valid} of {count} pods are valid");
    ensure!(with_terms > count / 5 && with_terms < valid, "{with_terms} of {valid} pods have terms");
    for policy in [OTHER.0, IDLE] {
        scene.policies().delete(policy, &Default::default()).await?;
    }
    Ok(())
}
