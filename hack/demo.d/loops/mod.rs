//! The demo of closed loops. Its first acts follow the script of the demo that inspired it, but scale a real
//! Deployment. The others show what users of autoscalers look for: a target, a window of time, and an import.

mod act;
mod eye;
mod import;
mod scene;
mod tracking;

use anyhow::Result;

use super::screen::Screen;
use super::stage::Stage;
use act::{Checks, Place, Promise};
use eye::{Eye, Hop, News, Seen};
use scene::{APP, SLOW};

/// Sample in which both metrics are low, so that the loop must choose one.
const BOTH: [&str; 2] = ["cpu=2", "memory=40"];

/// Maximum number of such samples; the slow loop needs fewer.
const MOST: usize = 10;

/// Runs the whole demo. Returns false if a check failed.
pub async fn play(screen: &Screen, stage: &mut Stage) -> Result<bool> {
    screen.title("Ganglion: loops monitor, decide and scale; one tunes another, one takes over from an autoscaler");
    stage.build(screen).await?;
    let (client, namespace) = stage.place()?;
    let (kubeconfig, eye) = (stage.kubeconfig()?, Eye::open(&client, &namespace));
    let place = Place { stage, client, namespace, kubeconfig, eye, screen };
    scene::make(&place).await?;
    let live = if stage.is_local() { Some(import::prepare(&place).await?) } else { None };
    let count = if live.is_some() { 9 } else { 8 };
    let heading = |number: usize, title: &str| screen.heading(&format!("{number} of {count}: {title}"));
    let promise = |sample, monitoring, decision, acts| Promise { sample, monitoring, decision, acts };
    let mut broken = Vec::new();
    screen.say("\n  The loop:\n");
    scene::put(&place, APP, scene::FAST_LOOP).await?;
    for (number, title, promise) in [
        (1, "cpu and memory are both low", promise(BOTH, "Low cpu,Low memory", "React to cpu", true)),
        (2, "only memory is low", promise(["cpu=20", "memory=40"], "Low memory", "React to memory", true)),
        (3, "nothing is low", promise(["cpu=20", "memory=60"], "No Event", "No Event", false)),
    ] {
        heading(number, title);
        broken.push(act::play(&place, &promise).await?);
    }
    heading(4, "a slow loop evaluates the decisions of the fast one");
    scene::put(&place, SLOW, scene::SLOW_LOOP).await?;
    broken.push(teach(&place).await?);
    heading(5, "the first sample again");
    broken.push(act::play(&place, &promise(BOTH, "Low cpu,Low memory", "React to memory", true)).await?);
    heading(6, "another loop tracks a target: one worker for each ten jobs");
    broken.push(tracking::follow(&place).await?);
    heading(7, "a window of time raises the minimum");
    let (failed, window) = tracking::open(&place).await?;
    broken.push(failed);
    screen.say(&format!("\n  The window ends at {}: act {count} shows what is left of it.", window.end));
    if let Some(live) = live {
        heading(8, "a loop takes over from a live HorizontalPodAutoscaler, and hands back");
        broken.push(import::play(&place, &live).await?);
        import::end(&place, live).await?;
    } else {
        screen.say("\nSkipping the import of an autoscaler: its load is simulated, which your nodes cannot do.");
    }
    heading(count, &format!("the window ends at {}", window.end));
    broken.push(tracking::close(&place, &window).await?);

    screen.heading("The final state");
    for command in ["get loop", "get mon,dec,exe"] {
        place.show_kubectl(command).await?;
        screen.gap();
    }
    place.show_ganglion(&format!("explain loop {APP}")).await?;
    screen.gap();
    match broken.iter().filter(|complaints| **complaints > 0).count() {
        0 => screen.good(&format!("All {count} acts went as promised.")),
        some => {
            stage.show_log(screen);
            screen.bad(&format!("{some} of {count} acts did not go as promised."));
        }
    }
    Ok(broken.iter().all(|complaints| *complaints == 0))
}

/// Pushes samples in which both metrics are low. The loop always serves cpu, until the slow loop raises memory.
async fn teach(place: &Place<'_>) -> Result<usize> {
    let (eye, screen) = (&place.eye, place.screen);
    let raised = |seen: &Seen| seen.ranks.get(APP).is_some_and(|rank| *rank == ["memory", "cpu"]);
    let from = eye.now();
    let mut samples = 0;
    while samples < MOST && !raised(&eye.now()) {
        samples += 1;
        if samples > 1 {
            screen.gap();
        }
        screen.say(&format!("    $ ganglion push {APP} {} {}\n", BOTH[0], BOTH[1]));
        let start = place.start();
        let before = start.seen.word(APP, Hop::Execution).seq;
        place.ganglion(&["push", APP, BOTH[0], BOTH[1]]).await?;
        let done = |seen: &Seen| {
            let word = seen.word(APP, Hop::Execution);
            word.seq > before && word.has_ended()
        };
        place.watch(act::NAMES, &start, done).await;
    }
    let taught = |seen: &Seen| raised(seen) && seen.word(SLOW, Hop::Execution).message == "Increase rank memory";
    place.watch(act::NAMES, &place.start(), taught).await;
    let seen = eye.now();
    let mut checks = Checks::new(screen);
    checks.head();
    let news = seen.history.get(from.history.len()..).unwrap_or_default();
    // Decisions made while the slow loop acts may be for either metric, so they are not checked.
    let until = news.iter().position(|news| matches!(news, News::Said(Hop::Execution, name, _) if name == SLOW));
    let mut last = from.word(APP, Hop::Decision).seq;
    let reactions: Vec<&str> =
        news.iter().take(until.unwrap_or(news.len())).filter_map(|news| reaction(news, &mut last)).collect();
    let good = !reactions.is_empty() && reactions.iter().all(|words| *words == "React to cpu");
    checks.say("decisions before the slow loop acts", &reactions.join(", "), good);
    let word = seen.word(SLOW, Hop::Execution).message;
    checks.say("the slow loop's Execution", &word, word == "Increase rank memory");
    let rank = seen.ranks.get(APP).cloned().unwrap_or_default().join(", ");
    checks.say("rank of the fast loop", &rank, raised(&seen));
    Ok(checks.failed)
}

/// Message of the fast loop's decision, if it is a new one.
fn reaction<'a>(news: &'a News, last: &mut i64) -> Option<&'a str> {
    match news {
        News::Said(Hop::Decision, name, word) if name == APP && word.seq > *last => {
            *last = word.seq;
            Some(&word.message)
        }
        News::Said(..) | News::Replicas(..) | News::Rank(..) | News::Autoscaler(..) => None,
    }
}
