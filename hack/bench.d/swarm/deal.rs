//! The deal alone: its time beside a sort of the same names on the same core, its memory, its moves, and its time by size.

use std::time::Instant;

use anyhow::{Context, Result};
use ganglion_api::swarm_pool::assignment::AssignmentStrategy;
use ganglion_pools_plan::Job;
use ganglion_pools_plan::deal::{DealRules, deal, deal_from};

use super::settled::Settled;
use crate::frame::{Bench, Bound, Progress, median, millis, number};

pub const PART: &str = "deal";

const JOBS: usize = 1_000_000;
const WORKERS: u32 = 1_000;

/// Rounds of deal and sort, in turns.
const ROUNDS: usize = 5;

/// What a deal may take, in times of the sort. It sorts, too.
const SORTS: f64 = 6.0;

/// The most memory of the process: names, jobs and the deal.
const MEMORY: f64 = 300.0;

/// Moves, in times of the least number.
const MOVES: f64 = 1.1;

const STRATEGIES: [(AssignmentStrategy, &str); 2] =
    [(AssignmentStrategy::Stable, "Stable"), (AssignmentStrategy::Contiguous, "Contiguous")];

pub async fn run(bench: &mut Bench) -> Result<()> {
    let progress = Progress::spin(&format!("dealing {JOBS} jobs to {WORKERS} workers"));
    // On a thread that may be kept busy.
    let times = tokio::task::spawn_blocking(compare).await??;
    progress.end();
    let title = format!("{JOBS} jobs, {WORKERS} workers");
    let [deal, again, sort] = [&times.deal, &times.again, &times.sort].map(|times| median(times));
    bench.note(&format!("{title}: sort of the names"), sort, "ms");
    bench.note(&format!("{title}: sort and deal"), deal, "ms");
    bench.claim("  in times of the sort", deal / sort, "", Bound::AtMost(SORTS));
    bench.note(&format!("{title}: sort and deal for one worker more"), again, "ms");
    bench.claim("  in times of the sort", again / sort, "", Bound::AtMost(SORTS));
    bench.note(&format!("{title}: plan of a pool that is as it should be"), median(&times.plan), "ms");
    bench.claim("  memory at its highest", times.memory, "MiB", Bound::Below(MEMORY));
    let progress = Progress::spin("counting moves");
    for (name, over_least) in tokio::task::spawn_blocking(moves).await? {
        bench.claim(&format!("{title}: {name}, moves over the least"), over_least, "", Bound::AtMost(MOVES));
    }
    progress.end();
    let progress = Progress::spin("dealing pools of all sizes");
    for (name, time) in tokio::task::spawn_blocking(table).await? {
        bench.note(&name, time, "ms");
    }
    progress.end();
    Ok(())
}

/// Names of 15 to 40 characters, in no order.
fn names(count: usize) -> Vec<String> {
    let events = ["new", "updated", "removed", "archived-to-cold-storage"];
    let mut random = fastrand::Rng::with_seed(1);
    let mut names: Vec<String> = (0..count).map(|id| format!("stream:{id:05}:{}", events[random.usize(..4)])).collect();
    random.shuffle(&mut names);
    names
}

fn jobs(names: &[String]) -> Vec<Job> {
    names.iter().map(|name| Job { name: name.as_str().into(), weight: 1, dedicated: false }).collect()
}

/// As `deal` wants it.
fn sorted(mut jobs: Vec<Job>) -> Vec<Job> {
    jobs.sort_unstable();
    jobs
}

fn slots(count: u32) -> Vec<u32> {
    (0..count).collect()
}

fn rules(strategy: AssignmentStrategy) -> DealRules {
    DealRules { strategy, ..DealRules::default() }
}

/// Milliseconds of each round, and the memory of the first one.
struct Times {
    deal: Vec<f64>,
    /// The deal for one worker more, from the lists of the one before.
    again: Vec<f64>,
    plan: Vec<f64>,
    sort: Vec<f64>,
    memory: f64,
}

fn compare() -> Result<Times> {
    let names = names(JOBS);
    let workers = slots(WORKERS);
    let mut times = Times { deal: Vec::new(), again: Vec::new(), plan: Vec::new(), sort: Vec::new(), memory: 0.0 };
    for round in 0..ROUNDS {
        let jobs = jobs(&names);
        let began = Instant::now();
        let jobs = sorted(jobs);
        let dealt = deal(&jobs, &workers, DealRules::default());
        times.deal.push(millis(began.elapsed()));
        if round == 0 {
            // Before the sort, which needs the names twice.
            times.memory = highest_memory()?;
        }
        let unsorted = self::jobs(&names);
        let began = Instant::now();
        let jobs_again = sorted(unsorted);
        let more = deal_from(&jobs_again, &slots(WORKERS + 1), DealRules::default(), &dealt.owner);
        times.again.push(millis(began.elapsed()));
        drop((jobs_again, more));
        times.plan.push(Settled::of(&jobs, &dealt).plan());
        drop((jobs, dealt));
        let mut names = names.clone();
        let began = Instant::now();
        names.sort();
        times.sort.push(millis(began.elapsed()));
    }
    Ok(times)
}

/// The most memory of this process so far, in MiB.
fn highest_memory() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).context("no VmHWM in /proc/self/status")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no figure of VmHWM")?.parse()?;
    Ok(kib / 1024.0)
}

/// Moves by one worker more and one less, in times of the least number.
fn moves() -> Vec<(String, f64)> {
    let jobs = sorted(jobs(&names(JOBS)));
    let mut moves = Vec::new();
    for (strategy, name) in STRATEGIES {
        let [less, now, more] =
            [WORKERS - 1, WORKERS, WORKERS + 1].map(|workers| deal(&jobs, &slots(workers), rules(strategy)).owner);
        let moved = |to: &[Option<u32>]| number(now.iter().zip(to).filter(|(now, to)| now != to).count());
        moves.push((format!("{name}, a worker more"), moved(&more) / least(strategy, WORKERS)));
        moves.push((format!("{name}, a worker less"), moved(&less) / least(strategy, WORKERS - 1)));
    }
    moves
}

/// The least number of moves between so many workers and one more.
fn least(strategy: AssignmentStrategy, workers: u32) -> f64 {
    let share = match strategy {
        // What the new worker must have.
        AssignmentStrategy::Stable => 1.0 / f64::from(workers + 1),
        // The old block i is [i / n, (i + 1) / n) of the line. It shares most with the new block i or i + 1.
        AssignmentStrategy::Contiguous => {
            let kept: u32 = (0..workers).map(|block| (workers - block).max(block + 1)).sum();
            1.0 - f64::from(kept) / f64::from(workers * (workers + 1))
        }
    };
    (number(JOBS) * share).floor()
}

/// The time of deals of sorted jobs in milliseconds, by size.
fn table() -> Vec<(String, f64)> {
    let mut table = Vec::new();
    for count in [1_000, 10_000, 100_000, 1_000_000] {
        let jobs = sorted(jobs(&names(count)));
        for workers in [10, 100, 1_000, 5_000_u32] {
            if count < workers as usize {
                continue;
            }
            for (strategy, name) in STRATEGIES {
                let time = |_| {
                    let began = Instant::now();
                    std::hint::black_box(deal(&jobs, &slots(workers), rules(strategy)));
                    millis(began.elapsed())
                };
                let times: Vec<f64> = (0..3).map(time).collect();
                table.push((format!("{count} jobs, {workers} workers: {name}"), median(&times)));
            }
        }
    }
    table
}
