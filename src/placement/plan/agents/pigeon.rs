//! The agent `pigeon` of a policy. The formulas are in `placement::pigeon`.

use super::{Agent, AgentError, explained};
use crate::pigeon::{LearnedDemand, Objective, PigeonCluster, PigeonNode, PigeonRules, Row, priorities};
use crate::question::{Opinion, PlacementQuestion};
use crate::record::NodeRecord;
use crate::record::demand;
use ganglion_api::placement_policy::agents::{ConsolidateBy, PigeonAgent, PigeonObjective, PigeonResourceName};
use ganglion_api::placement_policy::reasons::PolicyReason;

#[derive(Debug)]
struct Pigeon {
    rules: PigeonRules,
    /// Index in `record::RESOURCES` of each of the policy's resources.
    columns: Vec<usize>,
    /// Whether `columns` is 0, 1, 2 and so on. Rows need no reordering then, since columns beyond the last one are not
    /// read.
    first: bool,
}

pub fn compile(options: &PigeonAgent) -> Result<Box<dyn Agent>, AgentError> {
    let default = [PigeonResourceName::Cpu, PigeonResourceName::Memory];
    let resources = options.resources.as_deref().unwrap_or(&default);
    let prime = options.prime.map_or(Some(0), |prime| resources.iter().position(|one| *one == prime));
    let Some(prime) = prime.filter(|_| !resources.is_empty()) else {
        return Err((PolicyReason::SpecInvalid, "prime must be one of resources".to_owned()));
    };
    let objective = match (options.objective.unwrap_or_default(), options.consolidate_by.unwrap_or_default()) {
        (PigeonObjective::AdaptiveBinPacking, _) => Objective::AdaptiveBinPacking,
        (PigeonObjective::LoadBalance, _) => Objective::LoadBalance,
        (PigeonObjective::Consolidate, ConsolidateBy::Scaled) => Objective::Consolidate,
        (PigeonObjective::Consolidate, ConsolidateBy::Deviation) => Objective::ConsolidateByDeviation,
    };
    let rules = PigeonRules { objective, resources: resources.len(), prime };
    let columns: Vec<usize> = resources.iter().map(|resource| column(*resource)).collect();
    let first = columns.iter().copied().eq(0..columns.len());
    Ok(Box::new(Pigeon { rules, columns, first }))
}

/// Index of a resource in `record::RESOURCES`.
fn column(resource: PigeonResourceName) -> usize {
    match resource {
        PigeonResourceName::Cpu => 0,
        PigeonResourceName::Memory => 1,
        PigeonResourceName::Pods => 2,
        PigeonResourceName::Gpu => 3,
        PigeonResourceName::EphemeralStorage => 4,
    }
}

impl Pigeon {
    /// Selects the columns of the policy's resources.
    fn columns(&self, all: &Row) -> Row {
        let mut some = Row::default();
        some.iter_mut().zip(&self.columns).for_each(|(amount, column)| *amount = all[*column]);
        some
    }

    fn node(&self, all: &PigeonNode) -> PigeonNode {
        if self.first {
            return *all;
        }
        let (capacity, requested) = (self.columns(&all.capacity), self.columns(&all.requested));
        PigeonNode { capacity, requested, counted: all.counted }
    }

    fn learned(&self, all: &LearnedDemand) -> LearnedDemand {
        let mut some =
            LearnedDemand { arrivals: all.arrivals, mean: self.columns(&all.mean), ..LearnedDemand::default() };
        for (row, column) in some.covariance.iter_mut().zip(&self.columns) {
            *row = self.columns(&all.covariance[*column]);
        }
        some
    }

    /// Objective with the pod on each candidate; lower is better. None if the pod does not fit.
    fn objectives(&self, question: &PlacementQuestion<'_>, candidates: &[Option<&NodeRecord>]) -> Vec<Option<f64>> {
        let inventory = question.inventory;
        let current = |record: &NodeRecord| match question.likely(record) {
            load if load.pods == 0 => record.row,
            load => record.row_with(&load),
        };
        let rows = inventory.rows().iter().enumerate().map(|(place, row)| {
            let record = inventory.at(place).filter(|_| inventory.answered.is_expected(place));
            self.node(&record.map_or(*row, current))
        });
        let cluster = PigeonCluster::new(self.rules, rows);
        let placement = cluster.place(self.columns(&demand(question.pod.requests)), &self.learned(question.learned));
        candidates.iter().map(|record| placement.objective(&self.node(&current((*record)?)))).collect()
    }
}

impl Agent for Pigeon {
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        if question.candidates.iter().all(Option::is_none) {
            return Opinion::Abstains("no candidate is in the cache yet".to_owned());
        }
        Opinion::Scores(priorities(&self.objectives(question, question.candidates)))
    }

    fn explain(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        explained(question, at, |record| match self.objectives(question, &[Some(record)])[..] {
            [Some(objective)] => format!("objective {objective:.6}, lower is better"),
            _ => "the pod does not fit".to_owned(),
        })
    }

    fn reads_demand(&self) -> bool {
        true
    }
}
