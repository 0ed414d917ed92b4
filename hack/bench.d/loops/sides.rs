//! The operator and the bare program on one control plane, with the same loops in separate namespaces. The rounds of
//! one load alternate between them.

use anyhow::Result;
use ganglion_api::decision::Decision;
use ganglion_api::monitoring::Monitoring;
use kube::Api;
use serde_json::{Value, json};
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::Installed;

use super::bare::{self, Bare};
use super::load::{Load, Round};
use super::scene;
use crate::frame::{Bench, Bound, Progress, default_garbage, median, number, operator};

const OURS: &str = "operator";
const BARE: &str = "bare";

/// Measured rounds per side.
pub const ROUNDS: usize = 3;

pub struct Sides {
    pub cluster: Cluster,
    pub operator: Operator,
    _bare: Bare,
}

/// Measured rounds.
pub struct Compared {
    ours: Vec<Round>,
    bare: Vec<Round>,
    /// Cores that the API server uses at rest: median of the measurements before the rounds.
    idle: f64,
}

impl Sides {
    /// Starts a plane with both programs. Each gets this number of loops, which decide and record but do not act.
    pub async fn open(bench: &Bench, part: &str, loops: usize) -> Result<Self> {
        let cluster = bench.plane(part, 1, &default_garbage()).await?;
        Installed::default().install(&cluster).await?;
        scene::namespace(&cluster.client, OURS).await?;
        let operator = operator(bench, part, &cluster, &["--watch-namespace", OURS]).await?;
        scene::make(&cluster.client, OURS, scene::demos(loops, "DryRun")).await?;
        bare::namespace(&cluster.client, BARE).await?;
        bare::copy_loops(&cluster.client, OURS, BARE).await?;
        let bare = Bare::start(&cluster, BARE).await?;
        Ok(Self { cluster, operator, _bare: bare })
    }

    /// Runs one round per side, with cold connections and caches. Returns the cores that the API server used for the
    /// bare program.
    pub async fn warm_up(&self, cold: Load) -> Result<f64> {
        let progress = Progress::count("warming up, one round of each", 2);
        let (round, idle) = cold.run(&self.cluster, &self.operator, BARE).await?;
        progress.at(1);
        cold.run(&self.cluster, &self.operator, OURS).await?;
        progress.end();
        Ok(round.used.server_seconds(idle) / round.used.lasted)
    }

    /// Runs measured rounds of this load, in turns.
    pub async fn compare(&self, title: &str, load: Load) -> Result<Compared> {
        let progress = Progress::count(&format!("{title}: the bare program and the operator in turns"), 2 * ROUNDS);
        let (mut bare, mut ours, mut idle) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 0..ROUNDS {
            for (step, (namespace, rounds)) in [(BARE, &mut bare), (OURS, &mut ours)].into_iter().enumerate() {
                let (round, rest) = load.run(&self.cluster, &self.operator, namespace).await?;
                rounds.push(round);
                idle.push(rest);
                progress.at(2 * turn + step + 1);
            }
        }
        progress.end();
        Ok(Compared { ours, bare, idle: median(&idle) })
    }

    /// Notes the size of the last statuses of each side, as background for the other figures.
    pub async fn sizes(&self, bench: &mut Bench) -> Result<()> {
        for (words, namespace) in [("operator", OURS), ("bare program", BARE)] {
            let name = scene::name(0);
            let monitoring = Api::<Monitoring>::namespaced(self.cluster.client.clone(), namespace).get(&name).await?;
            let decision = Api::<Decision>::namespaced(self.cluster.client.clone(), namespace).get(&name).await?;
            bench.note(&format!("{words}: Monitoring.status"), size(&json!(monitoring.status)), "bytes");
            bench.note("  Decision.status", size(&json!(decision.status)), "bytes");
        }
        Ok(())
    }

    pub async fn close(self) -> Result<()> {
        self.operator.stop().await?;
        self.cluster.down().await
    }
}

fn size(status: &Value) -> f64 {
    number(status.to_string().len())
}

impl Compared {
    /// Claims the ratio of the operator's figure to the bare program's, each the median of its rounds, with its
    /// maximum.
    pub fn claim(&self, bench: &mut Bench, name: &str, unit: &str, most: f64, of: impl Fn(&Round) -> f64) {
        let [ours, bare] = [&self.ours, &self.bare].map(|rounds| rounds.iter().map(&of).collect::<Vec<f64>>());
        let ratio = median(&ours) / median(&bare);
        bench.claim(&format!("{name}: operator, relative to the bare program"), ratio, "times", Bound::AtMost(most));
        for (index, (ours, bare)) in ours.iter().zip(&bare).enumerate() {
            bench.note(&format!("  in round {} alone", index + 1), ours / bare, "times");
        }
        self.note(bench, "  ", unit, of);
    }

    /// Notes the figure of both sides, each the median of its rounds.
    pub fn note(&self, bench: &mut Bench, name: &str, unit: &str, of: impl Fn(&Round) -> f64) {
        for (side, rounds) in [("operator", &self.ours), ("bare program", &self.bare)] {
            let figures: Vec<f64> = rounds.iter().map(&of).collect();
            bench.note(&format!("{name}{side}"), median(&figures), unit);
        }
    }

    /// Processor time of the API server per recorded sample.
    pub fn server(&self, round: &Round) -> f64 {
        round.server(self.idle)
    }

    /// Notes the operator's own usage, and the samples that each side did not record, over all rounds.
    pub fn rest(&self, bench: &mut Bench, operator: &Operator) -> Result<()> {
        let lost = |rounds: &[Round]| rounds.iter().map(Round::lost).sum::<f64>();
        bench.note("samples not recorded, all rounds: operator", lost(&self.ours), "samples");
        bench.note("  bare program", lost(&self.bare), "samples");
        let middle = |of: fn(&Round) -> f64| median(&self.ours.iter().map(of).collect::<Vec<f64>>());
        bench.note("operator: own processor time per sample", middle(Round::operator), "ms");
        bench.note("  as long as samples come", middle(|round| round.used.operator / round.used.lasted), "cores");
        bench.note("  memory: resident", operator.memory("VmRSS")?, "MiB");
        bench.note("  memory: at its highest", operator.memory("VmHWM")?, "MiB");
        bench.note("API server at rest, subtracted above", self.idle, "cores");
        Ok(())
    }
}
