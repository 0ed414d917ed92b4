//! The demo of closed loops. It follows the script of the demo that inspired it, but scales a real Deployment.

mod act;
mod eye;
mod scene;

use std::time::Instant;

use anyhow::Result;

use super::screen::Screen;
use super::stage::Stage;
use act::{Place, Promise, ganglion};
use eye::{Eye, Hop, News, Seen};
use scene::{APP, SLOW};

/// Sample in which both metrics are low, so that the loop must choose one.
const BOTH: [&str; 2] = ["cpu=2", "memory=40"];

/// Maximum number of such samples; the slow loop needs fewer.
const MOST: usize = 10;

/// Runs the whole demo. Returns false if a check failed.
pub async fn play(screen: &Screen, stage: &mut Stage) -> Result<bool> {
    screen.title("Ganglion: a loop monitors, decides and scales, and a second loop tunes it");
    stage.build(screen).await?;
    let (client, namespace) = stage.place()?;
    let kubeconfig = stage.kubeconfig()?;
    let place = Place { kubeconfig: &kubeconfig, namespace: &namespace };
    let eye = Eye::open(&client, &namespace);
    scene::make(&client, &namespace, &eye, screen).await?;
    let promise = |sample, monitoring, decision, acts| Promise { sample, monitoring, decision, acts };
    let mut broken = Vec::new();
    for (title, promise) in [
        ("1 of 5: cpu and memory are both low", promise(BOTH, "Low cpu,Low memory", "React to cpu", true)),
        ("2 of 5: only memory is low", promise(["cpu=20", "memory=40"], "Low memory", "React to memory", true)),
        ("3 of 5: nothing is low", promise(["cpu=20", "memory=60"], "No Event", "No Event", false)),
    ] {
        screen.heading(title);
        broken.push(act::play(&place, &promise, &eye, screen).await?);
    }
    screen.heading("4 of 5: a slow loop evaluates the decisions of the fast one");
    scene::put(&client, &namespace, &eye, screen, SLOW, scene::SLOW_LOOP).await?;
    broken.push(teach(&place, &eye, screen).await?);
    screen.heading("5 of 5: the first sample again");
    let promise = promise(BOTH, "Low cpu,Low memory", "React to memory", true);
    broken.push(act::play(&place, &promise, &eye, screen).await?);

    screen.heading("The final state");
    for args in [&["get", "loop"] as &[&str], &["get", "mon,dec,exe"]] {
        screen.say(&format!("$ kubectl {}\n{}", args.join(" "), stage.kubectl(args).await?));
    }
    screen.say(&format!("$ ganglion explain loop {APP}\n{}", ganglion(&place, &["explain", "loop", APP]).await?));
    let wrong = broken.iter().filter(|complaints| **complaints > 0).count();
    match wrong {
        0 => screen.good("All 5 acts went as promised."),
        some => {
            stage.show_log(screen);
            screen.bad(&format!("{some} of 5 acts did not go as promised."));
        }
    }
    Ok(wrong == 0)
}

/// Pushes samples in which both metrics are low. The loop always serves cpu, until the slow loop raises memory.
async fn teach(place: &Place<'_>, eye: &Eye, screen: &Screen) -> Result<usize> {
    let raised = |seen: &Seen| seen.ranks.get(APP).is_some_and(|rank| *rank == ["memory", "cpu"]);
    let (from, began) = (eye.now(), Instant::now());
    let mut samples = 0;
    while samples < MOST && !raised(&eye.now()) {
        samples += 1;
        if samples > 1 {
            screen.gap();
        }
        screen.say(&format!("    $ ganglion push {APP} {} {}\n", BOTH[0], BOTH[1]));
        let so_far = eye.now();
        let before = so_far.word(APP, Hop::Execution).seq;
        ganglion(place, &["push", APP, BOTH[0], BOTH[1]]).await?;
        let done = |seen: &Seen| {
            let word = seen.word(APP, Hop::Execution);
            word.seq > before && word.has_ended()
        };
        act::watch(eye, screen, so_far.history.len(), Instant::now(), done).await;
    }
    let taught = |seen: &Seen| raised(seen) && seen.word(SLOW, Hop::Execution).message == "Increase rank memory";
    act::watch(eye, screen, eye.now().history.len(), began, taught).await;
    screen.rest();
    let seen = eye.now();
    screen.say("\n  What an independent watch saw:\n");
    let mut wrong = 0;
    let mut say = |what: &str, seen: String, good: bool| {
        wrong += usize::from(!good);
        screen.verdict(what, &seen, good);
    };
    let news = seen.history.get(from.history.len()..).unwrap_or_default();
    // Decisions made while the slow loop acts may be for either metric, so they are not checked.
    let until = news.iter().position(|news| matches!(news, News::Said(Hop::Execution, name, _) if name == SLOW));
    let mut last = from.word(APP, Hop::Decision).seq;
    let reactions: Vec<&str> =
        news.iter().take(until.unwrap_or(news.len())).filter_map(|news| reaction(news, &mut last)).collect();
    let good = !reactions.is_empty() && reactions.iter().all(|words| *words == "React to cpu");
    say("decisions before the slow loop acts", reactions.join(", "), good);
    let word = seen.word(SLOW, Hop::Execution).message;
    say("the slow loop's Execution", word.clone(), word == "Increase rank memory");
    let rank = seen.ranks.get(APP).cloned().unwrap_or_default().join(", ");
    say("rank of the fast loop", rank, raised(&seen));
    Ok(wrong)
}

/// Message of the fast loop's decision, if it is a new one.
fn reaction<'a>(news: &'a News, last: &mut i64) -> Option<&'a str> {
    match news {
        News::Said(Hop::Decision, name, word) if name == APP && word.seq > *last => {
            *last = word.seq;
            Some(&word.message)
        }
        News::Said(..) | News::Replicas(_) | News::Rank(..) => None,
    }
}
