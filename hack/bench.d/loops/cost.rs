//! Processor time of the API server and of the operator while something goes on, as Linux counts it.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;

use crate::frame::number;

/// How long a plane at rest is looked at.
const REST: Duration = Duration::from_secs(4);

/// Measures from its start on.
pub struct Meter<'a> {
    cluster: &'a Cluster,
    operator: &'a Operator,
    began: Instant,
    server: f64,
    own: f64,
}

/// What was used, in seconds of processor time.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub lasted: f64,
    server: f64,
    pub operator: f64,
}

impl<'a> Meter<'a> {
    pub fn start(cluster: &'a Cluster, operator: &'a Operator) -> Result<Self> {
        let (server, own) = (cluster.processor_seconds("apiserver")?, operator.processor_seconds()?);
        Ok(Self { cluster, operator, began: Instant::now(), server, own })
    }

    pub fn read(&self) -> Result<Used> {
        Ok(Used {
            lasted: self.began.elapsed().as_secs_f64(),
            server: self.cluster.processor_seconds("apiserver")? - self.server,
            operator: self.operator.processor_seconds()? - self.own,
        })
    }
}

impl Used {
    /// Of the API server, in seconds, without what it uses at rest.
    pub fn server_seconds(&self, idle: f64) -> f64 {
        self.server - idle * self.lasted
    }

    /// The same for each sample, in milliseconds.
    pub fn server_millis(&self, idle: f64, samples: usize) -> f64 {
        self.server_seconds(idle) * 1e3 / number(samples)
    }

    /// Of the operator for each sample, in milliseconds.
    pub fn operator_millis(&self, samples: usize) -> f64 {
        self.operator * 1e3 / number(samples)
    }
}

/// How many cores the API server uses while nothing is sent to it but what the plane's components send at rest.
pub async fn idle(cluster: &Cluster, operator: &Operator) -> Result<f64> {
    let meter = Meter::start(cluster, operator)?;
    tokio::time::sleep(REST).await;
    let used = meter.read()?;
    Ok(used.server / used.lasted)
}
