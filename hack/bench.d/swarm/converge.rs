//! Scales a pool of real worker processes, and compares it with a bare StatefulSet of the same pods: HotReload with the
//! time until its new pods are Ready, Restart with a rollout.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt;
use ganglion_api::swarm_pool::SwarmPool;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::kubelet::{Kubelet, KubeletOptions, PORT};
use testkit::plane::audit::Audit;
use testkit::plane::install::{Installed, bind_loops};
use testkit::testbed::loops::condition;
use testkit::testbed::pools::{JOBS, WORKERS, template};

use crate::TIMEOUT;
use crate::fleet::namespace;
use crate::frame::{Bench, Bound, Progress, at_rest, default_garbage, median, operator};

pub const PART: &str = "converge";

const ALL_JOBS: usize = 1000;

/// ConfigMap with the list of jobs.
const SOURCE: &str = "cameras";

/// Workers before and after. The bound applies to the first pair; the second pair is that of k8s-swarm's figure.
const SCALES: [(usize, usize); 2] = [(9, 10), (3, 4)];

/// Time of k8s-swarm from 3 to 4 workers, measured on another day (shared design, baselines), in seconds.
const ORIGINAL: f64 = 12.8;

/// Rounds of each side, in turns.
const ROUNDS: usize = 5;

/// How workers pick up their jobs.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    beside: &'static str,
    reloads: bool,
    /// Time until a worker answers, in milliseconds.
    start: u32,
    bound: f64,
}

const WAYS: [Way; 3] = [
    Way { name: "HotReload", beside: READY, reloads: true, start: 0, bound: 2.0 },
    Way { name: "HotReload, workers that start in a second", beside: READY, reloads: true, start: 1000, bound: 2.0 },
    Way { name: "Restart", beside: "a rollout", reloads: false, start: 0, bound: 1.5 },
];

const READY: &str = "the time until new pods are Ready";

pub async fn run(bench: &mut Bench) -> Result<()> {
    let audit = Audit::prepare(&bench.home(PART)?, false)?;
    let options: Vec<String> = audit.options().iter().cloned().chain(default_garbage()).collect();
    let cluster = bench.plane(PART, 0, &options).await?;
    Installed::default().install(&cluster).await?;
    let settings = bench.home(PART)?.join("settings.yaml");
    std::fs::write(&settings, "outbound: {allowedNetworks: [127.0.0.0/8]}\n")?;
    let operator = operator(bench, PART, &cluster, &["--settings", &settings.display().to_string()]).await?;
    for (nth, way) in WAYS.into_iter().enumerate() {
        let place = Place::make(&cluster.client, nth, way).await?;
        let scales = if way.start == 0 { &SCALES[..] } else { &SCALES[..1] };
        for (from, to) in scales {
            place.compare(bench, way, *from, *to).await?;
        }
        if nth == 0 {
            at_rest(bench, &audit, &operator, &format!("a pool of {ALL_JOBS} jobs at rest")).await?;
        }
        place.end().await?;
    }
    operator.stop().await?;
    cluster.down().await
}

/// Two namespaces with workers; one has a pool.
struct Place {
    bare: Workers,
    ours: Workers,
    pools: Api<SwarmPool>,
}

impl Place {
    async fn make(client: &Client, nth: usize, way: Way) -> Result<Self> {
        let name = format!("pool-{nth}");
        let bare = Workers::make(client, &format!("bare-{nth}"), way).await?;
        let ours = Workers::make(client, &name, way).await?;
        bind_loops(client, &name).await?;
        let refresh = if way.reloads { json!({"policy": "HotReload"}) } else { json!({"policy": "Restart"}) };
        let names: Vec<String> = (0..ALL_JOBS).map(|nth| format!("stream:{nth:04}")).collect();
        let source = json!({"metadata": {"name": SOURCE}, "data": {"jobs": names.join("\n")}});
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
        maps.create(&PostParams::default(), &serde_json::from_value(source)?).await?;
        let spec = json!({
            "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": WORKERS},
            "replicas": 1, "jobs": {"configMaps": {"names": [SOURCE]}}, "output": {"configMap": JOBS},
            "refresh": refresh, "version": {"probe": {"port": PORT}},
        });
        let pool: SwarmPool = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "metadata": {"name": WORKERS}, "spec": spec,
        }))?;
        let pools: Api<SwarmPool> = Api::namespaced(client.clone(), &name);
        pools.create(&PostParams::default(), &pool).await?;
        Ok(Self { bare, ours, pools })
    }

    /// Scales both sides, in turns.
    async fn compare(&self, bench: &mut Bench, way: Way, from: usize, to: usize) -> Result<()> {
        let progress = Progress::count(&format!("{}: {from} to {to} workers", way.name), ROUNDS);
        let (mut ours, mut beside, mut back) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            self.bare.scale(from).await?;
            back.push(self.scale(from).await?);
            let scaled = self.bare.scale(to).await?;
            beside.push(if way.reloads { scaled } else { self.bare.roll_out(round).await? });
            ours.push(self.scale(to).await?);
            progress.at(round);
        }
        progress.end();
        // The first round is not counted: caches are cold, and the workers have no jobs yet.
        for times in [&mut ours, &mut beside, &mut back] {
            times.remove(0);
        }
        let [ours, beside, back] = [ours, beside, back].map(|times| median(&times));
        let title = format!("{}: {ALL_JOBS} jobs, {from} to {to} workers, relative to {}", way.name, way.beside);
        let of = if to == 10 { Some(Bound::AtMost(way.bound)) } else { None };
        match of {
            Some(bound) => bench.claim(&title, ours / beside, "times", bound),
            None => bench.note(&title, ours / beside, "times"),
        }
        bench.note("  the pool, until all workers report their jobs", ours * 1e3, "ms");
        bench.note(&format!("  the bare StatefulSet: {}", way.beside), beside * 1e3, "ms");
        bench.note(&format!("  the pool, {to} to {from} workers"), back * 1e3, "ms");
        if (from, to) == (3, 4) {
            bench.note("  relative to k8s-swarm (12.8 s)", ours / ORIGINAL, "times");
        }
        Ok(())
    }

    /// Scales the pool. Returns the time until all workers report their assigned jobs.
    async fn scale(&self, to: usize) -> Result<f64> {
        let began = Instant::now();
        let patch = Patch::Merge(json!({"spec": {"replicas": to}}));
        let scaled = self.pools.patch_scale(WORKERS, &PatchParams::default(), &patch).await?;
        let generation = self.pools.get_metadata(WORKERS).await?.metadata.generation.max(scaled.metadata.generation);
        let wanted = format!("{to}/{to}");
        let done = await_condition(self.pools.clone(), WORKERS, |pool: Option<&SwarmPool>| {
            let Some(status) = pool.and_then(|pool| pool.status.as_ref()) else { return false };
            let ready = condition(&status.conditions, "Ready").is_some_and(|ready| ready.reason == "Converged");
            ready && status.observed_generation >= generation && status.converged.as_ref() == Some(&wanted)
        });
        let waited = tokio::time::timeout(TIMEOUT, done).await;
        waited.with_context(|| format!("the pool does not converge on {to} workers"))??;
        Ok(began.elapsed().as_secs_f64())
    }

    async fn end(self) -> Result<()> {
        self.ours.kubelet.stop().await?;
        self.bare.kubelet.stop().await
    }
}

/// A StatefulSet of worker processes, and their kubelet.
struct Workers {
    client: Client,
    namespace: String,
    sets: Api<StatefulSet>,
    kubelet: Kubelet,
}

impl Workers {
    async fn make(client: &Client, name: &str, way: Way) -> Result<Self> {
        namespace(client, name).await?;
        let mut arguments = vec![format!("--start-delay-ms={}", way.start)];
        if way.reloads {
            arguments.push("--hot-reload".to_owned());
        }
        let options = KubeletOptions { react: Duration::ZERO, arguments, ..KubeletOptions::default() };
        let kubelet = Kubelet::start(client, name, options).await?;
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), name);
        let set = json!({
            "metadata": {"name": WORKERS},
            "spec": {
                "serviceName": WORKERS, "replicas": 1, "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": WORKERS}}, "template": template(name, JOBS),
            },
        });
        sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
        Ok(Self { client: client.clone(), namespace: name.to_owned(), sets, kubelet })
    }

    async fn patch(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.sets.patch(WORKERS, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Scales the StatefulSet. Returns the time until exactly this number of pods exists and all are Ready.
    async fn scale(&self, to: usize) -> Result<f64> {
        let began = Instant::now();
        self.patch(json!({"replicas": to})).await?;
        self.until(to, |_| true).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Rolls out a new template, one pod at a time, like `kubectl rollout restart`. Returns the time.
    async fn roll_out(&self, round: usize) -> Result<f64> {
        let pods = self.sets.get(WORKERS).await?.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        let (key, value) = ("kubectl.kubernetes.io/restartedAt", format!("{round} {}", Timestamp::now()));
        let began = Instant::now();
        self.patch(json!({"template": {"metadata": {"annotations": {key: value}}}})).await?;
        self.until(usize::try_from(pods)?, |pod| pod.annotations().get(key) == Some(&value)).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Waits until exactly this number of pods exists, all are Ready, and all satisfy `like`.
    async fn until(&self, count: usize, like: impl Fn(&Pod) -> bool) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
        let wait = async {
            let mut good: HashMap<String, bool> = HashMap::new();
            while let Some(event) = events.next().await {
                let listed = matches!(event, Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)));
                match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                        let good_now = is_ready(&pod) && like(&pod);
                        good.insert(pod.name_any(), good_now);
                    }
                    Ok(Event::Delete(pod)) => drop(good.remove(&pod.name_any())),
                    Ok(Event::Init) => good.clear(),
                    Ok(Event::InitDone) | Err(_) => {}
                }
                if listed && good.len() == count && good.values().all(|good| *good) {
                    return;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.with_context(|| format!("{count} pods do not become Ready"))
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}
