//! Plays an act: sends the request, shows what happens, and judges the result.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Step;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use testkit::eye::{Eye, Seen};
use testkit::plugin::Plugin;
use testkit::verdict::{Story, pods_of, serves};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::acts::{Act, Deed};
use super::narrator::{self, Narrator};
use super::scene::{APP, REPLICAS};
use super::screen::Screen;
use super::{TIMEOUT, judge};

/// Cluster, watch and screen of the acts.
pub struct Theatre<'a> {
    pub client: Client,
    pub namespace: String,
    pub eye: Eye,
    pub screen: &'a Screen,
    /// Runs `kubectl ganglion drain`; None if the demo must not drain nodes.
    pub plugin: Option<Plugin>,
}

/// Output lines of a command; the channel closes when the command ends.
type Lines = UnboundedReceiver<String>;

impl Theatre<'_> {
    /// Sends the request, shows what happens, and judges the result. Returns the number of failed checks.
    pub async fn play(&self, act: &Act) -> Result<usize> {
        let before = self.eye.now();
        let story = Story::begin(&self.eye, APP);
        let mut show = Show {
            theatre: self,
            narrator: Narrator::new(&before),
            lines: None,
            began: Instant::now(),
            least: act.promise.least(),
        };
        match &act.deed {
            Deed::Apply(manifest) => self.apply(manifest).await?,
            Deed::Drain(node) => show.lines = Some(self.ganglion(&["drain", node, "-w"])?),
        }
        let old: BTreeSet<String> = before.actions.keys().cloned().collect();
        let ended =
            show.until(|seen, lines| new(seen, &old).next().is_some() && new(seen, &old).all(is_over) && !lines).await;
        if let Deed::Drain(node) = &act.deed {
            show.lines = Some(self.ganglion(&["drain", node, "--uncordon"])?);
        }
        let replicas = act.promise.replicas.last().copied().unwrap_or(REPLICAS);
        // Waits even after a failure: the list of terminated pods is complete only when nothing changes any more.
        let rested = show.until(|seen, lines| is_at_rest(seen, replicas) && !lines).await;
        self.screen.rest();
        if !(ended && rested) {
            self.screen.bad(&format!("  not finished after {} s; the state now:", TIMEOUT.as_secs()));
        }
        let seen = self.eye.now();
        // The moves of an application action are owned by it; the action itself has no owner.
        let action = new(&seen, &old).find(|action| action.owner_references().is_empty());
        Ok(judge::judge(&act.promise, &story.verdict(&self.eye), &seen, action.map(AsRef::as_ref), self.screen))
    }

    async fn apply(&self, manifest: &str) -> Result<()> {
        self.screen.manifest(manifest);
        let action: WorkloadAction = serde_saphyr::from_str(manifest)?;
        Api::namespaced(self.client.clone(), &self.namespace).create(&PostParams::default(), &action).await?;
        Ok(())
    }

    /// Starts `kubectl ganglion` with these arguments.
    fn ganglion(&self, words: &[&str]) -> Result<Lines> {
        self.screen.say(&format!("    $ kubectl ganglion {}\n", words.join(" ")));
        let mut child = self.plugin.as_ref().context("this demo does not drain nodes")?.command(words).spawn()?;
        let (sender, lines) = unbounded_channel();
        let (out, err) = (child.stdout.take().context("no output")?, child.stderr.take().context("no errors")?);
        tokio::spawn(async move {
            let (mut out, mut err) = (BufReader::new(out).lines(), BufReader::new(err).lines());
            while let Ok(Some(line)) = out.next_line().await {
                let _ = sender.send(line);
            }
            while let Ok(Some(line)) = err.next_line().await {
                let _ = sender.send(line);
            }
            // Keeps the channel open until the command has ended.
            let _ = child.wait().await;
            drop(sender);
        });
        Ok(lines)
    }
}

/// Output while an act runs.
struct Show<'a> {
    theatre: &'a Theatre<'a>,
    narrator: Narrator,
    lines: Option<Lines>,
    began: Instant,
    /// Minimum number of Ready replicas.
    least: usize,
}

impl Show<'_> {
    /// Prints what happens until `holds` returns true. `holds` receives the observed objects and whether a command
    /// still runs. Returns false on timeout.
    async fn until(&mut self, holds: impl Fn(&Seen, bool) -> bool) -> bool {
        let Theatre { eye, screen, .. } = self.theatre;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let at_work = self.say_lines();
            let seen = eye.now();
            for line in self.narrator.read_history(&seen) {
                screen.event(self.began.elapsed(), &line.subject, &line.text, line.tone);
            }
            screen.live(&narrator::picture(screen, &seen, &self.narrator, self.least));
            if holds(&seen, at_work) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            let so_far = seen.history.len();
            let news = |seen: &Seen| (seen.history.len() > so_far).then_some(());
            let _ = eye.within(Duration::from_millis(200), "news", news).await;
        }
    }

    /// Prints the command's output so far. Returns whether the command still runs.
    fn say_lines(&mut self) -> bool {
        let Some(lines) = &mut self.lines else { return false };
        while let Ok(line) = lines.try_recv() {
            self.theatre.screen.say(&format!("    {line}"));
        }
        !lines.is_closed() || !lines.is_empty()
    }
}

/// Actions whose names are not in `old`.
fn new<'a>(seen: &'a Seen, old: &'a BTreeSet<String>) -> impl Iterator<Item = &'a Arc<WorkloadAction>> {
    seen.actions.iter().filter(|(name, _)| !old.contains(*name)).map(|(_, action)| action)
}

/// Whether the action has ended, successfully or not, and no work for it is left.
fn is_over(action: &Arc<WorkloadAction>) -> bool {
    let Some(status) = &action.status else { return false };
    let slots = status.slots.iter().all(|slot| slot.step.is_end() && slot.step != Step::Queued);
    status.finished_at.is_some() && slots
}

/// Whether exactly the requested pods exist, all are Ready, and the operator has removed its ledger and finalizers.
fn is_at_rest(seen: &Seen, replicas: usize) -> bool {
    let pods: Vec<_> = pods_of(seen, APP).collect();
    let ledger = seen.deployments.get(APP).is_some_and(|object| object.annotations().contains_key(marks::LEDGER));
    let held = seen.actions.values().any(|action| !action.finalizers().is_empty());
    pods.len() == replicas && pods.iter().all(|pod| serves(pod)) && !ledger && !held
}
