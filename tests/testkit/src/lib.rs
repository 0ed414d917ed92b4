//! Code that the tests, the demo and the benches share. It is never part of the operator.
//!
//! - [`plane`]: a control plane with the operator's CRDs and RBAC rules installed; [`operator`]: the operator as a
//!   process;
//!   [`proxy`]: a proxy between the two that can hold, drop and answer requests;
//!   [`plugin`]: the program as a kubectl plugin.
//! - [`eye`]: an independent watch; [`verdict`] and [`kstatus`]: evaluations of what it saw.
//! - [`chain`]: one chain through all parts of the operator, for the demo and the stories.
//! - [`autoscaling`]: simulated loads, and capacity that follows them.
//! - [`former`]: former versions of the operator, for tests of upgrades.
//! - [`testbed`]: one namespace with its own operator, for each test on a control plane.
//! - [`gitops`]: Helm, Flux and Argo CD, which deploy manifests to a testbed.
//! - [`kubelet`]: a kubelet for pods that are real processes.
//! - [`hostile`]: a hostile tenant, and what it sends.
//! - [`schema`]: large objects that a schema accepts.
//! - [`servers`]: servers that the operator connects to, besides the API server.
//! - [`terminal`]: a program in a pseudo-terminal.
//! - [`metrics`]: the metrics of the operator, as documented and as exported.
//! - [`wrong_loops`]: loops that both kube's evaluator of rules and the API server must reject.
//! - [`scripts`]: stories that must end alike in the model and on the control plane.
//!
//! The tests on a control plane share one runtime, so that they can share a client; each test keeps its own thread.

pub mod action;
pub mod autoscaling;
pub mod chain;
pub mod eye;
pub mod former;
pub mod gitops;
pub mod hostile;
pub mod kstatus;
pub mod kubelet;
pub mod metrics;
pub mod operator;
pub mod plane;
pub mod plugin;
pub mod process;
pub mod proxy;
pub mod schema;
pub mod scripts;
pub mod servers;
pub mod terminal;
pub mod testbed;
pub mod verdict;
pub mod wrong_loops;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

/// Maximum time that a test waits for something that should happen at once, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Key of the label and of the taint of a test's nodes; the value is the test's namespace.
pub const NODE_OWNER: &str = "test.ganglion.dev/world";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime for the tests")
});

/// Runs a future on this thread, with the timer and the sockets of the shared runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// Waits until the condition holds.
pub async fn wait_for(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let met = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, met).await.with_context(|| format!("waited for {what}"))
}

/// Root of the source tree.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}
