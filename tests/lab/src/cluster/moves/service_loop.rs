//! The ClosedLoop of a service: its spec, and its shipped stages on the clock of the simulation.
//!
//! The metrics are those that a user would query: the usage of the busiest node with a replica, and the replicas on
//! servers that need more power per core than others.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::execution::Claim;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::Key;
use ganglion_core::world::Origin;
use ganglion_loops_plan::execution::{EffectResult, ExecutionEffect, TargetState, WorkloadActionState};
use ganglion_loops_plan::monitoring::{SourceResult, SourceValue};
use ganglion_loops_plan::replay::{Arrivals, LoopTarget, ReplayOptions, ReplayRules, ReplayedStages};
use ganglion_runtime::store::Store;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::super::facts::{MODEL, NAMESPACE, service_name};
use super::super::published::POLICY;
use super::super::service::time;
use super::MoveRules;

/// Interval at which a loop reads its metrics, in seconds.
const INTERVAL: i64 = 30;

/// Names of the metrics.
const BUSIEST: &str = "busiest";
const INEFFICIENT: &str = "inefficient";

/// Maximum number of decisions of a loop at one time.
const MAX_ROUNDS: usize = 8;

/// Values of the metrics of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceMetrics {
    /// Usage of the busiest node with a replica, in percent.
    pub busiest: f64,
    /// Number of replicas on servers that need more power per core than the best model.
    pub inefficient: usize,
}

/// A service with its loop.
pub struct ServiceLoop {
    name: String,
    stages: ReplayedStages<MovedService>,
}

impl ServiceLoop {
    /// `has_policy`: whether the policy of the contender ranks the nodes. `best`: the model that needs least power per
    /// core, if there are others.
    pub fn new(service: usize, rules: MoveRules, has_policy: bool, best: Option<&str>, store: Store) -> Result<Self> {
        let name = service_name(service);
        let declared: ClosedLoopSpec = serde_json::from_value(spec(&name, rules, has_policy, best))?;
        let parsed = ReplayRules::new(&name, &declared, &ReplayOptions::default())?;
        let target = MovedService { store, created: None };
        Ok(Self { name, stages: ReplayedStages::new(Arc::new(parsed), target, time(0)) })
    }

    /// Reads the metrics if it is time, and decides and acts until the loop rests. `second`: seconds since the begin.
    /// Returns the WorkloadAction that it has created.
    pub fn step(&mut self, metrics: ServiceMetrics, second: i64) -> Result<Option<Key>> {
        let (stages, now) = (&mut self.stages, time(second));
        let goes_on = [stages.again, stages.execution_due].into_iter().flatten().any(|at| at <= now);
        let due = stages.next_evaluation(now).is_some_and(|at| at <= now);
        let polled = (second % INTERVAL == 0).then(|| answers(metrics, now));
        let written = (due || polled.is_some()) && stages.observe(Arrivals { polled, pushed: None, due }, now);
        if stages.monitoring.written.term.is_none() || !(written || goes_on || stages.execution.claim.is_some()) {
            return Ok(None);
        }
        for _ in 0..MAX_ROUNDS {
            stages.decide(now);
            if !stages.execute(now)? {
                return Ok(stages.target.created.take());
            }
        }
        bail!("the loop {} acts without a pause", self.name)
    }
}

/// Spec of the loop of the service with this name.
fn spec(name: &str, rules: MoveRules, has_policy: bool, best: Option<&str>) -> Value {
    let source = |query: &str| json!({"prometheus": {"url": "http://prometheus.lab", "query": query}});
    let mut target = json!({"where": "node.cpu.utilization < 0.7"});
    if has_policy {
        target["policy"] = json!(POLICY);
    }
    let action = |metric: &str, from: Value, to: Value| {
        let rung = json!({"workloadAction": {"move": {"from": from, "to": to}}});
        json!({"when": {"metric": metric, "side": "High"}, "ladder": [rung]})
    };
    let levels = json!({"raise": "90", "for": "30s"});
    let mut metrics = vec![json!({"name": BUSIEST, "source": source("busiest"), "high": levels})];
    let mut actions = vec![action(BUSIEST, json!({"where": "node.cpu.utilization > 0.9"}), target.clone())];
    if let (MoveRules::Consolidation, Some(best)) = (rules, best) {
        metrics.push(json!({"name": INEFFICIENT, "source": source("inefficient"), "high": {"raise": "0"}}));
        target["nodeSelector"] = json!({MODEL: best});
        actions.push(action(INEFFICIENT, json!({"where": format!("node.labels[\"{MODEL}\"] != \"{best}\"")}), target));
    }
    json!({
        "interval": format!("{INTERVAL}s"),
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "metrics": metrics, "policy": {"dwell": "60s"}, "actions": actions,
    })
}

fn answers(metrics: ServiceMetrics, now: Timestamp) -> BTreeMap<String, SourceResult> {
    let value = |number: String| Ok(SourceValue { at: Some(now), ..SourceValue::from(number) });
    [
        (BUSIEST.to_owned(), value(metrics.busiest.to_string())),
        (INEFFICIENT.to_owned(), value(metrics.inefficient.to_string())),
    ]
    .into()
}

/// The Deployment of a loop: actions are created in the store.
#[derive(Clone)]
struct MovedService {
    store: Store,
    /// The action that was created last, until it is taken.
    created: Option<Key>,
}

impl LoopTarget for MovedService {
    fn replicas(&self) -> Option<i32> {
        None
    }

    fn serving(&self, _: Timestamp) -> i32 {
        0
    }

    fn read(&self, _: &Rung, claim: Option<&Claim>) -> TargetState {
        let name = claim.and_then(|claim| claim.goal.workload_action.as_ref());
        let key = name.map(|name| Key::new(NAMESPACE, name));
        let action = key.and_then(|key| self.store.read(|world| world.table::<WorkloadAction>().get(&key).cloned()));
        TargetState::WorkloadAction(action.map(|action| WorkloadActionState::from(&*action)))
    }

    fn apply(&mut self, _: &Rung, _: Option<&Claim>, effect: &ExecutionEffect, now: Timestamp) -> EffectResult {
        let ExecutionEffect::Create { name, spec } = effect else {
            return EffectResult::NotFound("loops of the lab only move".to_owned());
        };
        let mut action = WorkloadAction::new(name, (**spec).clone());
        action.metadata.namespace = Some(NAMESPACE.to_owned());
        action.metadata.uid = Some(name.clone());
        action.metadata.generation = Some(1);
        action.metadata.resource_version = Some("1".to_owned());
        action.metadata.creation_timestamp = Some(Time(now));
        self.store.apply(action, Origin::Watch);
        self.created = Some(Key::new(NAMESPACE, name));
        EffectResult::Done(None)
    }
}
