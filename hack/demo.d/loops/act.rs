//! One act: pushes a sample, shows its way through the loop, and judges what an independent watch saw of it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion_api::execution::ExecutionState;
use ganglion_api::monitoring::Tag;
use k8s_openapi::jiff::Timestamp;
use testkit::operator::program;
use testkit::process::run;
use tokio::process::Command;

use super::eye::{Eye, Hop, News, Seen, Word};
use super::scene::APP;
use crate::TIMEOUT;
use crate::screen::{Field, Screen, Tone};

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

/// Cluster access of the acts.
pub struct Place<'a> {
    pub kubeconfig: &'a Path,
    pub namespace: &'a str,
}

/// Runs the ganglion program, as a user would.
pub async fn ganglion(place: &Place<'_>, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program()?);
    command.args(args).args(["-n", place.namespace, "--kubeconfig"]).arg(place.kubeconfig);
    run(command, None).await
}

/// Pushes the sample, shows what happens, and judges the result. Returns the number of failed checks.
pub async fn play(place: &Place<'_>, promise: &Promise, eye: &Eye, screen: &Screen) -> Result<usize> {
    let [cpu, memory] = promise.sample;
    screen.say(&format!("    $ ganglion push {APP} {cpu} {memory}\n"));
    let before = eye.now();
    let began = Instant::now();
    let said = ganglion(place, &["push", APP, cpu, memory]).await?;
    let time = said.split(" at ").nth(1).and_then(|rest| rest.split(": ").next());
    let time: Timestamp = time.context("ganglion push did not print the time of the sample")?.parse()?;
    let over = |seen: &Seen| {
        let (decision, execution) = (seen.word(APP, Hop::Decision), seen.word(APP, Hop::Execution));
        is_of(&decision, time) && (!promise.acts || is_of(&execution, time) && execution.has_ended())
    };
    let ended = watch(eye, screen, before.history.len(), began, over).await;
    screen.rest();
    if !ended {
        screen.bad(&format!("  not finished after {} s; the state now:", TIMEOUT.as_secs()));
    }
    Ok(judge(promise, time, &before, &eye.now(), screen))
}

fn is_of(word: &Word, time: Timestamp) -> bool {
    word.tag.as_ref().is_some_and(|tag| tag.time.0 == time)
}

/// Prints what happens until `until` returns true and nothing more happens. Returns false on timeout.
pub async fn watch(eye: &Eye, screen: &Screen, from: usize, began: Instant, until: impl Fn(&Seen) -> bool) -> bool {
    let (mut read, mut last) = (from, Instant::now());
    loop {
        let seen = eye.now();
        for news in seen.history.iter().skip(read) {
            let (subject, text, tone) = line(news);
            screen.event(began.elapsed(), &subject, &text, tone);
            last = Instant::now();
        }
        read = seen.history.len();
        screen.live(&[tables(screen, &seen)]);
        if until(&seen) && last.elapsed() > CALM {
            return true;
        }
        if began.elapsed() > TIMEOUT {
            return false;
        }
        eye.news(read).await;
    }
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
        News::Replicas(replicas) => ("Deployment web".to_owned(), format!("spec.replicas is {replicas}"), Tone::Plain),
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
fn tables(screen: &Screen, seen: &Seen) -> String {
    let rows = seen.words.iter().map(|((name, hop), word)| {
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
    let mut wrong = 0;
    let mut say = |what: &str, seen: String, good: bool| {
        wrong += usize::from(!good);
        screen.verdict(what, &seen, good);
    };
    screen.say("\n  What an independent watch saw:\n");
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
        say(&format!("{hop:?} reported"), messages.join(", then "), messages == [expected]);
    }
    let done = said(Hop::Execution);
    let state = |word: &Word| word.state.map(|state| format!("{state:?}")).unwrap_or_default();
    let last = done.last().map(|word| format!("{}: {}", state(word), word.message));
    let good = done.last().is_some_and(|word| word.state == Some(ExecutionState::Done));
    say(
        "Execution",
        last.unwrap_or_else(|| "did not run".to_owned()),
        good == promise.acts && done.is_empty() != promise.acts,
    );
    let path: Vec<i32> = before.replicas.into_iter().chain(news.iter().filter_map(replicas)).collect();
    let first = before.replicas.unwrap_or(0);
    let expected = if promise.acts { vec![first, first + 1] } else { vec![first] };
    let words: Vec<String> = path.iter().map(ToString::to_string).collect();
    say("spec.replicas of the Deployment", words.join(" → "), path == expected);
    let mut tags: Vec<Tag> = [Hop::Monitoring, Hop::Decision, Hop::Execution]
        .iter()
        .filter_map(|hop| said(*hop).last()?.tag.clone())
        .collect();
    let count = tags.len();
    tags.dedup();
    let shown = tags.iter().map(short).collect::<Vec<_>>().join(" / ");
    let good = count == if promise.acts { 3 } else { 2 } && tags.len() == 1;
    say(&format!("sample tag, in {count} of 3 children"), shown, good);
    wrong
}

fn replicas(news: &News) -> Option<i32> {
    if let News::Replicas(replicas) = news { Some(*replicas) } else { None }
}
