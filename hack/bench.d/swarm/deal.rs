//! The assignment of jobs alone: its time relative to a sort of the same names on the same core, its memory, its moves,
//! and its time by size.

use std::time::Instant;

use anyhow::{Context, Result};
use ganglion_api::swarm_pool::AssignmentStrategy;
use ganglion_pools_plan::Job;
use ganglion_pools_plan::assign::{AssignmentRules, assign, reassign};

use super::settled::Settled;
use crate::frame::{Bench, Bound, Progress, median, millis, number};

pub const PART: &str = "deal";

const JOBS: usize = 1_000_000;
const WORKERS: u32 = 1_000;

/// Rounds of assignment and sort, in turns.
const ROUNDS: usize = 5;

/// Maximum time of an assignment, relative to the sort. The assignment includes a sort.
const SORTS: f64 = 6.0;

/// Maximum memory of the process, in MiB: names, jobs and the assignment.
const MEMORY: f64 = 300.0;

/// Maximum number of moves, relative to the minimum.
const MOVES: f64 = 1.1;

const STRATEGIES: [(AssignmentStrategy, &str); 2] =
    [(AssignmentStrategy::Stable, "Stable"), (AssignmentStrategy::Contiguous, "Contiguous")];

pub async fn run(bench: &mut Bench) -> Result<()> {
    let progress = Progress::spin(&format!("assigning {JOBS} jobs to {WORKERS} workers"));
    // Runs on a thread that may block.
    let times = tokio::task::spawn_blocking(compare).await??;
    progress.end();
    let title = format!("{JOBS} jobs, {WORKERS} workers");
    let [deal, again, sort] = [&times.deal, &times.again, &times.sort].map(|times| median(times));
    bench.note(&format!("{title}: sort of the names"), sort, "ms");
    bench.note(&format!("{title}: sort and assignment"), deal, "ms");
    bench.claim("  relative to the sort", deal / sort, "", Bound::AtMost(SORTS));
    bench.note(&format!("{title}: sort and assignment for one worker more"), again, "ms");
    bench.claim("  relative to the sort", again / sort, "", Bound::AtMost(SORTS));
    bench.note(&format!("{title}: plan of a converged pool"), median(&times.plan), "ms");
    bench.claim("  memory at its highest", times.memory, "MiB", Bound::Below(MEMORY));
    let progress = Progress::spin("counting moves");
    for (name, over_least) in tokio::task::spawn_blocking(moves).await? {
        bench.claim(&format!("{title}: {name}, moves relative to the minimum"), over_least, "", Bound::AtMost(MOVES));
    }
    progress.end();
    let progress = Progress::spin("assigning jobs of pools of all sizes");
    for (name, time) in tokio::task::spawn_blocking(table).await? {
        bench.note(&name, time, "ms");
    }
    progress.end();
    Ok(())
}

/// Names of 15 to 40 characters, in random order.
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

/// Sorts jobs, as `deal` requires.
fn sorted(mut jobs: Vec<Job>) -> Vec<Job> {
    jobs.sort_unstable();
    jobs
}

fn slots(count: u32) -> Vec<u32> {
    (0..count).collect()
}

fn rules(strategy: AssignmentStrategy) -> AssignmentRules {
    AssignmentRules { strategy, ..AssignmentRules::default() }
}

/// Milliseconds of each round, and memory of the first one.
struct Times {
    deal: Vec<f64>,
    /// Assignment to one worker more, starting from the previous one.
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
        let dealt = assign(&jobs, &workers, AssignmentRules::default());
        times.deal.push(millis(began.elapsed()));
        if round == 0 {
            // Measured before the sort, which needs the names twice.
            times.memory = highest_memory()?;
        }
        let unsorted = self::jobs(&names);
        let began = Instant::now();
        let jobs_again = sorted(unsorted);
        let more = reassign(&jobs_again, &slots(WORKERS + 1), AssignmentRules::default(), &dealt.owner);
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

/// Peak memory of this process, in MiB.
fn highest_memory() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).context("no VmHWM in /proc/self/status")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no figure of VmHWM")?.parse()?;
    Ok(kib / 1024.0)
}

/// Moves caused by one worker more and by one worker less, relative to the minimum.
fn moves() -> Vec<(String, f64)> {
    let jobs = sorted(jobs(&names(JOBS)));
    let mut moves = Vec::new();
    for (strategy, name) in STRATEGIES {
        let [less, now, more] =
            [WORKERS - 1, WORKERS, WORKERS + 1].map(|workers| assign(&jobs, &slots(workers), rules(strategy)).owner);
        let moved = |to: &[Option<u32>]| number(now.iter().zip(to).filter(|(now, to)| now != to).count());
        moves.push((format!("{name}, a worker more"), moved(&more) / least(strategy, WORKERS)));
        moves.push((format!("{name}, a worker less"), moved(&less) / least(strategy, WORKERS - 1)));
    }
    moves
}

/// Minimum number of moves from this number of workers to one more.
fn least(strategy: AssignmentStrategy, workers: u32) -> f64 {
    let share = match strategy {
        // Share of the new worker.
        AssignmentStrategy::Stable => 1.0 / f64::from(workers + 1),
        // Old block i is [i / n, (i + 1) / n) of the sequence. Its largest overlap is with new block i or i + 1.
        AssignmentStrategy::Contiguous => {
            let kept: u32 = (0..workers).map(|block| (workers - block).max(block + 1)).sum();
            1.0 - f64::from(kept) / f64::from(workers * (workers + 1))
        }
    };
    (number(JOBS) * share).floor()
}

/// Time to assign sorted jobs, in milliseconds, by size.
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
                    std::hint::black_box(assign(&jobs, &slots(workers), rules(strategy)));
                    millis(began.elapsed())
                };
                let times: Vec<f64> = (0..3).map(time).collect();
                table.push((format!("{count} jobs, {workers} workers: {name}"), median(&times)));
            }
        }
    }
    table
}
