//! Three replicas that serve schedulers. The leader is killed, stopped beyond its lease, and cut off from the API
//! server, each in the middle of a move.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use jiff::Timestamp;
use testkit::block_on;
use testkit::hostile::RefusingPolicy;
use testkit::operator::SHORT_LEASE;
use testkit::plane::{NODES, Plane};
use testkit::process::{free_port, stat};
use testkit::proxy::Write;
use testkit::proxy::gate::{Held, HoldPoint};
use testkit::testbed::replicas::Replica;
use testkit::testbed::rest::rest_clean;
use testkit::testbed::{Road, Testbed, story_on};
use tokio_util::task::AbortOnDropHandle;

use super::{DURATION, RETRY};
use crate::acts::{Act, Verb};

/// Maximum time from the loss of a leader until the next one holds the lease: a candidate notices the last renewal up
/// to a retry late, and tries once in each retry, which is up to a fifth longer. The rest is for a busy machine.
const TAKEOVER: Duration = Duration::from_secs(DURATION + 3 * RETRY + 2);

/// Pause between two requests of a scheduler.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum time for one answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Ways to lose a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// By SIGKILL, before its next request reaches the API server.
    Killed,
    /// By SIGSTOP beyond its lease, and SIGCONT later.
    Stopped,
    /// By a network that carries its packets to the API server only after its lease has expired.
    CutOff,
}

impl Loss {
    /// Request of the leader during which it is lost.
    fn during(self, write: &Write) -> bool {
        match self {
            Self::Killed | Self::CutOff => write.is_on("pods/eviction"),
            Self::Stopped => write.is_on("pods") && write.method == http::Method::POST,
        }
    }
}

/// Answers of one replica to a scheduler.
#[derive(Default)]
struct Answers {
    /// Process that must answer; 0 if none must.
    process: AtomicU32,
    good: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

/// Whether the process exists and is not stopped.
fn is_running(process: u32) -> bool {
    stat(process, 2).is_ok_and(|state| !["Z", "X", "T"].contains(&state.as_str()))
}

/// Whether the process goes on after a failed answer: a process that ends closes its connections first. Waits until it
/// has ended, must not answer any more, or answers again.
async fn lives_on(process: u32, answers: &Answers, policy: &RefusingPolicy, scheduler: &reqwest::Client) -> bool {
    let known = async {
        while is_running(process) && answers.process.load(Ordering::Acquire) == process {
            if policy.filters(scheduler, "node-0").await.is_ok() {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    };
    tokio::time::timeout(testkit::TIMEOUT, known).await.unwrap_or(true)
}

/// Sends requests as kube-scheduler does, until it is dropped.
async fn ask(policy: RefusingPolicy, answers: Arc<Answers>) {
    let Ok(scheduler) = policy.scheduler() else { return };
    loop {
        tokio::time::sleep(PAUSE).await;
        let process = answers.process.load(Ordering::Acquire);
        if process == 0 {
            continue;
        }
        let begun = Timestamp::now();
        let failure = match tokio::time::timeout(ANSWER, policy.filters(&scheduler, "node-0")).await {
            Ok(Ok(())) => {
                answers.good.fetch_add(1, Ordering::AcqRel);
                continue;
            }
            Ok(Err(error)) => format!("{begun}: {error:#}"),
            Err(_) => format!("{begun}: no answer"),
        };
        if lives_on(process, &answers, &policy, &scheduler).await {
            answers.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
        }
    }
}

struct Fleet<'a> {
    testbed: &'a Testbed,
    replicas: Vec<Replica>,
    answers: Vec<Arc<Answers>>,
    schedulers: Vec<AbortOnDropHandle<()>>,
}

impl<'a> Fleet<'a> {
    /// Starts replicas of these identities, which all serve schedulers.
    async fn start(testbed: &'a Testbed, identities: &[&str]) -> Result<Self> {
        testbed.end_operator().await?;
        let mut fleet = Self { testbed, replicas: Vec::new(), answers: Vec::new(), schedulers: Vec::new() };
        let mut ports = Vec::new();
        let settings = format!("{SHORT_LEASE}\nplacement: {{serverNames: [127.0.0.1]}}");
        for identity in identities {
            let (mut replica, port) = (testbed.replica(identity, &settings).await?, free_port()?);
            replica.operator.add_options(&["--extender-bind", &format!("127.0.0.1:{port}")]);
            replica.operator.start()?;
            fleet.replicas.push(replica);
            fleet.answers.push(Arc::default());
            ports.push(port);
        }
        for replica in &mut fleet.replicas {
            replica.operator.ready().await?;
        }
        let policy = RefusingPolicy::create(&testbed.client, "default", ports[0], &testbed.ns).await?;
        for (at, port) in ports.into_iter().enumerate() {
            let scheduler = policy.at(port).scheduler()?;
            // A standby reads the certificate and the policy soon after the leader has created them.
            let serves = async {
                while policy.at(port).filters(&scheduler, "node-0").await.is_err() {
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::time::timeout(testkit::TIMEOUT, serves).await.context("a replica does not serve schedulers")?;
            let asking = tokio::spawn(ask(policy.at(port), Arc::clone(&fleet.answers[at])));
            fleet.schedulers.push(AbortOnDropHandle::new(asking));
            fleet.serves(at)?;
        }
        Ok(fleet)
    }

    /// Requires answers of this replica from now on.
    fn serves(&self, at: usize) -> Result<()> {
        self.answers[at].process.store(self.replicas[at].operator.pid()?, Ordering::Release);
        Ok(())
    }

    fn may_be_silent(&self, at: usize) {
        self.answers[at].process.store(0, Ordering::Release);
    }

    /// Loses the leader in this way in the middle of a move, which the next leader completes.
    async fn loses_leader(&mut self, loss: Loss) -> Result<()> {
        let testbed = self.testbed;
        let leader = testbed.leader().await?;
        let at = self.replicas.iter().position(|replica| replica.identity == leader).context("no replica leads")?;
        let act = Act::prepare(testbed, Verb::Move, &format!("{loss:?}").to_lowercase()).await?;
        let mut held = self.replicas[at].proxy.hold(1, HoldPoint::Before, move |write| loss.during(write));
        act.begin(testbed).await?;
        let write = held.reached().await.context("the proxy went away")?;
        let begun = Instant::now();
        let held = self.lose(at, loss, held)?;
        let next = testbed.another_leads(&leader).await?;
        let took = begun.elapsed();
        println!("{loss:?}: {next} leads {took:?} after the loss of {leader}");
        ensure!(took <= TAKEOVER, "{next} took over {took:?} after {leader} was lost, at most {TAKEOVER:?}");
        if loss == Loss::CutOff {
            let ended = self.replicas[at].operator.ended()?;
            ensure!(ended.is_some(), "without the API server, the leader still runs when its lease has expired");
        }
        for other in self.replicas.iter().filter(|replica| replica.identity != leader) {
            let answer = other.operator.get("/readyz").await?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "{} is not ready: {answer}", other.identity);
        }
        testbed.ends(act.name(), ("True", "Succeeded")).await?;
        act.done(testbed).await?;
        self.returns(at, loss, held, write.number).await?;
        // The last requests of the former leader have changed nothing.
        act.done(testbed).await
    }

    /// Returns the request if it may reach the API server later.
    fn lose(&mut self, at: usize, loss: Loss, held: Held) -> Result<Option<Held>> {
        let Replica { operator, proxy, .. } = &mut self.replicas[at];
        match loss {
            Loss::Killed => {
                operator.kill();
                held.lose();
                Ok(None)
            }
            Loss::Stopped => {
                self.answers[at].process.store(0, Ordering::Release);
                operator.signal("-STOP")?;
                Ok(Some(held))
            }
            Loss::CutOff => {
                proxy.link().cut();
                held.release();
                Ok(None)
            }
        }
    }

    /// Delivers the last requests of the former leader, which must be refused, and restarts it as a kubelet does.
    async fn returns(&mut self, at: usize, loss: Loss, held: Option<Held>, number: usize) -> Result<()> {
        if let Some(held) = held {
            held.release();
        }
        if loss == Loss::CutOff {
            self.replicas[at].proxy.link().mend();
        }
        if loss != Loss::Killed {
            let answer = self.replicas[at].proxy.answered(number).await?;
            ensure!(answer.is_client_error(), "a request of the former leader was answered by {answer}");
        }
        if loss == Loss::Stopped {
            self.replicas[at].operator.signal("-CONT")?;
            let ended = self.replicas[at].operator.end().await?.context("the former leader still runs")?;
            let log = self.replicas[at].operator.log_tail(100);
            ensure!(!ended.success() && log.contains("the lease is lost"), "{ended}\n{log}");
        }
        self.may_be_silent(at);
        self.replicas[at].operator.start()?;
        self.replicas[at].operator.ready().await?;
        self.serves(at)
    }

    /// Checks that every replica answered schedulers all the while.
    fn answered(&self) -> Result<()> {
        for (replica, answers) in self.replicas.iter().zip(&self.answers) {
            let good = answers.good.load(Ordering::Acquire);
            let failures = answers.failures.lock().unwrap_or_else(PoisonError::into_inner);
            println!("{} answered {good} requests", replica.identity);
            ensure!(failures.is_empty(), "{} did not answer: {failures:?}", replica.identity);
            ensure!(good > 50, "{} answered {good} requests only", replica.identity);
        }
        Ok(())
    }

    fn logs(&self) -> String {
        let logs = self.replicas.iter().map(|one| format!("--- {}\n{}\n", one.identity, one.operator.log_tail(30)));
        logs.collect()
    }
}

async fn survives_all(fleet: &mut Fleet<'_>) -> Result<()> {
    for loss in [Loss::Killed, Loss::Stopped, Loss::CutOff] {
        fleet.loses_leader(loss).await.with_context(|| format!("{loss:?}"))?;
    }
    fleet.answered()?;
    // While a leader runs, to finish the last write.
    rest_clean(fleet.testbed).await
}

#[test]
fn three_replicas_survive_the_loss_of_each_leader() {
    let own = block_on(Plane::own("availability", NODES)).expect("a plane of its own");
    story_on(&own.0, Road::Proxy, "fleet", async |testbed| {
        let begun = Timestamp::now();
        let mut fleet = Fleet::start(testbed, &["a", "b", "c"]).await?;
        let survived = survives_all(&mut fleet).await;
        survived.map_err(|error| anyhow!("{error:#}\n{}", fleet.logs()))?;
        let requests = own.0.audit.between(begun, Timestamp::now()).await?;
        let effects = requests.iter().filter(|one| one.by_operator && one.writes() && one.namespace == testbed.ns);
        for resource in ["pods", "pods/eviction", "workloadactionreceipts"] {
            let count = effects.clone().filter(|one| one.verb == "create" && one.resource == resource).count();
            ensure!(count == 3, "three moves created {count} {resource}");
        }
        Ok(())
    });
}
