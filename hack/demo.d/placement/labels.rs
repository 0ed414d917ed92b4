//! The acts without an extender: the same policy as labels of nodes, which the stock kube-scheduler reads.

use anyhow::Result;
use ganglion_api::placement_policy::PlacementPolicy;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use testkit::plane::install::{self, NAMESPACE};
use testkit::plane::scheduler::{self, SecondScheduler};
use testkit::root;
use testkit::testbed::loops::condition;

use super::scene::{BATCH, POLICY, REPLICAS};
use super::{Place, Replicas};

/// Label of the policy.
const KEY: &str = "ganglion.node-restriction.kubernetes.io/default";

/// Name of the second scheduler, and of its account.
const SECOND: &str = "ganglion-scheduler";

impl Place<'_> {
    /// Delivers the policy as labels, and lets the API server add terms to new pods. Checks where they go.
    pub(super) async fn labels(&self, risky: &str, green: &str) -> Result<bool> {
        scheduler::restart_alone(self.stage.cluster()?).await?;
        self.screen.say("  kube-scheduler was restarted with its own configuration, without an extender.\n");
        for part in ["rights", "policy"] {
            let file = component(&format!("placement-labels/{part}.yaml"));
            self.stage.cluster()?.kubectl(&["apply", "--server-side", "-f", &file], None).await?;
        }
        self.screen.say("    $ kubectl apply -k kustomize/components/placement-labels");
        let namespace = &self.scene.namespace;
        self.kubectl(&format!("label namespace {namespace} ganglion.dev/placement=labels")).await?;
        self.kubectl(&format!("label plpol {POLICY} ganglion.dev/default-policy=true")).await?;
        self.stage.kubectl(&["patch", "plpol", POLICY, "--type=merge", "-p", PATCH]).await?;
        self.screen.say(&format!("    $ kubectl patch plpol {POLICY} --type=merge -p '{PATCH}'\n"));
        self.policy("get plpol", is_applied).await?;
        let nodes: Api<Node> = Api::all(self.scene.client.clone());
        let labels = nodes.list(&ListParams::default()).await?.items;
        let label = |name: &str| {
            let node = labels.iter().find(|node| node.name_any() == name)?;
            node.labels().get(KEY).cloned()
        };
        self.screen.say(&format!("$ kubectl get nodes -L {KEY}"));
        self.screen.say(&self.stage.kubectl(&["get", "nodes", "-L", KEY]).await?);
        let (best, worst) = (label(green).unwrap_or_default(), label(risky).unwrap_or_default());
        let labeled = best == "15" && worst == "rejected";
        self.screen.verdict("labels", &format!("{green}: {best}, {risky}: {worst}"), labeled);
        self.screen.gap();
        Ok(labeled & self.moves_to(green, risky, &[]).await?)
    }

    /// Starts a second stock scheduler that reads the same labels, and checks where its pods go.
    pub(super) async fn second_scheduler(&self, risky: &str, green: &str) -> Result<bool> {
        let namespace = &self.scene.namespace;
        self.kubectl(&format!("label namespace {namespace} ganglion.dev/placement-")).await?;
        self.screen.say("    $ kubectl apply -k kustomize/components/scheduler");
        let cluster = self.stage.cluster()?;
        cluster.kubectl(&["apply", "--server-side", "-f", &component("scheduler/rights.yaml")], None).await?;
        let token = install::token_of(&self.scene.client, NAMESPACE, SECOND).await?;
        let configuration = root().join("kustomize/components/scheduler/scheduler.yaml");
        let second = SecondScheduler::start(cluster, &configuration, &token)?;
        let patch = format!("{{\"spec\": {{\"template\": {{\"spec\": {{\"schedulerName\": \"{SECOND}\"}}}}}}}}");
        let placed = self.moves_to(green, risky, &["patch", "deployment", BATCH, "-p", &patch]).await?;
        drop(second);
        Ok(placed)
    }

    /// Replaces the replicas by this command, or by a restart. Checks that most new ones are on the green node,
    /// since the scheduler also spreads them, and none on the risky one.
    async fn moves_to(&self, green: &str, risky: &str, command: &[&str]) -> Result<bool> {
        let before = self.replicas(BATCH, &std::collections::BTreeSet::new()).await?;
        let restart = ["rollout", "restart", "deployment", BATCH];
        let command = if command.is_empty() { restart.as_slice() } else { command };
        self.stage.kubectl(command).await?;
        self.screen.say(&format!("    $ kubectl {}\n", command.join(" ")));
        let after: Replicas = self.replicas(BATCH, &before.names).await?;
        let (on_green, on_risky) = (after.on(green), after.on(risky));
        self.screen.verdict(&format!("new replicas on {green}"), &after.text(), on_green * 2 > REPLICAS);
        self.screen.verdict(&format!("new replicas on {risky}"), &on_risky.to_string(), on_risky == 0);
        Ok(on_green * 2 > REPLICAS && on_risky == 0)
    }
}

const PATCH: &str = r#"{"spec": {"delivery": ["Labels"], "labels": {"rejections": "Required"}}}"#;

fn component(file: &str) -> String {
    root().join("kustomize/components").join(file).display().to_string()
}

/// Whether all nodes have labels, and new pods get terms.
fn is_applied(policy: &PlacementPolicy) -> Option<()> {
    let status = policy.status.as_ref()?;
    let holds = |kind: &str| condition(&status.conditions, kind).is_some_and(|one| one.status == "True");
    let is_current = status.observed_generation == policy.metadata.generation;
    (is_current && holds("LabelsCurrent") && holds("LabelsApplied")).then_some(())
}
