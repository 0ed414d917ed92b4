//! The demo of swarm pools: jobs are assigned to real worker processes, which report the jobs they run. The pool is
//! scaled up and down, and a worker is lost. The records of the workers decide whether each check passes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ganglion_api::swarm_pool::SwarmPool;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use testkit::kubelet::journal::Journal;
use testkit::kubelet::{Kubelet, KubeletOptions};
use testkit::plane::install::bind_loops;
use testkit::testbed::loops::condition;
use testkit::testbed::pools::{JOBS, WORKERS, template};

use super::TIMEOUT;
use super::screen::Screen;
use super::stage::Stage;

/// Lets the operator probe the workers of the demo, which run on this host.
pub const SETTINGS: &str = "outbound: {allowedNetworks: [127.0.0.0/8]}\n";

/// Interval between two refreshes of the table.
const GLANCE: Duration = Duration::from_millis(100);

/// Number of jobs.
const ALL: usize = 27;

const POOL: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: SwarmPool
metadata: {name: cameras}
spec:
  workload: {apiVersion: apps/v1, kind: StatefulSet, name: swarm-worker}
  replicas: 3
  jobs: {inline: [JOBS]}
  output: {configMap: swarm-worker-config}
  refresh: {policy: HotReload}
  version: {probe: {port: 9090}}
";

/// One change, with its expected result.
struct Change {
    title: &'static str,
    command: &'static str,
    workers: usize,
    /// Maximum number of jobs that may move to another worker; [`ALL`] disables the check.
    moved: usize,
}

/// Runs the whole demo. Returns false if a check failed.
pub async fn play(screen: &Screen, stage: &mut Stage) -> Result<bool> {
    screen.title("Ganglion: each job runs on exactly one worker, and changes move as few jobs as possible");
    stage.build(screen).await?;
    let (client, namespace) = stage.place()?;
    ensure!(stage.is_local(), "this demo runs its workers as processes of this machine: leave --kubeconfig out");
    bind_loops(&client, &namespace).await?;
    let options = KubeletOptions { arguments: vec!["--hot-reload".to_owned()], ..KubeletOptions::default() };
    let kubelet = Kubelet::start(&client, &namespace, options).await?;
    screen.done("workers", "real processes on 127.0.0.0/8, which read their job file and report its version over HTTP");
    let set = json!({
        "metadata": {"name": WORKERS},
        "spec": {"serviceName": WORKERS, "replicas": 3, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": WORKERS}}, "template": template(&namespace, JOBS)},
    });
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &namespace);
    sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;

    screen.heading("1 of 4: a pool of 27 jobs for three workers");
    screen.manifest(&POOL.replace("JOBS", "{name: \"stream:01\"}, … {name: \"stream:27\"}"));
    let names: Vec<String> = (1..=ALL).map(|nth| format!("{{name: \"stream:{nth:02}\"}}")).collect();
    let pool: SwarmPool = serde_saphyr::from_str(&POOL.replace("JOBS", &names.join(", ")))?;
    let pools: Api<SwarmPool> = Api::namespaced(client.clone(), &namespace);
    pools.create(&PostParams::default(), &pool).await?;
    let first = Change { title: "", command: "", workers: 3, moved: 0 };
    let mut wrong = usize::from(!settles(&pools, &kubelet, &first, stage, screen).await?);

    for change in [
        Change {
            title: "2 of 4: one more worker",
            command: "kubectl scale swp cameras --replicas=4",
            workers: 4,
            moved: 6,
        },
        Change { title: "3 of 4: two fewer", command: "kubectl scale swp cameras --replicas=2", workers: 2, moved: 13 },
    ] {
        screen.heading(change.title);
        screen.say(&format!("    $ {}\n", change.command));
        let patch = Patch::Merge(json!({"spec": {"replicas": change.workers}}));
        pools.patch_scale("cameras", &PatchParams::default(), &patch).await?;
        wrong += usize::from(!settles(&pools, &kubelet, &change, stage, screen).await?);
    }

    screen.heading("4 of 4: a worker is lost");
    screen.say("    $ kubectl delete pod swarm-worker-1\n");
    wrong += usize::from(!loses(&client, &namespace, &pools, &kubelet, stage, screen).await?);
    kubelet.stop().await?;
    match wrong {
        0 => screen.good("All 4 acts went as promised."),
        some => {
            stage.show_log(screen);
            screen.bad(&format!("{some} of 4 acts did not go as promised."));
        }
    }
    Ok(wrong == 0)
}

/// Waits until the pool has converged on the new number of workers. Returns whether every job runs exactly once and few
/// jobs moved.
async fn settles(
    pools: &Api<SwarmPool>,
    kubelet: &Kubelet,
    change: &Change,
    stage: &Stage,
    screen: &Screen,
) -> Result<bool> {
    let began = Instant::now();
    let wanted = format!("{0}/{0}", change.workers);
    let moved = loop {
        let pool = pools.get("cameras").await?;
        let status = pool.status.clone().unwrap_or_default();
        let ready = condition(&status.conditions, "Ready").is_some_and(|ready| ready.reason == "Converged");
        let is_current = status.observed_generation == pool.metadata.generation;
        let table = stage.kubectl(&["get", "swp", "cameras"]).await?;
        screen.live(std::slice::from_ref(&table));
        if is_current && ready && status.converged.as_ref() == Some(&wanted) || began.elapsed() > TIMEOUT {
            screen.rest();
            screen.say(&format!("$ kubectl get swp\n{table}"));
            break usize::try_from(status.moved.unwrap_or(0))?;
        }
        tokio::time::sleep(GLANCE).await;
    };
    let journal = Journal::read(&kubelet.journal())?;
    let running = journal.running();
    let counts: Vec<String> = running
        .iter()
        .filter(|(_, jobs)| !jobs.is_empty())
        .map(|(name, jobs)| format!("{name} runs {}", jobs.len()))
        .collect();
    let all: usize = running.values().map(std::collections::BTreeSet::len).sum();
    let (each, once) = (all == ALL && counts.len() == change.workers, journal.doubled().is_empty());
    screen.verdict("jobs that run, by worker", &counts.join(", "), each);
    screen.verdict("jobs that ran twice at any time", &journal.doubled().len().to_string(), once);
    if change.moved < ALL {
        screen.verdict("jobs that moved to another worker", &moved.to_string(), moved <= change.moved);
    }
    Ok(each && once && moved <= change.moved)
}

/// Deletes a pod, and checks that its successor runs the same jobs.
async fn loses(
    client: &Client,
    namespace: &str,
    pools: &Api<SwarmPool>,
    kubelet: &Kubelet,
    stage: &Stage,
    screen: &Screen,
) -> Result<bool> {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), namespace);
    let lost = format!("{WORKERS}-1");
    let before = Journal::read(&kubelet.journal())?.running().remove(&lost).unwrap_or_default();
    let uid = pods.get(&lost).await?.metadata.uid;
    pods.delete(&lost, &DeleteParams::default()).await?;
    let began = Instant::now();
    // Waits until the successor has an address.
    while began.elapsed() < TIMEOUT {
        let pod = pods.get_opt(&lost).await?;
        if pod.is_some_and(|pod| pod.metadata.uid != uid && pod.status.is_some_and(|status| status.pod_ip.is_some())) {
            break;
        }
        tokio::time::sleep(GLANCE).await;
    }
    let change = Change { title: "", command: "", workers: 2, moved: ALL };
    let good = settles(pools, kubelet, &change, stage, screen).await?;
    let after = Journal::read(&kubelet.journal())?.running().remove(&lost).unwrap_or_default();
    screen.verdict("jobs kept by the successor", &after.len().to_string(), after == before);
    Ok(good && after == before)
}
