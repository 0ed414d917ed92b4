//! The second tenant: a loop that gets samples, a workload whose replicas move, and a scheduler. Each of the three does
//! one thing after the other, with pauses, so that the machine has room for the other tenant.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join4;
use ganglion_api::monitoring::Monitoring;
use kube::{Api, Client};
use serde_json::json;
use testkit::eye::Eye;
use testkit::hostile::RefusingPolicy;
use tokio_util::sync::CancellationToken;

use crate::actions::single;
use crate::frame::millis;
use crate::loops::scene;
use crate::loops::timeline::{Mark, Timeline};

/// Pauses after a sample, a move, and a request to the extender.
const SAMPLE: Duration = Duration::from_millis(200);
const MOVE: Duration = Duration::from_millis(500);
const REQUEST: Duration = Duration::from_millis(50);

/// Measured latencies in milliseconds.
#[derive(Default)]
pub struct Latencies {
    /// From just before a sample's patch until a watch shows it in Decision's status.
    pub decisions: Vec<f64>,
    /// From the creation of a move until a watch shows its success.
    pub moves: Vec<f64>,
    /// From the request of a scheduler to the answer.
    pub answers: Vec<f64>,
}

impl Latencies {
    pub fn add(&mut self, more: Self) {
        self.decisions.extend(more.decisions);
        self.moves.extend(more.moves);
        self.answers.extend(more.answers);
    }
}

pub struct SecondTenant<'a> {
    client: Client,
    policy: &'a RefusingPolicy,
    scheduler: reqwest::Client,
    eye: Eye,
    timeline: Timeline,
    /// Number of moves so far, for their names.
    moves: Cell<usize>,
}

impl<'a> SecondTenant<'a> {
    /// Creates the loop and the workload in the namespace of the single moves.
    pub async fn open(client: &Client, policy: &'a RefusingPolicy) -> Result<Self> {
        scene::make(client, single::NAMESPACE, scene::demos(1, "DryRun")).await?;
        Ok(Self {
            client: client.clone(),
            policy,
            scheduler: policy.scheduler()?,
            eye: single::workload(client).await?,
            timeline: Timeline::decisions(client, single::NAMESPACE),
            moves: Cell::new(0),
        })
    }

    /// Works until the load has been sent. Returns the latencies in the meantime.
    pub async fn during(&self, load: impl Future<Output = Result<()>>) -> Result<Latencies> {
        let over = CancellationToken::new();
        let loaded = async {
            let sent = load.await;
            over.cancel();
            sent
        };
        let work = try_join4(loaded, self.samples(&over), self.moves(&over), self.requests(&over));
        let ((), decisions, moves, answers) = work.await?;
        Ok(Latencies { decisions, moves, answers })
    }

    async fn samples(&self, over: &CancellationToken) -> Result<Vec<f64>> {
        let monitorings: Api<Monitoring> = Api::namespaced(self.client.clone(), single::NAMESPACE);
        let mut all = Vec::new();
        while pause(SAMPLE, over).await {
            let pushed = scene::push(&monitorings, &scene::name(0), &json!({"cpu": "2", "memory": "40"})).await?;
            let decided = self.timeline.until(&Mark::Decided(pushed.name, pushed.time)).await?;
            all.push(millis(decided - pushed.began));
        }
        Ok(all)
    }

    async fn moves(&self, over: &CancellationToken) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        while pause(MOVE, over).await {
            let number = self.moves.replace(self.moves.get() + 1);
            all.push(single::one(&self.client, &self.eye, number).await?.millis);
        }
        Ok(all)
    }

    async fn requests(&self, over: &CancellationToken) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        while pause(REQUEST, over).await {
            let began = Instant::now();
            self.policy.filters(&self.scheduler, "node-0").await?;
            all.push(millis(began.elapsed()));
        }
        Ok(all)
    }
}

/// Waits this long. Returns false if the load is over.
async fn pause(time: Duration, over: &CancellationToken) -> bool {
    tokio::time::timeout(time, over.cancelled()).await.is_err()
}
