//! What the tests on a real control plane share: the plane, the operator as a process, the proxy between the two, an
//! independent watch, and a world (one namespace with its operator) for each test.
//!
//! Everything runs on one runtime, so that tests can share a client; each test keeps its own thread.

pub mod action;
pub mod dump;
pub mod eye;
pub mod kstatus;
pub mod loops;
pub mod nodes;
pub mod operator;
pub mod plane;
pub mod prometheus;
pub mod proxy;
pub mod rest;
#[path = "../../src/clients/tests/server.rs"]
pub mod server;
pub mod usage;
pub mod verdict;
pub mod workload;
pub mod world;

use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// How long a test waits for something that should come at once, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime for the tests")
});

/// Runs a future on this thread, with the shared runtime's clock and sockets.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}
