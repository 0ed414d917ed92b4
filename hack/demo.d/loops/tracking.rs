//! The acts of a loop that tracks a target: the number of workers follows a queue, and a window raises its minimum.

use anyhow::Result;
use jiff::tz::TimeZone;
use jiff::{RoundMode, SignedDuration, Timestamp, Unit, Zoned, ZonedRound};

use super::act::{Checks, Place, Start, arrows};
use super::eye::{Hop, Seen};
use super::scene;

/// Applied as it is.
const SAMPLE: &str = "samples/closedloop/push/queue.yaml";

/// Its loop and its Deployment.
const LOOP: &str = "queue";
const WORKERS: &str = "workers";
const NAMES: &[&str] = &[LOOP, WORKERS];

/// Time zone of the window.
const ZONE: &str = "Europe/Berlin";

/// Minimum time for which the window is open: the steps of its act take half of it.
const OPEN: SignedDuration = SignedDuration::from_secs(40);

/// Minimum number of workers while the window is open.
const FLOOR: i32 = 6;

/// A window that is open.
pub struct Window {
    until: Timestamp,
    /// Its end on the clock of its time zone.
    pub end: String,
    seen: Seen,
}

/// Lets the number follow the queue, up and down, and explains it.
pub async fn follow(place: &Place<'_>) -> Result<usize> {
    scene::show(place, SAMPLE, "ClosedLoop")?;
    scene::kubectl(place, "apply", SAMPLE).await?;
    scene::accepts_samples(place, LOOP).await?;
    let mut checks = Checks::new(place.screen);
    push(place, &mut checks, 85, 9).await?;
    place.screen.gap();
    place.show_kubectl(&format!("get closedloop {LOOP}")).await?;
    place.screen.gap();
    let explained = place.show_ganglion(&format!("explain loop {LOOP}")).await?;
    let lines = ["jobs: 85, target 10 for each replica", "9 replicas by jobs", "1 → 9 replicas"];
    let found: Vec<&str> = lines.into_iter().filter(|line| explained.contains(line)).collect();
    place.screen.gap();
    checks.say("metric, proposal and result", &found.join("; "), found == lines);
    place.screen.gap();
    push(place, &mut checks, 32, 4).await?;
    Ok(checks.failed)
}

/// Pushes the length of the queue, and checks that one decision sets this number of workers.
async fn push(place: &Place<'_>, checks: &mut Checks<'_>, jobs: u32, workers: i32) -> Result<()> {
    place.screen.say(&format!("    $ ganglion push {LOOP} jobs={jobs}\n"));
    let start = place.start();
    place.ganglion(&["push", LOOP, &format!("jobs={jobs}")]).await?;
    scales(place, checks, &start, workers).await;
    Ok(())
}

/// Waits until there is this number of workers, and checks that it was set in one step.
async fn scales(place: &Place<'_>, checks: &mut Checks<'_>, start: &Start, workers: i32) {
    let over = |seen: &Seen| seen.replicas(WORKERS) == Some(workers) && seen.word(LOOP, Hop::Execution).has_ended();
    place.watch(NAMES, start, over).await;
    let path = place.eye.now().path(WORKERS, &start.seen);
    checks.head();
    let good = matches!(path.as_slice(), [_, last] if *last == workers);
    checks.say(&format!("replicas of {WORKERS}"), &arrows(&path), good);
}

/// Adds a window that is open now to the loop. Returns the number of failed checks, and the window.
pub async fn open(place: &Place<'_>) -> Result<(usize, Window)> {
    // A machine without this time zone has at least UTC.
    let (name, zone) = TimeZone::get(ZONE).map_or(("UTC", TimeZone::UTC), |zone| (ZONE, zone));
    let now = Timestamp::now().to_zoned(zone);
    let minute = |time: &Zoned, mode| time.round(ZonedRound::new().smallest(Unit::Minute).mode(mode));
    let (start, until) = (minute(&now, RoundMode::Trunc)?, minute(&(&now + OPEN), RoundMode::Ceil)?);
    let cron = |time: &Zoned| format!("{} {} * * *", time.minute(), time.hour());
    let patch = format!(
        "\
- op: add
  path: /spec/actions/0/ladder/0/scale/schedule
  value:
  - during: {{start: {}, until: {}, timeZone: {name}}}   # it is {} there
    min: {FLOOR}
",
        cron(&start),
        cron(&until),
        now.strftime("%H:%M:%S"),
    );
    place.screen.say(&format!("    $ kubectl patch loop {LOOP} --type=json --patch '"));
    place.screen.manifest(&format!("{}'", patch.trim_end()));
    let mut checks = Checks::new(place.screen);
    let start = place.start();
    place.stage.kubectl(&["patch", "loop", LOOP, "--type=json", "--patch", &patch]).await?;
    scales(place, &mut checks, &start, FLOOR).await;
    place.screen.say("\n  It is a minimum: the queue may still ask for more. For less, the minimum stays.\n");
    push(place, &mut checks, 75, 8).await?;
    place.screen.gap();
    push(place, &mut checks, 20, FLOOR).await?;
    let end = format!("{} {name}", until.strftime("%H:%M:%S"));
    Ok((checks.failed, Window { until: until.timestamp(), end, seen: place.eye.now() }))
}

/// Waits for the end of the window, and checks that the number is then the one that the queue asks for.
pub async fn close(place: &Place<'_>, window: &Window) -> Result<usize> {
    let over = |seen: &Seen| seen.replicas(WORKERS) == Some(2) && seen.word(LOOP, Hop::Execution).has_ended();
    let mut start = place.start();
    if over(&start.seen) {
        place.screen.say("  It has ended while the autoscaler and its loop were at work.");
    } else {
        start.seen = window.seen.clone();
    }
    place.watch(NAMES, &start, over).await;
    let seen = place.eye.now();
    let mut checks = Checks::new(place.screen);
    checks.head();
    let path = seen.path(WORKERS, &window.seen);
    checks.say(&format!("replicas of {WORKERS}"), &arrows(&path), path == [FLOOR, 2]);
    let changed = seen.replicas.get(WORKERS).and_then(|all| all.last()).map(|(time, _)| *time).unwrap_or_default();
    let after = changed.duration_since(window.until).as_secs_f64();
    checks.say("time of this change", &format!("{after:.1} s after the end of the window"), after >= 0.0);
    Ok(checks.failed)
}
