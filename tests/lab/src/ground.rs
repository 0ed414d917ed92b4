//! Runs of contenders in virtual time, and the comparison of all of them.
//!
//! [`crate::plane`] is the second ground: it makes the same decisions on a control plane.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::cluster::{LabRun, MeasureKind, RunMeasures, run};
use crate::contender::{BASELINE, Contender};
use crate::fleet::ServerFleet;
use crate::statistics::{RelativeChange, change, mean};
use crate::trace::WorkTrace;

/// The simulated cluster, in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct VirtualGround {
    /// Seconds at the begin that do not count.
    pub warm_up: i64,
}

impl VirtualGround {
    /// Runs a workload with this contender.
    pub fn run(&self, trace: &WorkTrace, fleet: &ServerFleet, contender: &Contender, seed: u64) -> Result<LabRun> {
        let mut placer = contender.placer(fleet)?;
        run(trace, fleet, placer.as_mut(), contender.settings(seed, self.warm_up))
    }
}

/// Workload of one seed.
pub struct SeededWork {
    pub seed: u64,
    pub trace: WorkTrace,
}

/// Figures of all contenders on one fleet.
pub struct FleetResult {
    pub fleet: String,
    /// Contenders with their figures, one for each seed.
    pub runs: Vec<(Contender, Vec<RunMeasures>)>,
}

impl FleetResult {
    /// Runs all contenders on all workloads, on all processors. `done`: called after each run.
    pub fn measure(
        ground: VirtualGround,
        fleet: &ServerFleet,
        works: &[SeededWork],
        contenders: &[Contender],
        done: &(dyn Fn() + Sync),
    ) -> Result<Self> {
        ensure!(!works.is_empty(), "no workloads");
        let jobs: Vec<(usize, usize)> =
            (0..contenders.len()).flat_map(|contender| (0..works.len()).map(move |work| (contender, work))).collect();
        let results = Mutex::new(vec![None; jobs.len()]);
        let next = AtomicUsize::new(0);
        let worker = || {
            while let Some((position, (contender, work))) = take(&next, &jobs) {
                let SeededWork { seed, trace } = &works[work];
                let contender = &contenders[contender];
                let measured = ground
                    .run(trace, fleet, contender, *seed)
                    .with_context(|| format!("{} on fleet {} with seed {seed}", contender.name, fleet.name))?;
                results.lock().unwrap_or_else(PoisonError::into_inner)[position] = Some(measured.measures);
                done();
            }
            anyhow::Ok(())
        };
        thread::scope(|scope| {
            let number = thread::available_parallelism().map_or(1, usize::from);
            let workers: Vec<_> = (0..number).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().ok().context("a run has panicked")?)
        })?;
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let results: Vec<RunMeasures> = results.into_iter().flatten().collect();
        let runs = contenders.iter().cloned().zip(results.chunks(works.len()).map(<[_]>::to_vec)).collect();
        Ok(Self { fleet: fleet.name.clone(), runs })
    }

    /// Values of a figure for each seed; empty for an unknown contender.
    fn values(&self, contender: &str, kind: MeasureKind) -> Vec<f64> {
        let runs = self.runs.iter().find(|(found, _)| found.name == contender);
        runs.map(|(_, runs)| runs.iter().map(|run| run.get(kind)).collect()).unwrap_or_default()
    }

    /// Mean of a figure over the seeds.
    pub fn mean(&self, contender: &str, kind: MeasureKind) -> f64 {
        mean(&self.values(contender, kind))
    }

    /// Change of a figure relative to the baseline; None if the baseline has nothing of it.
    pub fn change(&self, contender: &str, kind: MeasureKind) -> Option<RelativeChange> {
        change(&self.values(contender, kind), &self.values(BASELINE, kind))
    }
}

/// The next job with its position.
fn take(next: &AtomicUsize, jobs: &[(usize, usize)]) -> Option<(usize, (usize, usize))> {
    let position = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(position).map(|job| (position, *job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::MEASURES;
    use crate::generate::WorkloadShape;

    const SHAPE: WorkloadShape = WorkloadShape { load: 0.45, hours: 0.6 };

    /// All contenders do the same work, but for what their pods waited.
    #[test]
    fn all_contenders_finish_a_small_workload() {
        let fleet = &ServerFleet::all().unwrap()[2];
        let works: Vec<SeededWork> = [1, 2].map(|seed| SeededWork { seed, trace: SHAPE.generate(fleet, seed) }).into();
        let ground = VirtualGround { warm_up: 900 };
        let result = FleetResult::measure(ground, fleet, &works, &Contender::all(), &|| ()).unwrap();
        assert_eq!(result.runs.len(), Contender::all().len());
        for (contender, runs) in &result.runs {
            assert_eq!(runs.len(), 2);
            let work = result.change(&contender.name, MeasureKind::Work).unwrap();
            assert!(work.mean.abs() < 0.1, "{}: {work:?}", contender.name);
            for kind in MEASURES {
                assert!(runs.iter().all(|run| run.get(kind) >= 0.0), "{}: {}", contender.name, kind.name());
            }
        }
        let baseline = result.change(BASELINE, MeasureKind::Energy).unwrap();
        assert!(baseline.mean.abs() < 1e-12);
    }

    #[test]
    fn a_failure_names_the_run() {
        let fleet = &ServerFleet::all().unwrap()[2];
        let works = [SeededWork { seed: 5, trace: SHAPE.generate(fleet, 5) }];
        let ground = VirtualGround { warm_up: 86_400 };
        let contenders = &Contender::all()[..1];
        let problem = FleetResult::measure(ground, fleet, &works, contenders, &|| ()).err().unwrap();
        let problem = format!("{problem:#}");
        assert_eq!(problem, "least allocated on fleet edge with seed 5: the trace ends within the warm-up time");
    }
}
