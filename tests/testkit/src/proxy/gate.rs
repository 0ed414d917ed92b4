//! Gates: one request held at an exact instant, while the test does what it likes.

use tokio::sync::oneshot;

use super::Write;

/// On which side of the API server a request is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The operator has sent it; the server has not seen it.
    Before,
    /// The server has done it and answered; the operator has not heard.
    After,
}

/// What becomes of a stopped request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    On,
    Drop,
}

/// The proxy's side.
pub struct Gate {
    left: usize,
    when: When,
    which: Box<dyn Fn(&Write) -> bool + Send>,
    reached: oneshot::Sender<Write>,
    go: oneshot::Receiver<Go>,
}

/// The test's side. Dropped, it lets the request go on.
pub struct Held {
    reached: oneshot::Receiver<Write>,
    go: oneshot::Sender<Go>,
}

/// Both sides of a gate at the `nth` request that this says yes to.
pub fn pair(nth: usize, when: When, which: impl Fn(&Write) -> bool + Send + 'static) -> (Gate, Held) {
    let (stopped, reached) = oneshot::channel();
    let (say, go) = oneshot::channel();
    let gate = Gate { left: nth, when, which: Box::new(which), reached: stopped, go };
    (gate, Held { reached, go: say })
}

/// The gate that stops this request on this side, taken out of the list. Those before the server count requests, those
/// after it count answers.
pub fn take(gates: &mut Vec<Gate>, write: &Write, when: When) -> Option<Gate> {
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
    /// Holds the request until the test says how it goes on.
    pub async fn stop(self, write: Write) -> Go {
        if self.reached.send(write).is_err() {
            return Go::On;
        }
        self.go.await.unwrap_or(Go::On)
    }
}

impl Held {
    /// Waits until the request is held; it stays held. None if the proxy went away.
    pub async fn reached(&mut self) -> Option<Write> {
        (&mut self.reached).await.ok()
    }

    /// Lets the request, or its answer, go on.
    pub fn release(self) {
        let _ = self.go.send(Go::On);
    }

    /// The request, or its answer, is lost.
    pub fn lose(self) {
        let _ = self.go.send(Go::Drop);
    }
}
