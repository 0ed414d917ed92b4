//! Gates: each holds one request at an exact moment, while the test does something else.

use tokio::sync::oneshot;

use super::Write;
use crate::TIMEOUT;

/// Side of the API server on which a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPoint {
    /// The operator has sent it; the server has not received it.
    Before,
    /// The server has processed and answered it; the operator has not received the answer.
    After,
}

/// Continuation of a held request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    On,
    Drop,
}

/// The proxy's side.
pub struct Gate {
    left: usize,
    when: HoldPoint,
    which: Box<dyn Fn(&Write) -> bool + Send>,
    reached: oneshot::Sender<Write>,
    go: oneshot::Receiver<Go>,
}

/// The test's side. Dropping it lets the request continue.
pub struct Held {
    reached: oneshot::Receiver<Write>,
    go: oneshot::Sender<Go>,
}

/// Creates both sides of a gate at the `nth` request that matches `which`.
pub fn pair(nth: usize, when: HoldPoint, which: impl Fn(&Write) -> bool + Send + 'static) -> (Gate, Held) {
    let (stopped, reached) = oneshot::channel();
    let (say, go) = oneshot::channel();
    let gate = Gate { left: nth, when, which: Box::new(which), reached: stopped, go };
    (gate, Held { reached, go: say })
}

/// Removes and returns the gate that holds this request on this side. Gates before the server count requests; gates
/// after it count answers.
pub fn take(gates: &mut Vec<Gate>, write: &Write, when: HoldPoint) -> Option<Gate> {
    let mut hit = None;
    for (at, gate) in gates.iter_mut().enumerate() {
        if gate.when != when || gate.left == 0 || !(gate.which)(write) {
            continue;
        }
        gate.left -= 1;
        if gate.left == 0 && hit.is_none() {
            hit = Some(at);
        }
    }
    hit.map(|at| gates.swap_remove(at))
}

impl Gate {
    /// Holds the request until the test decides how it continues.
    pub async fn stop(self, write: Write) -> Go {
        if self.reached.send(write).is_err() {
            return Go::On;
        }
        self.go.await.unwrap_or(Go::On)
    }
}

impl Held {
    /// Waits until the request is held; it stays held. None if the proxy was stopped. Panics if there is no such
    /// request in time: a story that goes on without its fault would prove nothing.
    pub async fn reached(&mut self) -> Option<Write> {
        tokio::time::timeout(TIMEOUT, &mut self.reached).await.expect("a request to hold").ok()
    }

    /// Lets the request, or its answer, continue.
    pub fn release(self) {
        let _ = self.go.send(Go::On);
    }

    /// Drops the request, or its answer.
    pub fn lose(self) {
        let _ = self.go.send(Go::Drop);
    }
}
