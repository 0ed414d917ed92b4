//! Scenes: a workload at rest, and checks of its later state. Every check uses what the eye saw.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::plane::NODES;
use testkit::testbed::Testbed;
use testkit::testbed::rest::app_clean;
use testkit::testbed::workload::{Workload, settled};
use testkit::verdict::{Story, Verdict};

/// A workload that is at rest when the scene begins.
pub struct Scene {
    pub app: String,
    pub replicas: usize,
    pub tale: Story,
}

impl Scene {
    /// Creates the workload; the scene begins when all its replicas are Ready.
    pub async fn set(testbed: &Testbed, app: &str, replicas: usize, workload: Workload) -> Result<Self> {
        workload.make(testbed).await?;
        Ok(Self { app: app.to_owned(), replicas, tale: Story::begin(&testbed.eye, app) })
    }

    /// A Deployment with a budget that allows no disruption.
    pub async fn guarded(testbed: &Testbed, app: &str, replicas: usize) -> Result<Self> {
        Self::set(testbed, app, replicas, Workload::deployment(app, replicas).guarded()).await
    }

    /// The same scene, with its history starting now.
    pub fn again(&self, testbed: &Testbed) -> Self {
        Self { app: self.app.clone(), replicas: self.replicas, tale: Story::begin(&testbed.eye, &self.app) }
    }

    /// Name and node of one of the first pods.
    pub fn pod(&self, at: usize) -> (String, String) {
        self.tale.pods()[at].clone()
    }

    /// A node of the shared plane without any of the first pods.
    pub fn free(&self, at: usize) -> String {
        let taken: Vec<String> = self.tale.pods().into_iter().map(|(_, node)| node).collect();
        let free: Vec<String> =
            (0..NODES).map(|at| format!("node-{at}")).filter(|node| !taken.contains(node)).collect();
        free[at % free.len()].clone()
    }

    /// Checks that exactly these replicas were removed, that exactly as many started on these nodes, that the
    /// workload's own object is unchanged, and that no replica was missing at any time.
    pub async fn moved(&self, testbed: &Testbed, victims: &[&str], nodes: &[&str]) -> Result<Verdict> {
        let verdict = self.at_rest(testbed, self.replicas).await?;
        exact(&verdict, victims, nodes)?;
        let still = [i32::try_from(self.replicas)?];
        ensure!(verdict.lowest_ready >= self.replicas, "only {} Ready at some time: {verdict:?}", verdict.lowest_ready);
        ensure!(verdict.replicas == still && verdict.generations == 1, "the workload's own object moved: {verdict:?}");
        Ok(verdict)
    }

    /// Checks that this number of replicas started on these nodes, and that none was removed.
    pub async fn grown(&self, testbed: &Testbed, nodes: &[&str]) -> Result<Verdict> {
        let verdict = self.at_rest(testbed, self.replicas + nodes.len()).await?;
        exact(&verdict, &[], nodes)?;
        ensure!(verdict.lowest_ready >= self.replicas, "only {} Ready at some time: {verdict:?}", verdict.lowest_ready);
        let steps: Vec<i32> =
            (self.replicas..=self.replicas + nodes.len()).map(|n| i32::try_from(n).unwrap_or(-1)).collect();
        ensure!(verdict.replicas == steps, "replicas went {:?}, not {steps:?}", verdict.replicas);
        Ok(verdict)
    }

    /// Checks that exactly these replicas were removed, and that none started.
    pub async fn shrunk(&self, testbed: &Testbed, victims: &[&str]) -> Result<Verdict> {
        let left = self.replicas - victims.len();
        let verdict = self.at_rest(testbed, left).await?;
        exact(&verdict, victims, &[])?;
        ensure!(verdict.lowest_ready >= left, "only {} Ready at some time: {verdict:?}", verdict.lowest_ready);
        let steps: Vec<i32> = (left..=self.replicas).rev().map(|n| i32::try_from(n).unwrap_or(-1)).collect();
        ensure!(verdict.replicas == steps, "replicas went {:?}, not {steps:?}", verdict.replicas);
        Ok(verdict)
    }

    /// Checks that all original replicas still exist, and that none was missing at any time.
    pub async fn untouched(&self, testbed: &Testbed) -> Result<Verdict> {
        self.moved(testbed, &[], &[]).await
    }

    /// Verdict, once the workload has this number of replicas, all Ready, and nothing of the operator is left.
    pub async fn at_rest(&self, testbed: &Testbed, replicas: usize) -> Result<Verdict> {
        app_clean(testbed, &self.app).await?;
        settled(testbed, &self.app, replicas).await?;
        Ok(self.tale.verdict(&testbed.eye))
    }
}

/// Checks terminated pods and nodes of new pods, in any order.
fn exact(verdict: &Verdict, victims: &[&str], nodes: &[&str]) -> Result<()> {
    let sorted = |names: Vec<&str>| {
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        names.sort();
        names
    };
    let died = sorted(verdict.died.iter().map(String::as_str).collect());
    let came = sorted(verdict.came.iter().map(|(_, node)| node.as_str()).collect());
    ensure!(died == sorted(victims.to_vec()), "{died:?} died instead of {victims:?}: {verdict:?}");
    ensure!(came == sorted(nodes.to_vec()), "new replicas on {came:?} instead of {nodes:?}: {verdict:?}");
    Ok(())
}

/// Creates a quota named `full` for this number of pods, and waits until it is enforced.
pub async fn quota(testbed: &Testbed, pods: usize) -> Result<()> {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"},
        "spec": {"hard": {"pods": pods.to_string()}},
    });
    testbed.kubectl(&["apply", "-f", "-"], Some(&quota.to_string())).await?;
    let counted = format!("--for=jsonpath={{.status.hard.pods}}={pods}");
    testbed.kubectl(&["wait", &counted, "quota/full", "--timeout=20s"], None).await.map(drop)
}

/// Waits until the quota's controller has counted this number of pods; it observes the end of a pod later than the eye.
pub async fn quota_counts(testbed: &Testbed, pods: usize) -> Result<()> {
    let counted = format!("--for=jsonpath={{.status.used.pods}}={pods}");
    testbed.kubectl(&["wait", &counted, "quota/full", "--timeout=60s"], None).await.map(drop)
}
