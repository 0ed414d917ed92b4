//! The admission policies as a whole: they cover every write that the API server serves, the operator does not act
//! without them, and its own account is bounded.

use anyhow::{Context, Result, bail, ensure};
use ganglion::operator::admission::{AdmissionPolicy, Operation, policies};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::plane::install::{ACCOUNT, NAMESPACE};
use testkit::root;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, loops, pools, story, story_on};
use testkit::{TIMEOUT, block_on};

use crate::admission::{KINDS, allowed, creates, says, user, users};

/// Writes of a served resource that no policy guards.
fn unguarded(resource: &APIResource, policies: &[AdmissionPolicy]) -> Vec<String> {
    let has = |verbs: &[&str]| verbs.iter().any(|verb| resource.verbs.iter().any(|served| served == verb));
    // A patch of an object that does not exist creates it, but not by a subresource.
    let creates = has(&["create"]) && !resource.name.contains('/');
    let served = [(Operation::Create, creates), (Operation::Update, has(&["update", "patch"]))];
    let mut missing = Vec::new();
    for (operation, _) in served.iter().filter(|(_, is_served)| *is_served) {
        let mut guards = policies.iter().flat_map(|policy| &policy.guards);
        if !guards.any(|one| one.resource == resource.name && one.operations.contains(operation)) {
            missing.push(format!("{} {}", operation.as_str(), resource.name));
        }
    }
    missing
}

#[test]
fn every_write_that_the_api_server_serves_is_in_the_table() {
    story("policies-discovery", async |testbed| {
        let served = testbed.client.list_api_group_resources("ganglion.dev/v1alpha1").await?.resources;
        ensure!(served.iter().any(|one| one.name == "swarmpools/scale"), "{served:?}");
        let missing =
            |table: &[AdmissionPolicy]| served.iter().flat_map(|one| unguarded(one, table)).collect::<Vec<_>>();
        let table = policies();
        ensure!(missing(&table).is_empty(), "no policy guards {:?}", missing(&table));
        // The comparison notices each resource that is taken out.
        for resource in &served {
            let mut less = table.clone();
            less.iter_mut().for_each(|policy| policy.guards.retain(|one| one.resource != resource.name));
            ensure!(!missing(&less).is_empty(), "{} is not noticed", resource.name);
        }
        Ok(())
    });
}

/// Applies the policies as the condition of an object advises.
async fn apply_policies(testbed: &Testbed) -> Result<()> {
    let path = root().join("kustomize/base/admission.yaml").display().to_string();
    testbed.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &path], None).await.map(drop)
}

async fn replicas(testbed: &Testbed) -> Result<String> {
    testbed.kubectl(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"], None).await
}

/// Waits until the object reports that the operator does not act, and returns the message.
async fn held(testbed: &Testbed, object: &str) -> Result<String> {
    let reason = "--for=jsonpath={.status.conditions[?(@.type==\"Stalled\")].reason}=AdmissionPolicyMissing";
    testbed.kubectl(&["wait", object, reason, "--timeout=60s"], None).await?;
    let message = "jsonpath={.status.conditions[?(@.type==\"Ready\")].message}";
    testbed.kubectl(&["get", object, "-o", message], None).await
}

#[test]
fn without_its_policies_the_operator_reads_and_does_not_act() {
    // A plane of its own, because the policies are those of the whole cluster.
    let plane = block_on(Plane::own("half-installed", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "half-installed", async |testbed| {
        users(testbed, &[]).await?;
        Workload::deployment("web", 3).make(testbed).await?;
        testbed.operator.lock().await.ready().await?;
        let get = async |path: &'static str| testbed.operator.lock().await.get(path).await;
        let action = |name: &str| {
            let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
            json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "metadata": {"name": name},
                "spec": {"delete": {"workload": workload}}})
            .to_string()
        };
        let ready = get("/readyz").await?;
        ensure!(ready.starts_with("HTTP/1.1 200") && ready.ends_with("\r\n\r\nok\n"), "{ready}");

        testbed.kubectl(&["delete", "validatingadmissionpolicybinding", "ganglion-workloadactions"], None).await?;
        // The API server notices the change a moment later.
        let forged = async {
            while says(testbed, "nobody", &["create", "-f", "-"], Some(&action("forged"))).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, forged).await.context("the policy still denies")?;
        let message = held(testbed, "workloadaction/forged").await?;
        for part in ["ganglion-workloadactions (Unbound)", "kubectl apply --server-side -f", "reads but does not act"] {
            ensure!(message.contains(part), "{part} is not in {message}");
        }
        ensure!(replicas(testbed).await? == "3");
        let ready = get("/readyz").await?;
        let is_served = ready.starts_with("HTTP/1.1 200");
        ensure!(is_served && ready.contains("ganglion-workloadactions (Unbound)"), "{ready}");
        let metrics = get("/metrics").await?;
        let series = "ganglion_admission_policies{policy=\"ganglion-workloadactions\",state=\"Unbound\"} 1";
        ensure!(metrics.contains(series), "{series} is not in the metrics");
        // A loop does not need that policy.
        let manifest = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": "web"},
            "spec": testkit::testbed::loops::demo()});
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), manifest.to_string())?;
        let path = file.path().display().to_string();
        let (_, said) = testbed.ganglion(&["check", "-f", &path]).await?;
        ensure!(said.contains("the admission policies for loops are in force"), "{said}");

        testbed.kubectl(&["delete", "workloadaction", "forged"], None).await?;
        apply_policies(testbed).await?;
        testbed.kubectl(&["create", "-f", "-"], Some(&action("allowed"))).await?;
        testbed.ends("allowed", ("True", "Succeeded")).await?;
        ensure!(replicas(testbed).await? == "2");

        // An edited policy counts as missing.
        let edit = r#"[{"op": "replace", "path": "/spec/validations/0/expression", "value": "true"}]"#;
        let policy = ["patch", "validatingadmissionpolicy", "ganglion-workloadactions", "--type=json", "-p", edit];
        testbed.kubectl(&policy, None).await?;
        testbed.kubectl(&["create", "-f", "-"], Some(&action("later"))).await?;
        let message = held(testbed, "workloadaction/later").await?;
        ensure!(message.contains("ganglion-workloadactions (Modified)"), "{message}");
        ensure!(replicas(testbed).await? == "2");
        testbed.kubectl(&["delete", "validatingadmissionpolicy", "ganglion-children"], None).await?;
        let (good, said) = testbed.ganglion(&["check", "-f", &path]).await?;
        ensure!(!good && said.contains("ganglion-children (Missing)"), "{said}");
        // The object continues as soon as the policies are in force.
        apply_policies(testbed).await?;
        testbed.ends("later", ("True", "Succeeded")).await?;
        ensure!(replicas(testbed).await? == "1");
        Ok(())
    });
}

/// Objects of all kinds of a namespace, at rest.
const AT_REST: [&str; 8] = [
    "closedloop/web",
    "monitoring/web",
    "decision/web",
    "execution/web",
    "workloadaction/suspended",
    "swarmpool/streams",
    "nodeconfig/machine",
    "nodeconfigtemplate/machines",
];

/// Reason of the condition Ready.
async fn reason(testbed: &Testbed, object: &str) -> Result<String> {
    let reason = "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}";
    testbed.kubectl(&["get", object, "-o", reason], None).await
}

async fn has_reason(testbed: &Testbed, object: &str, expected: &str) -> Result<()> {
    let reached = format!("--for=jsonpath={{.status.conditions[?(@.type==\"Ready\")].reason}}={expected}");
    let waited = testbed.kubectl(&["wait", object, &reached, "--timeout=60s"], None).await;
    let found = reason(testbed, object).await?;
    waited.map(drop).with_context(|| format!("{object} is {found}, not {expected}"))
}

/// Creates the objects, and an action that has ended. Returns the reasons of those at rest.
async fn rest(testbed: &Testbed) -> Result<Vec<String>> {
    Workload::deployment("web", 2).make(testbed).await?;
    loops::account(testbed, loops::SCALES).await?;
    loops::make(testbed, "web", loops::demo()).await?;
    pools::deployment(testbed, 1).await?;
    let workers = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": pools::WORKERS});
    let pool = json!({"workload": workers, "refresh": {"policy": "None"}, "handover": {"policy": "Immediate"}});
    pools::pool(testbed, "streams", pools::spec(pool)).await?;
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let action = |suspend: bool| {
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        json!({"delete": {"workload": web}, "suspend": suspend})
    };
    for object in [
        object("WorkloadAction", "suspended", action(true)),
        object("WorkloadAction", "ended", action(false)),
        object("NodeConfig", "machine", json!({"nodeName": "node-0", "suspend": true})),
        object(
            "NodeConfigTemplate",
            "machines",
            json!({
                "nodeSelector": {"matchLabels": {"example.com/of": testbed.ns}}, "template": {"suspend": true},
            }),
        ),
    ] {
        testbed.kubectl(&["create", "-f", "-"], Some(&object.to_string())).await?;
    }
    testbed.ends("ended", ("True", "Succeeded")).await?;
    for (object, expected) in [("closedloop/web", "Running"), ("workloadaction/suspended", "Suspended")] {
        has_reason(testbed, object, expected).await?;
    }
    let mut reasons = Vec::new();
    for object in AT_REST {
        testbed.kubectl(&["wait", object, "--for=jsonpath={.status.conditions}", "--timeout=60s"], None).await?;
        reasons.push(reason(testbed, object).await?);
    }
    Ok(reasons)
}

/// Once the policies are back, objects that wait for nothing say again what they said before, also if another process
/// finds them so. An action that has ended keeps its result.
#[test]
fn objects_at_rest_recover_when_the_policies_are_back() {
    let plane = block_on(Plane::own("at-rest", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "at-rest", async |testbed| {
        testbed.operator.lock().await.ready().await?;
        let before = rest(testbed).await?;
        let policies = root().join("kustomize/base/admission.yaml").display().to_string();
        for is_killed in [false, true] {
            testbed.kubectl(&["delete", "-f", &policies], None).await?;
            for object in AT_REST {
                held(testbed, object).await.with_context(|| object)?;
            }
            if is_killed {
                testbed.operator.lock().await.kill();
            }
            apply_policies(testbed).await?;
            if is_killed {
                let mut operator = testbed.operator.lock().await;
                operator.start()?;
                operator.ready().await?;
            }
            for (object, reason) in AT_REST.into_iter().zip(&before) {
                has_reason(testbed, object, reason).await.with_context(|| format!("killed: {is_killed}"))?;
            }
            ensure!(reason(testbed, "workloadaction/ended").await? == "Succeeded", "the result is lost");
        }
        Ok(())
    });
}

/// A pod as the operator creates it, of the ReplicaSet with this uid, with these members of its spec and of its
/// container.
fn copy_of(set: &str, members: Value, container: Value) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": set});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "copy", "ownerReferences": [owner], "labels": {"ganglion.dev/role": "replacement"},
            "annotations": {"ganglion.dev/slot": "s", "ganglion.dev/role": "replacement"},
        },
        "spec": members,
    });
    let mut app = container;
    (app["name"], app["image"]) = (json!("app"), json!("app"));
    pod["spec"]["containers"] = json!([app]);
    pod
}

/// The same for a ReplicaSet that does not exist.
fn copy(members: Value, container: Value) -> Value {
    copy_of("unknown", members, container)
}

#[test]
fn the_account_of_the_operator_is_bounded() {
    story("policies-account", async |testbed| {
        let operator = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let asks = async |args: &[&str], input: Option<&str>| {
            says(testbed, &operator, &[args, &["--dry-run=server"]].concat(), input).await
        };
        let refuses = |answer: Result<String, String>, why: &str| -> Result<()> {
            let Err(words) = answer else { bail!("allowed, although {why}") };
            ensure!(words.contains(why), "{why} is not in {words}");
            Ok(())
        };
        let create = async |namespace: &str, pod: Value| {
            asks(&["create", "-n", namespace, "-f", "-"], Some(&pod.to_string())).await
        };
        let ns = testbed.ns.as_str();
        Workload::deployment("web", 1).make(testbed).await?;
        allowed(&create(ns, copy(json!({}), json!({}))).await)?;
        refuses(create("kube-system", copy(json!({}), json!({}))).await, "does not write in namespace kube-system")?;
        let mut plain = copy(json!({}), json!({}));
        plain["metadata"] = json!({"name": "plain"});
        refuses(create(ns, plain).await, "only as replacements")?;
        let mut foreign = copy(json!({}), json!({}));
        for owners in [
            json!([]),
            json!([{"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "name": "a", "uid": "u"}]),
        ] {
            foreign["metadata"]["ownerReferences"] = owners;
            refuses(create(ns, foreign.clone()).await, "only as replacements")?;
        }
        // A dry run of a pod of a ReplicaSet is allowed, but the pod cannot be created.
        foreign["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u", "controller": true}]);
        allowed(&create(ns, foreign.clone()).await)?;
        let args = ["create", "-n", ns, "-f", "-"];
        refuses(says(testbed, &operator, &args, Some(&foreign.to_string())).await, "only as replacements")?;
        let mut unlabelled = copy(json!({}), json!({}));
        unlabelled["metadata"]["labels"] = json!({});
        refuses(create(ns, unlabelled).await, "only as replacements")?;
        refuses(create(ns, copy(json!({"nodeName": "n"}), json!({}))).await, "only as replacements")?;
        for (members, container) in [
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), json!({})),
            (json!({"hostNetwork": true}), json!({})),
            (json!({"hostPID": true}), json!({})),
            (json!({"hostIPC": true}), json!({})),
            (json!({}), json!({"securityContext": {"privileged": true}})),
            (json!({}), json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})),
            (
                json!({"initContainers": [{"name": "i", "image": "i", "securityContext": {"privileged": true}}]}),
                json!({}),
            ),
        ] {
            refuses(create(ns, copy(members, container)).await, "access to the host")?;
        }
        let added = ["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW"];
        let capable = json!({"securityContext": {"capabilities": {"add": added, "drop": ["ALL"]}}});
        allowed(&create(ns, copy(json!({}), capable)).await)?;

        // An account with rights in the namespace is copied, one with rights in all namespaces is not.
        for name in ["local", "powerful"] {
            testbed.create::<ServiceAccount>(json!({"metadata": {"name": name}})).await?;
        }
        let account = |name: &str| copy(json!({"serviceAccountName": name}), json!({}));
        let subject = format!("--serviceaccount={ns}:local");
        testbed.kubectl(&["create", "rolebinding", "local", "--clusterrole=edit", &subject], None).await?;
        let subject = format!("--serviceaccount={ns}:powerful");
        let binding = format!("{ns}-powerful");
        testbed.kubectl(&["create", "clusterrolebinding", &binding, "--clusterrole=edit", &subject], None).await?;
        let answer = async {
            while create(ns, account("powerful")).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
            create(ns, account("powerful")).await
        };
        let answer = tokio::time::timeout(TIMEOUT, answer).await;
        testbed.kubectl(&["delete", "clusterrolebinding", &binding], None).await?;
        refuses(answer.context("a powerful account is copied")?, "service account powerful")?;
        allowed(&create(ns, account("local")).await)?;

        // A pod of a ReplicaSet that exists has its account. One of another is deleted before it starts.
        let set =
            testbed.kubectl(&["get", "rs", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.uid}"], None).await?;
        allowed(&create(ns, copy_of(&set, json!({}), json!({}))).await)?;
        let other = copy_of(&set, json!({"serviceAccountName": "local"}), json!({}));
        // The API server sees a ReplicaSet as a parameter after a moment.
        let answer = async {
            while create(ns, other.clone()).await.is_ok() {}
            create(ns, other).await
        };
        let answer = tokio::time::timeout(TIMEOUT, answer).await.context("another account is allowed")?;
        refuses(answer, "with service account local; its template has default")?;
        let unknown = copy(json!({"serviceAccountName": "local"}), json!({})).to_string();
        testbed.kubectl(&["create", "-f", "-"], Some(&unknown)).await?;
        testbed.kubectl(&["wait", "--for=delete", "pod/copy", "--timeout=30s"], None).await?;

        let deployment = async |patch: Value| {
            asks(&["patch", "deployment", "web", "--type=merge", "-p", &patch.to_string()], None).await
        };
        let ledger = json!({"ganglion.dev/ledger": "s"});
        allowed(&deployment(json!({"spec": {"replicas": 3}, "metadata": {"annotations": ledger}})).await)?;
        for patch in [
            json!({"spec": {"template": {"spec": {"hostNetwork": true}}}}),
            json!({"spec": {"paused": true}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            json!({"metadata": {"finalizers": ["a.b/c"]}}),
        ] {
            refuses(deployment(patch).await, "only replicas and its own annotations")?;
        }
        let pods = testbed.kubectl(&["get", "pods", "-l", "app=web", "-o", "name"], None).await?;
        let pod = pods.lines().next().context("no pod")?;
        let patch = async |patch: Value| asks(&["patch", pod, "--type=merge", "-p", &patch.to_string()], None).await;
        allowed(&patch(json!({"metadata": {"labels": {"a": "b"}, "annotations": {"ganglion.dev/slot": "s"}}})).await)?;
        refuses(patch(json!({"metadata": {"annotations": {"a": "b"}}})).await, "of a pod, the operator changes only")?;
        refuses(patch(json!({"spec": {"activeDeadlineSeconds": 1}})).await, "of a pod, the operator changes only")?;
        for uid in [set.as_str(), "unknown"] {
            let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid});
            let owners = patch(json!({"metadata": {"ownerReferences": [owner]}})).await;
            if uid == set { allowed(&owners)? } else { refuses(owners, "which owner is the controller")? }
        }
        // Administrators, who may write every path, are not bounded.
        let host = copy(json!({"hostNetwork": true}), json!({})).to_string();
        testbed.kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&host)).await.map(drop)
    });
}

/// Owner references and finalizers decide when an object is deleted.
#[test]
fn who_may_not_delete_an_object_may_not_change_its_owners() {
    story("policies-metadata", async |testbed| {
        let may = |verb: &'static str| ("ganglion.dev", "workloadactions", verb, "");
        users(testbed, &[("patcher", &[may("get"), may("patch")])]).await?;
        let to = json!({"nodeName": "node-1"});
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        testbed.act("held", json!({"move": {"workload": workload, "to": to}, "suspend": true})).await?;
        let patch = async |user: &str, metadata: Value| {
            let patch = json!({"metadata": metadata}).to_string();
            let args = ["patch", "workloadaction", "held", "--type=merge", "--dry-run=server", "-p", &patch];
            says(testbed, user, &args, None).await
        };
        let dead = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]);
        for metadata in [json!({"ownerReferences": dead}), json!({"finalizers": ["a.b/c"]})] {
            let Err(words) = patch("patcher", metadata.clone()).await else { bail!("{metadata} is allowed") };
            ensure!(words.contains("cannot delete resource \"workloadactions\""), "{words}");
            allowed(&patch("nobody", metadata).await)?;
        }
        allowed(&patch("patcher", json!({"labels": {"a": "b"}})).await)
    });
}

/// A receipt of an action that never ran would keep it from running.
#[test]
fn receipts_and_statuses_are_written_by_who_may_do_all_that_an_action_does() {
    story("policies-records", async |testbed| {
        const RIGHTS: [(&str, &str, &str, &str); 8] = [
            ("", "pods/eviction", "create", ""),
            ("", "pods", "create", ""),
            ("", "pods", "delete", ""),
            ("", "pods", "patch", ""),
            ("apps", "deployments", "patch", ""),
            ("apps", "replicasets", "patch", ""),
            ("apps", "statefulsets", "patch", ""),
            ("*", "*/scale", "patch", ""),
        ];
        users(testbed, &[]).await?;
        let mut names = vec!["complete".to_owned()];
        user(testbed, "complete", &[&[KINDS], &RIGHTS[..]].concat()).await?;
        for (index, _) in RIGHTS.iter().enumerate() {
            let mut rights = RIGHTS.to_vec();
            rights.remove(index);
            rights.push(KINDS);
            let name = format!("without-{index}");
            user(testbed, &name, &rights).await?;
            names.push(name);
        }
        let receipt =
            json!({"actionName": "a", "actionUid": "u", "specHash": "h", "executedAt": "2026-01-01T00:00:00Z"});
        for (index, name) in names.iter().enumerate() {
            let answer = creates(testbed, name, "WorkloadActionReceipt", &receipt).await;
            if index == 0 {
                allowed(&answer)?;
                continue;
            }
            let (group, resource, verb, _) = RIGHTS[index - 1];
            let Err(words) = answer else { bail!("allowed without {verb} {resource} of {group:?}") };
            ensure!(words.contains("(Forbidden)") && words.contains(verb), "{words}");
        }
        Ok(())
    });
}
