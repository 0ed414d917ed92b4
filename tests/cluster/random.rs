//! Random actions and random changes by other clients on the real control plane: a fixed number of them, from a fixed
//! seed. Afterwards every action has ended, every workload has its last desired replicas, no leftovers exist, and no
//! pod was evicted that no action named.
//!
//! With another seed or for longer: `GANGLION_RANDOM_SEED=7 GANGLION_RANDOM_STEPS=1000 cargo test --test
//! cluster random`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use fastrand::Rng;
use ganglion_api::workload_action::status::Step;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::action::{action, deployment, with};
use testkit::eye::Happening;
use testkit::kstatus::is_over;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::rest::rest_clean;
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::{node_of, pods_of};

const SEED: u64 = 5;
const STEPS: u64 = 70;
const NODES: usize = 5;
const APPS: [&str; 4] = ["a", "b", "c", "d"];

/// Pause between two changes, in milliseconds.
const PAUSE: u64 = 400;

/// Maximum time until all actions have ended without further disturbance.
const REST: Duration = Duration::from_secs(120);

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The testbed under test, and the changes made to it.
struct Turmoil<'a> {
    testbed: &'a Testbed,
    nodes: TestNodes,
    rng: Rng,
    cordoned: BTreeSet<String>,
    made: usize,
    log: Vec<String>,
}

impl<'a> Turmoil<'a> {
    async fn begin(testbed: &'a Testbed, seed: u64) -> Result<Self> {
        let nodes = testbed.nodes(NODES, Size { pods: 6, ..Size::default() }).await?;
        for (at, app) in APPS.into_iter().enumerate() {
            let replicas = 2 + at % 2;
            let workload = Workload::deployment(app, replicas).spec(nodes.terms()).label("part-of", "shop");
            workload.budget(json!({"maxUnavailable": 1})).make(testbed).await?;
        }
        Ok(Self { testbed, nodes, rng: Rng::with_seed(seed), cordoned: BTreeSet::new(), made: 0, log: Vec::new() })
    }

    fn app(&mut self) -> &'static str {
        APPS[self.rng.usize(..APPS.len())]
    }

    fn node(&mut self) -> String {
        self.nodes.names[self.rng.usize(..NODES)].clone()
    }

    /// A pod of the app; it may be gone when it is named.
    fn pod(&mut self, app: &str) -> Option<String> {
        let pods: Vec<String> = self.testbed.eye.look(|seen| pods_of(seen, app).map(|pod| pod.name_any()).collect());
        (!pods.is_empty()).then(|| pods[self.rng.usize(..pods.len())].clone())
    }

    /// A node with a pod of the app. A pod that is not scheduled yet has no node.
    fn source(&mut self, app: &str) -> Option<String> {
        let pods: Vec<String> = self.testbed.eye.look(|seen| pods_of(seen, app).map(|pod| node_of(pod)).collect());
        let bound: Vec<String> = pods.into_iter().filter(|node| !node.is_empty()).collect();
        (!bound.is_empty()).then(|| bound[self.rng.usize(..bound.len())].clone())
    }

    /// A target: one node, any node but one, or none.
    fn to(&mut self) -> Value {
        match self.rng.u8(..3) {
            0 => json!({"nodeName": self.node()}),
            1 => json!({"where": format!("node.name != '{}' && node.pods < 5", self.node())}),
            _ => Value::Null,
        }
    }

    fn spec(&mut self) -> Option<Value> {
        let (app, to) = (self.app(), self.to());
        let some = |to: Value| if to.is_null() { json!({"where": "node.ready"}) } else { to };
        let mut spec = match self.rng.u8(..12) {
            0..=2 => json!({"move": {"pod": {"name": self.pod(app)?}, "to": some(to)}}),
            3..=5 => {
                let from = self.source(app)?;
                let count = if self.rng.bool() { json!("All") } else { json!(1) };
                let mut change = json!({"workload": deployment(app), "from": {"nodeName": from}, "count": count});
                if !to.is_null() {
                    change["to"] = to;
                }
                json!({ "move": change })
            }
            6 => json!({"create": {"workload": deployment(app), "to": some(to)}}),
            7 => json!({"delete": {"pod": {"name": self.pod(app)?}}}),
            8 | 9 => {
                let other = self.app();
                let (one, two) = (self.pod(app)?, self.pod(other)?);
                json!({"swap": {"replica": {"pod": {"name": one}}, "with": [{"pod": {"name": two}}]}})
            }
            _ => {
                let policy = ["Stop", "Continue", "Rollback"][self.rng.usize(..3)];
                json!({"moveApplication": {
                    "selector": {"part-of": "shop"}, "from": {"nodeName": self.node()}, "onFailure": policy,
                    "maxParallel": self.rng.u8(1..4),
                }})
            }
        };
        let short = json!({"queueSeconds": 30, "scheduleSeconds": 5, "readySeconds": 20, "drainSeconds": 20});
        spec = with(spec, json!({"timeouts": short}));
        if self.rng.u8(..4) == 0 {
            spec = with(spec, json!({"disruption": "Allowed"}));
        }
        Some(spec)
    }

    async fn act(&mut self) -> Result<()> {
        let Some(spec) = self.spec() else { return Ok(()) };
        self.made += 1;
        let name = format!("act-{}", self.made);
        self.log.push(format!("{name}: {spec}"));
        self.testbed.kubectl(&["create", "-f", "-"], Some(&action(&name, spec).to_string())).await.map(drop)
    }

    /// Changes something as another client.
    async fn disturb(&mut self) -> Result<()> {
        let (app, node) = (self.app(), self.node());
        match self.rng.u8(..10) {
            0..=2 => {
                let replicas = 1 + self.rng.usize(..4);
                self.log.push(format!("scale {app} to {replicas}"));
                let count = format!("--replicas={replicas}");
                self.testbed.kubectl(&["scale", "deployment", app, &count], None).await?;
            }
            3 => {
                self.log.push(format!("roll out {app}"));
                self.testbed.kubectl(&["rollout", "restart", "deployment", app], None).await?;
            }
            4 | 5 if self.cordoned.len() < 2 => {
                self.log.push(format!("cordon {node}"));
                self.nodes.cordon(&node).await?;
                self.cordoned.insert(node);
            }
            4..=6 => {
                for node in std::mem::take(&mut self.cordoned) {
                    self.log.push(format!("uncordon {node}"));
                    self.nodes.patch(&node, json!({"spec": {"unschedulable": null}})).await?;
                }
            }
            7 | 8 => {
                let Some(pod) = self.pod(app) else { return Ok(()) };
                self.log.push(format!("delete pod {pod}"));
                self.testbed.kubectl(&["delete", "pod", &pod, "--wait=false", "--ignore-not-found"], None).await?;
            }
            _ if self.made > 0 => {
                let name = format!("act-{}", self.rng.usize(1..=self.made));
                self.log.push(format!("abort {name}"));
                self.testbed.patch_action(&name, json!({"spec": {"abort": true}})).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the rules once there is no further disturbance.
    async fn judge(&mut self) -> Result<()> {
        self.nodes.open_all().await?;
        let ended = |seen: &testkit::eye::Seen| seen.actions.values().all(|action| is_over(action)).then_some(());
        let open = || {
            let seen = self.testbed.eye.now();
            let open = seen.actions.values().filter(|action| !is_over(action));
            open.map(|action| format!("{}: {}", action.name_any(), testkit::kstatus::message(action)))
                .collect::<Vec<_>>()
        };
        let over = self.testbed.eye.within(REST, "every action to end", ended).await;
        ensure!(over.is_ok(), "these have not ended: {}", open().join("\n"));
        for app in APPS {
            let asked =
                self.testbed.eye.look(|seen| seen.deployments[app].spec.as_ref().and_then(|spec| spec.replicas));
            settled(self.testbed, app, usize::try_from(asked.unwrap_or(1))?).await?;
        }
        rest_clean(self.testbed).await?;
        let (evicted, named) = (self.evicted(), self.named());
        let strangers: Vec<&String> = evicted.difference(&named).collect();
        ensure!(strangers.is_empty(), "evicted, and named by no action: {strangers:?}");
        ensure!(evicted.len() >= 5, "only {} pods were evicted", evicted.len());
        Ok(())
    }

    /// Pods that the operator evicted.
    fn evicted(&self) -> BTreeSet<String> {
        let writes = self.testbed.proxy.writes();
        let evictions = writes.iter().filter(|write| write.is_on("pods/eviction"));
        evictions.filter_map(|write| write.target.split('/').nth(1).map(str::to_owned)).collect()
    }

    /// Pods that actions may evict: old pods, and replacements that are rolled back or given up for another node.
    fn named(&self) -> BTreeSet<String> {
        let seen = self.testbed.eye.now();
        let actions = seen.history.iter().filter_map(|happening| match happening {
            Happening::Action(action) => action.status.as_ref(),
            _ => None,
        });
        let slots: Vec<_> = actions.flat_map(|status| &status.slots).collect();
        let attempts = slots.iter().fold(BTreeMap::new(), |mut latest, slot| {
            let attempt: &mut _ = latest.entry(&slot.id).or_insert(slot.attempt);
            *attempt = slot.attempt.max(*attempt);
            latest
        });
        let pods = slots.iter().flat_map(|slot| {
            let is_over = slot.step == Step::RollingBack || slot.attempt < attempts[&slot.id];
            slot.victim.iter().chain(slot.replacement.as_ref().filter(|_| is_over))
        });
        pods.map(|pod| pod.name.clone()).collect()
    }
}

#[test]
fn random_actions_against_random_changes() {
    story("random", async |testbed| {
        let seed = from_environment("GANGLION_RANDOM_SEED", SEED);
        let steps = from_environment("GANGLION_RANDOM_STEPS", STEPS);
        let mut turmoil = Turmoil::begin(testbed, seed).await?;
        for _ in 0..steps {
            if turmoil.rng.u8(..3) > 0 {
                turmoil.act().await?;
            } else {
                turmoil.disturb().await?;
            }
            tokio::time::sleep(Duration::from_millis(turmoil.rng.u64(..2 * PAUSE))).await;
        }
        let judged = turmoil.judge().await;
        judged.map_err(|error| anyhow!("{error:#}\nseed {seed}, after:\n{}", turmoil.log.join("\n")))
    });
}
