//! What the tests, the demo and the benches share. It is never part of the operator.
//!
//! - [`plane`]: a control plane, with the operator's CRDs and rights installed; [`operator`]: the operator as a process;
//!   [`proxy`]: the way between the two, on which requests can be held, lost and answered in the server's place;
//!   [`plugin`]: the program in a user's hands.
//! - [`eye`]: an independent watch; [`verdict`] and [`kstatus`]: what it makes of what it saw.
//! - [`world`]: one namespace with an operator of its own, for each test on a control plane.
//! - [`kubelet`]: a kubelet for pods that are real processes.
//! - [`servers`]: what the operator talks to beside the API server.
//! - [`wrong_loops`]: loops that are refused, for kube's evaluator of rules and for the API server's.
//! - [`scripts`]: stories that the model and the control plane have to end alike.
//!
//! The tests on a control plane run on one runtime, so that they can share a client; each test keeps its own thread.

pub mod action;
pub mod eye;
pub mod kstatus;
pub mod kubelet;
pub mod operator;
pub mod plane;
pub mod plugin;
pub mod process;
pub mod proxy;
pub mod scripts;
pub mod servers;
pub mod verdict;
pub mod world;
pub mod wrong_loops;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// How long a test waits for something that should come at once, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime for the tests")
});

/// Runs a future on this thread, with the shared runtime's clock and sockets.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// The root of the source tree.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}
