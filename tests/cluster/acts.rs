//! The three kinds of actions of these tests in one form: the request, and the expected result.

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::action::{create_on, delete_pod, move_pod};
use testkit::eye::Seen;
use testkit::proxy::Write;
use testkit::testbed::Testbed;
use testkit::testbed::workload::Workload;

use crate::scenes::Scene;

/// Replicas of each workload.
pub const REPLICAS: usize = 3;

/// Kind of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Move,
    Create,
    Delete,
}

pub const VERBS: [Verb; 3] = [Verb::Move, Verb::Create, Verb::Delete];

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }
}

/// One action on its own workload; both have the same name.
pub struct Act {
    pub verb: Verb,
    pub scene: Scene,
    pub victim: String,
    pub node: String,
    /// Maximum number of pods that the ReplicaSet creates and deletes meanwhile.
    pub substitutes: usize,
}

impl Act {
    /// Creates the workload, with the strictest budget that the action allows.
    pub async fn prepare(testbed: &Testbed, verb: Verb, app: &str) -> Result<Self> {
        Self::of(testbed, verb, app, |workload| workload).await
    }

    /// The same, with a modified workload.
    pub async fn of(testbed: &Testbed, verb: Verb, app: &str, change: impl Fn(Workload) -> Workload) -> Result<Self> {
        let workload = Workload::deployment(app, REPLICAS);
        let guarded = match verb {
            Verb::Move | Verb::Create => workload.guarded(),
            Verb::Delete => workload.budget(serde_json::json!({"maxUnavailable": 1})),
        };
        let scene = Scene::set(testbed, app, REPLICAS, change(guarded)).await?;
        let (victim, node) = (scene.pod(1).0, scene.free(1));
        Ok(Self { verb, scene, victim, node, substitutes: 1 })
    }

    pub fn name(&self) -> &str {
        &self.scene.app
    }

    pub fn spec(&self) -> Value {
        match self.verb {
            Verb::Move => move_pod(&self.victim, &self.node),
            Verb::Create => create_on(&self.scene.app, &self.node),
            Verb::Delete => delete_pod(&self.victim),
        }
    }

    /// Creates the action.
    pub async fn begin(&self, testbed: &Testbed) -> Result<()> {
        testbed.act(self.name(), self.spec()).await.map(drop)
    }

    /// Checks that the action did exactly what was requested, once, and that no replica was missing at any time.
    pub async fn done(&self, testbed: &Testbed) -> Result<()> {
        let verdict = match self.verb {
            Verb::Move => self.scene.moved(testbed, &[&self.victim], &[&self.node]).await?,
            Verb::Create => self.scene.grown(testbed, &[&self.node]).await?,
            Verb::Delete => self.scene.shrunk(testbed, &[&self.victim]).await?,
        };
        let most = self.substitutes;
        ensure!(verdict.passing.len() <= most, "more than {most} substitutes came and went: {verdict:?}");
        // After a fault, the watch of receipts may lag; by now, it would show a second receipt.
        let mine =
            |seen: &Seen| seen.receipts.values().filter(|receipt| receipt.spec.action_name == self.name()).count();
        let receipts = testbed.eye.until("the receipt", |seen| Some(mine(seen)).filter(|count| *count > 0)).await?;
        ensure!(receipts == 1, "{receipts} receipts");
        Ok(())
    }
}

/// Whether a write concerns this app's action, workload or pods.
pub fn is_about(app: &str) -> impl Fn(&Write) -> bool + Send + 'static {
    let app = app.to_owned();
    move |write| {
        let named = write.body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let mut parts = write.target.split('/').skip(1).chain([named]);
        parts.any(|part| part == app || part.starts_with(&format!("{app}-")))
    }
}
