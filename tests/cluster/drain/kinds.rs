//! Other pods on a drained node: pods of Jobs, static pods, pods with local data, StatefulSets.

use std::time::Duration;

use testkit::verdict::serves;

use super::*;

/// A pod with this label, on the nodes of the testbed.
fn template(nodes: &TestNodes, app: &str, spec: Value, annotations: Value) -> Value {
    let pod = json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "registry.example/app:1"}]});
    json!({"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": with(with(nodes.terms(), pod), spec)})
}

/// On the first of these nodes: a Job whose pod runs until it is deleted, a static pod, a Deployment with local data,
/// and a StatefulSet with gated pods.
async fn make(testbed: &Testbed, nodes: &TestNodes) -> Result<()> {
    let home = nodes.names[0].as_str();
    nodes.open_only(&[home]).await?;
    let runs_on = json!({"kwok.ganglion.dev/behavior": "never-ready"});
    let claim = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    let labels = |app: &str| json!({"matchLabels": {"app": app}});
    let gate = json!({"schedulingGates": [{"name": ganglion_api::marks::GATE}]});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{}-disk", testbed.ns)}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": testbed.ns, "name": "data"}, "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [home]}]}]}}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "report"},
            "spec": {"template": template(nodes, "report", json!({"restartPolicy": "Never"}), runs_on)}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "disk"},
            "spec": {"selector": labels("disk"), "template": template(nodes, "disk", claim, json!({}))}},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
            "serviceName": "db", "selector": labels("db"), "template": template(nodes, "db", gate, json!({}))}},
    ]});
    testbed.kubectl(&["create", "-f", "-"], Some(&list.to_string())).await?;
    let fixed = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "proxy", "labels": {BARE: "yes"}, "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": home, "containers": [{"name": "main", "image": "registry.example/app:1"}],
            "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}]},
    });
    testbed.kubectl(&["create", "-f", "-"], Some(&fixed.to_string())).await?;
    settled(testbed, "disk", 1).await?;
    let serving = |seen: &Seen| pods_of(seen, "db").any(|pod| serves(pod)).then_some(());
    testbed.eye.until("the replica of the StatefulSet", serving).await?;
    let runs = |seen: &Seen| pods_of(seen, "report").any(|pod| node_of(pod) == home).then_some(());
    testbed.eye.until("the pod of the Job", runs).await?;
    nodes.open_all().await
}

#[test]
fn jobs_are_waited_for_and_what_has_its_data_here_stays() {
    story("drain-kinds", async |testbed| {
        let user = User::administrator(testbed).await?;
        let nodes = testbed.nodes(2, Size::default()).await?;
        let [home, other] = [0, 1].map(|at| nodes.names[at].as_str());
        make(testbed, &nodes).await?;

        let drained = user.drain(&[home, "--leave-jobs"]).await?;
        let words = [
            "Job/report runs to its end",
            &format!("volume {}-disk of claim data cannot be used on another node", testbed.ns),
            "the next pod of a StatefulSet has the same name",
            &format!("kubectl ganglion drain {home} --leave-jobs --disruption"),
            "3 pods left",
        ];
        ends(&drained, STAYS, &words)?;
        ensure!(nodes_of(testbed, "db") == [home] && actions(testbed).is_empty(), "{:?}", actions(testbed));

        testbed.kubectl(&["delete", "deployment", "disk", "--wait"], None).await?;
        let mut child = user.begin(&[home, "--disruption"])?;
        let moved = |seen: &Seen| pods_of(seen, "db").any(|pod| node_of(pod) == other).then_some(());
        testbed.eye.until("the replica of the StatefulSet to move", moved).await?;
        let name = testbed.eye.now().actions.keys().next().cloned().context("no action")?;
        testbed.ends(&name, ("True", "Succeeded")).await?;
        // The drain polls about once a second.
        let early = tokio::time::timeout(Duration::from_secs(4), child.wait()).await;
        ensure!(early.is_err(), "it did not wait for the Job");
        let job =
            pods_of(&testbed.eye.now(), "report").map(|pod| pod.name_any()).next().context("no pod of the Job")?;
        let over = json!({"status": {"phase": "Succeeded"}}).to_string();
        testbed.kubectl(&["patch", "pod", &job, "--subresource=status", "--type=merge", "-p", &over], None).await?;
        let drained = said(child.wait_with_output().await?)?;
        let words = ["1 replica moved", "is empty but for DaemonSets and static pods"];
        let outcome = ends(&drained, EMPTY, &words);
        testbed.kubectl(&["delete", "pv", &format!("{}-disk", testbed.ns), "--wait=false"], None).await?;
        outcome
    });
}
