//! Processor time of the API server and of the operator, from the accounting of Linux.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;

use crate::frame::number;

/// Observation time of an idle plane.
const REST: Duration = Duration::from_secs(4);

/// Measures processor time from its creation on.
pub struct Meter<'a> {
    cluster: &'a Cluster,
    operator: &'a Operator,
    began: Instant,
    server: f64,
    own: f64,
}

/// Processor time used, in seconds.
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
    /// Seconds used by the API server, minus its usage at rest.
    pub fn server_seconds(&self, idle: f64) -> f64 {
        self.server - idle * self.lasted
    }

    /// The same per sample, in milliseconds.
    pub fn server_millis(&self, idle: f64, samples: usize) -> f64 {
        self.server_seconds(idle) * 1e3 / number(samples)
    }

    /// Milliseconds used by the operator per sample.
    pub fn operator_millis(&self, samples: usize) -> f64 {
        self.operator * 1e3 / number(samples)
    }
}

/// Cores that the API server uses when only the idle components of the plane send requests.
pub async fn idle(cluster: &Cluster, operator: &Operator) -> Result<f64> {
    let meter = Meter::start(cluster, operator)?;
    tokio::time::sleep(REST).await;
    let used = meter.read()?;
    Ok(used.server / used.lasted)
}
