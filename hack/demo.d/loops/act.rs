//! One act: pushes a sample, shows its way through the loop, and judges what an independent watch saw of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion_api::execution::ExecutionState;
use ganglion_api::monitoring::Tag;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use testkit::operator::program;
use testkit::process::run;
use tokio::process::Command;

use super::eye::{Eye, Hop, Measured, News, Seen, Word};
use super::scene::{APP, SLOW};
use crate::TIMEOUT;
use crate::screen::{Field, Screen, Tone};
use crate::stage::Stage;

/// An act is over when nothing has happened for this time.
const CALM: Duration = Duration::from_millis(700);

/// Expected result of one sample.
pub struct Promise {
    pub sample: [&'static str; 2],
    pub monitoring: &'static str,
    pub decision: &'static str,
    /// Whether the loop adds one replica.
    pub acts: bool,
}

/// Objects of the first acts.
pub const NAMES: &[&str] = &[APP, SLOW];

/// State at which a step begins, and the time of it.
pub struct Start {
    pub seen: Seen,
    pub at: Instant,
}

/// Cluster, independent watch and screen of the acts.
pub struct Place<'a> {
    pub stage: &'a Stage,
    pub client: Client,
    pub namespace: String,
    pub kubeconfig: PathBuf,
    pub eye: Eye,
    pub screen: &'a Screen,
}

impl Place<'_> {
    /// Runs the ganglion program, as a user would.
    pub async fn ganglion(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(program()?);
        command.args(args).args(["-n", &self.namespace, "--kubeconfig"]).arg(&self.kubeconfig);
        run(command, None).await
    }

    /// Prints a command of the ganglion program and its output.
    pub async fn show_ganglion(&self, command: &str) -> Result<String> {
        let printed = self.ganglion(&command.split(' ').collect::<Vec<_>>()).await?;
        self.screen.say(&format!("$ ganglion {command}\n{}", printed.trim_end()));
        Ok(printed)
    }

    /// Prints a command of kubectl and its output.
    pub async fn show_kubectl(&self, command: &str) -> Result<()> {
        let printed = self.stage.kubectl(&command.split(' ').collect::<Vec<_>>()).await?;
        self.screen.say(&format!("$ kubectl {command}\n{}", printed.trim_end()));
        Ok(())
    }

    /// The current state as the beginning of a step.
    pub fn start(&self) -> Start {
        Start { seen: self.eye.now(), at: Instant::now() }
    }

    /// Prints what happens to these objects after `start` until `until` returns true and nothing more happens. Returns
    /// false on timeout.
    pub async fn watch(&self, names: &[&str], start: &Start, until: impl Fn(&Seen) -> bool) -> bool {
        let (eye, screen) = (&self.eye, self.screen);
        let (began, mut read, mut last) = (start.at, start.seen.history.len(), Instant::now());
        loop {
            let seen = eye.now();
            for news in seen.history.iter().skip(read).filter(|news| names.contains(&news.name())) {
                let (subject, text, tone) = line(news);
                screen.event(began.elapsed(), &subject, &text, tone);
                last = Instant::now();
            }
            read = seen.history.len();
            screen.live(&[tables(screen, &seen, names)]);
            let is_over = until(&seen) && last.elapsed() > CALM;
            if is_over || began.elapsed() > TIMEOUT {
                screen.rest();
                if !is_over {
                    screen.bad(&format!("  not finished after {} s; the state now:", TIMEOUT.as_secs()));
                }
                return is_over;
            }
            eye.news(read).await;
        }
    }
}

/// Checks of an act, printed in green or red.
pub struct Checks<'a> {
    screen: &'a Screen,
    /// Number of failed checks.
    pub failed: usize,
}

impl<'a> Checks<'a> {
    pub const fn new(screen: &'a Screen) -> Self {
        Self { screen, failed: 0 }
    }

    /// Prints the heading of the checks that follow.
    pub fn head(&self) {
        self.screen.say("\n  What an independent watch saw:\n");
    }

    /// Prints a check.
    pub fn say(&mut self, what: &str, seen: &str, good: bool) {
        self.failed += usize::from(!good);
        self.screen.verdict(what, seen, good);
    }
}

/// Pushes the sample, shows what happens, and judges the result. Returns the number of failed checks.
pub async fn play(place: &Place<'_>, promise: &Promise) -> Result<usize> {
    let [cpu, memory] = promise.sample;
    place.screen.say(&format!("    $ ganglion push {APP} {cpu} {memory}\n"));
    let start = place.start();
    let said = place.ganglion(&["push", APP, cpu, memory]).await?;
    let time = said.split(" at ").nth(1).and_then(|rest| rest.split(": ").next());
    let time: Timestamp = time.context("ganglion push did not print the time of the sample")?.parse()?;
    let over = |seen: &Seen| {
        let (decision, execution) = (seen.word(APP, Hop::Decision), seen.word(APP, Hop::Execution));
        is_of(&decision, time) && (!promise.acts || is_of(&execution, time) && execution.has_ended())
    };
    place.watch(NAMES, &start, over).await;
    Ok(judge(promise, time, &start.seen, &place.eye.now(), place.screen))
}

fn is_of(word: &Word, time: Timestamp) -> bool {
    word.tag.as_ref().is_some_and(|tag| tag.time.0 == time)
}

/// Describes one event.
fn line(news: &News) -> (String, String, Tone) {
    match news {
        News::Said(hop, name, word) => {
            let tag = word.tag.as_ref().map(|tag| format!("   [{}]", short(tag))).unwrap_or_default();
            let state = word.state.map(|state| format!("{state:?}: ")).unwrap_or_default();
            let text = format!("{state}{}{tag}", word.message);
            let tone = match (hop, word.state) {
                (Hop::Monitoring, _) => Tone::Surplus,
                (Hop::Decision, _) => Tone::Replacement,
                (Hop::Execution, Some(ExecutionState::Done)) => Tone::Good,
                (Hop::Execution, _) => Tone::Victim,
            };
            (format!("{hop:?} {name}"), text, tone)
        }
        News::Replicas(name, replicas) => {
            (format!("Deployment {name}"), format!("spec.replicas is {replicas}"), Tone::Plain)
        }
        News::Autoscaler(name, Measured { percent, desired }) => {
            let percent = percent.map_or("unknown".to_owned(), |percent| format!("{percent} % of the requests"));
            (format!("Autoscaler {name}"), format!("cpu is {percent}, it wants {desired} replicas"), Tone::Quiet)
        }
        News::Rank(name, rank) => {
            (format!("ClosedLoop {name}"), format!("rank is now {}", rank.join(", ")), Tone::Plain)
        }
    }
}

/// Short form of a tag, for comparison at a glance.
fn short(tag: &Tag) -> String {
    format!("sample {} of {}", tag.sequence, tag.time.0.strftime("%H:%M:%S.%6f"))
}

/// Table as in `kubectl get mon,dec,exe`.
fn tables(screen: &Screen, seen: &Seen, names: &[&str]) -> String {
    let shown = seen.words.iter().filter(|((name, _), _)| names.contains(&name.as_str()));
    let rows = shown.map(|((name, hop), word)| {
        let state = word.state.map(|state| format!("{state:?}")).unwrap_or_default();
        let tag = word.tag.as_ref().map(short).unwrap_or_default();
        let tone = if *hop == Hop::Execution { Tone::Good } else { Tone::Plain };
        vec![
            Field(format!("{hop:?}"), Tone::Quiet),
            Field(name.clone(), Tone::Plain),
            Field(word.message.clone(), tone),
            Field(state, Tone::Plain),
            Field(tag, Tone::Quiet),
        ]
    });
    screen.table(&["KIND", "LOOP", "MESSAGE", "STATE", "TAG"], rows.collect())
}

/// Prints each check of this sample in green or red. Returns the number of failed checks.
fn judge(promise: &Promise, time: Timestamp, before: &Seen, after: &Seen, screen: &Screen) -> usize {
    let mut checks = Checks::new(screen);
    checks.head();
    let news = after.history.get(before.history.len()..).unwrap_or_default();
    let said = |hop: Hop| -> Vec<&Word> {
        let of =
            |news: &&News| matches!(news, News::Said(of, name, word) if *of == hop && name == APP && is_of(word, time));
        news.iter()
            .filter(of)
            .filter_map(|news| if let News::Said(_, _, word) = news { Some(word) } else { None })
            .collect()
    };
    for (hop, expected) in [(Hop::Monitoring, promise.monitoring), (Hop::Decision, promise.decision)] {
        let mut messages: Vec<&str> = said(hop).iter().map(|word| word.message.as_str()).collect();
        messages.dedup();
        checks.say(&format!("{hop:?} reported"), &messages.join(", then "), messages == [expected]);
    }
    let done = said(Hop::Execution);
    let state = |word: &Word| word.state.map(|state| format!("{state:?}")).unwrap_or_default();
    let last = done.last().map(|word| format!("{}: {}", state(word), word.message));
    let good = done.last().is_some_and(|word| word.state == Some(ExecutionState::Done));
    checks.say(
        "Execution",
        &last.unwrap_or_else(|| "did not run".to_owned()),
        good == promise.acts && done.is_empty() != promise.acts,
    );
    let path = after.path(APP, before);
    let first = before.replicas(APP).unwrap_or(0);
    let expected = if promise.acts { vec![first, first + 1] } else { vec![first] };
    checks.say("spec.replicas of the Deployment", &arrows(&path), path == expected);
    let mut tags: Vec<Tag> = [Hop::Monitoring, Hop::Decision, Hop::Execution]
        .iter()
        .filter_map(|hop| said(*hop).last()?.tag.clone())
        .collect();
    let count = tags.len();
    tags.dedup();
    let shown = tags.iter().map(short).collect::<Vec<_>>().join(" / ");
    let good = count == if promise.acts { 3 } else { 2 } && tags.len() == 1;
    checks.say(&format!("sample tag, in {count} of 3 children"), &shown, good);
    checks.failed
}

/// Numbers in the order in which they were seen: `1 → 9`.
pub fn arrows(path: &[i32]) -> String {
    path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}
