//! `hack/bench worth`: what a cluster gains and loses with Ganglion, on recorded or generated workloads.
//!
//! The lab (`tests/lab`) runs all contenders on three fleets in virtual time; `WORTH.md` has the method and results.
//! Losses are printed before anything else. The goals are bounds of figures; those that do not hold are results, too.
//! The part `plane` checks the lab on a control plane.

mod plane;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use lab::cluster::MeasureKind;
use lab::contender::Contender;
use lab::convert::TraceFormat;
use lab::fleet::ServerFleet;
use lab::generate::WorkloadShape;
use lab::ground::{FleetResult, SeededWork, VirtualGround};
use lab::report;

use crate::frame::{Bench, Bound, Progress};

/// Workloads of a run.
const QUICK: WorkloadSet = WorkloadSet { loads: &[0.45], hours: 8.0, seeds: 5 };
const FULL: WorkloadSet = WorkloadSet { loads: &[0.4, 0.5, 0.6], hours: 24.0, seeds: 10 };

/// Seeds of a fleet with several sites, relative to others: with few small servers, seeds differ much, and a run is
/// short.
const SEEDS_OF_SITES: u64 = 4;

/// Seconds at the begin of a workload that do not count.
const WARM_UP: i64 = 1800;

/// Maximum energy per work on the mixed fleet by placement alone, and with moves, relative to the baseline.
const ENERGY: f64 = 0.92;
const ENERGY_WITH_MOVES: f64 = 0.85;

/// Maximum overload with `safe`, relative to the baseline.
const OVERLOAD: f64 = 0.5;

/// Options of this bench.
#[derive(clap::Args, Debug)]
pub struct WorthOptions {
    /// Worth: more loads, longer workloads and more seeds.
    #[arg(long)]
    full: bool,
    /// Worth: a directory with a trace, instead of generated workloads.
    #[arg(long, value_name = "DIR", conflicts_with = "full")]
    trace: Option<PathBuf>,
    /// Format of that trace: lab, alibaba-2018, opendc or planetlab.
    #[arg(long, value_name = "NAME", default_value = "lab", requires = "trace", value_parser = TraceFormat::from_name)]
    format: TraceFormat,
    /// Worth: directory of the picture and of all figures.
    #[arg(long, value_name = "DIR", default_value = "target/worth")]
    out: PathBuf,
}

/// Generated workloads.
struct WorkloadSet {
    /// Usage relative to the threads of a fleet.
    loads: &'static [f64],
    hours: f64,
    seeds: u64,
}

/// Workloads of a fleet, with words that name them.
struct NamedWorks {
    name: String,
    fleet: ServerFleet,
    works: Vec<SeededWork>,
}

/// Runs all contenders on the fleets whose names the user selects. Compares decisions with a control plane if the user
/// names this part, or with `--full`.
pub async fn run(bench: &mut Bench, options: &WorthOptions) -> Result<()> {
    let fleets: Vec<ServerFleet> = ServerFleet::all()?.into_iter().filter(|fleet| bench.wants(&fleet.name)).collect();
    let sets = match &options.trace {
        Some(directory) => recorded(options.format, directory, fleets)?,
        None => generated(if options.full { &FULL } else { &QUICK }, &fleets),
    };
    if !sets.is_empty() {
        // Runs on threads that may block.
        let results = tokio::task::spawn_blocking(move || measure(sets)).await??;
        show(&results, &options.out)?;
        goals(bench, &results);
    }
    if options.full || bench.names(plane::PART) {
        plane::run(bench).await?;
    }
    Ok(())
}

/// The same trace on each fleet; seeds choose among equal nodes.
fn recorded(format: TraceFormat, directory: &Path, fleets: Vec<ServerFleet>) -> Result<Vec<NamedWorks>> {
    let trace = format.read(directory).with_context(|| format!("{} as {}", directory.display(), format.name()))?;
    let works = |_: &ServerFleet| (1..=QUICK.seeds).map(|seed| SeededWork { seed, trace: trace.clone() }).collect();
    Ok(fleets.into_iter().map(|fleet| NamedWorks { name: fleet.name.clone(), works: works(&fleet), fleet }).collect())
}

fn generated(set: &WorkloadSet, fleets: &[ServerFleet]) -> Vec<NamedWorks> {
    let mut named = Vec::new();
    for fleet in fleets {
        for load in set.loads {
            let shape = WorkloadShape { load: *load, hours: set.hours };
            let work = |seed| SeededWork { seed, trace: shape.generate(fleet, seed) };
            let seeds = if fleet.sites() > 1 { SEEDS_OF_SITES * set.seeds } else { set.seeds };
            let works = (1..=seeds).map(work).collect();
            let name = format!("{} at {:.0} %", fleet.name, load * 100.0);
            named.push(NamedWorks { name, fleet: fleet.clone(), works });
        }
    }
    named
}

fn measure(sets: Vec<NamedWorks>) -> Result<Vec<FleetResult>> {
    let contenders = Contender::all();
    let runs: usize = sets.iter().map(|set| set.works.len() * contenders.len()).sum();
    let progress = Progress::count("runs of workloads", runs);
    let done = AtomicUsize::new(0);
    let count = || progress.at(done.fetch_add(1, Ordering::Relaxed) + 1);
    let ground = VirtualGround { warm_up: WARM_UP };
    let mut results = Vec::new();
    for NamedWorks { name, fleet, works } in sets {
        let measured = FleetResult::measure(ground, &fleet, &works, &contenders, &count)?;
        results.push(FleetResult { fleet: name, ..measured });
    }
    progress.end();
    Ok(results)
}

/// Prints the losses and the table, and writes the files.
fn show(results: &[FleetResult], out: &Path) -> Result<()> {
    let losses = report::losses(results);
    println!("Ours is worse than the baseline by more than 2 % in {} figures:", losses.len());
    losses.iter().for_each(|loss| println!("  {loss}"));
    println!("{}", report::table(results));
    println!("Changes in parentheses may be chance: their interval has 0.");
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    for (name, text) in [("worth.svg", report::picture(results)?), ("worth.csv", report::figures(results))] {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Adds the goals, with the homogeneous fleet beside the mixed one.
fn goals(bench: &mut Bench, results: &[FleetResult]) {
    let relative =
        |result: &FleetResult, contender: &str, kind| result.change(contender, kind).map(|change| 1.0 + change.mean);
    for result in results {
        let fleet = &result.fleet;
        for (words, kind) in [
            ("energy per work", MeasureKind::EnergyPerWork),
            ("the same, empty nodes off", MeasureKind::EnergyPerWorkSwitched),
        ] {
            for (contender, bound) in [("power + HPA", ENERGY), ("power with moves + HPA", ENERGY_WITH_MOVES)] {
                let Some(value) = relative(result, contender, kind) else { continue };
                let title = format!("{fleet}, {contender}: {words}");
                if fleet.starts_with("mixed") {
                    bench.claim(&title, value, "times", Bound::AtMost(bound));
                } else {
                    bench.note(&title, value, "times");
                }
            }
        }
        if let Some(value) = relative(result, "safe + HPA", MeasureKind::Overload) {
            bench.claim(&format!("{fleet}, safe + HPA: overload"), value, "times", Bound::AtMost(OVERLOAD));
        }
    }
}
