//! Compares a scheduler outside the lab with the lab's model of it, decision by decision, on the same input.
//!
//! The outside scheduler decides, and the run goes on from its choice. So a difference is one decision, not a run that
//! went another way. Knows nothing of the outside scheduler.

use std::fmt::{self, Write};

use anyhow::Result;

use crate::cluster::{LabNode, Placer, PodRequest};

/// Part of a point by which the node that an outside scheduler chose is ahead: it may choose at random among nodes with
/// equal points, which are whole numbers.
pub const CHOSEN: f64 = 0.5;

/// Points are whole numbers up to the error of a float.
const TOLERANCE: f64 = 1e-6;

/// Points of a candidate. None: the pod must not run there.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidatePoints {
    pub node: usize,
    /// Points of the outside scheduler, without [`CHOSEN`].
    pub outside: Option<f64>,
    pub lab: Option<f64>,
}

/// Known reason for a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceCause {
    /// During a burst, a policy leaves only the first of those equally good nodes open that have room for one more pod,
    /// and kube-scheduler lists nodes in no fixed order. With another order of the candidates, the lab decides alike.
    CandidateOrder,
    /// Pods of a step are one burst for the lab, but outside, more than a second may pass between them, and then a
    /// policy leaves more nodes open. Some seconds later, the lab decides alike.
    SlowBurst,
}

/// Seconds after which nobody takes two pods for a burst.
const AFTER_BURST: i64 = 2;

/// A decision of the outside scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedDecision {
    /// Index of the pod.
    pub pod: usize,
    /// Seconds since the begin.
    pub at: i64,
    /// Node that the outside scheduler chose; None: the pod waits.
    pub chosen: Option<usize>,
    pub candidates: Vec<CandidatePoints>,
    /// Reason if the lab decides otherwise or for other reasons; None if it is not known.
    pub cause: Option<DifferenceCause>,
    /// The outside scheduler's report about its decision.
    pub report: String,
}

impl ComparedDecision {
    /// Whether the lab could have decided alike: the node has the most points, or no node passes.
    pub fn agrees(&self) -> bool {
        let most = self.candidates.iter().filter_map(|candidate| candidate.lab).reduce(f64::max);
        match (self.chosen, most) {
            (None, None) => true,
            (Some(node), Some(most)) => self.lab_points(node).is_some_and(|points| points > most - TOLERANCE),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Whether both reject the same nodes, and rate the others alike: their points differ by the same number, that of
    /// plugins that rate all nodes alike.
    pub fn has_equal_points(&self) -> bool {
        let mut differences = Vec::new();
        for candidate in &self.candidates {
            match (candidate.outside, candidate.lab) {
                (Some(outside), Some(lab)) => differences.push(outside - lab),
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => return false,
            }
        }
        differences.windows(2).all(|pair| (pair[0] - pair[1]).abs() < TOLERANCE)
    }

    /// Whether the lab decides otherwise, or for other reasons, and nobody knows why.
    pub fn is_unexplained(&self) -> bool {
        self.cause.is_none() && !(self.agrees() && self.has_equal_points())
    }

    fn lab_points(&self, node: usize) -> Option<f64> {
        self.candidates.iter().find(|candidate| candidate.node == node)?.lab
    }

    /// Describes the decision: the choice, the points of both for each candidate, and the scheduler's report.
    pub fn describe(&self) -> String {
        let words = |points: Option<f64>| points.map_or_else(|| "rejected".to_owned(), |points| points.to_string());
        let chosen = self.chosen.map_or_else(|| "no node".to_owned(), |node| format!("node {node}"));
        let mut text = format!("pod {} at {} s: {chosen}", self.pod, self.at);
        for CandidatePoints { node, outside, lab } in &self.candidates {
            let _ = write!(text, "\n  node {node}: {}, by the lab {}", words(*outside), words(*lab));
        }
        for line in self.report.lines() {
            let _ = write!(text, "\n  {line}");
        }
        text
    }
}

/// Numbers of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    pub decisions: usize,
    /// Decisions that the pod must wait.
    pub waits: usize,
    /// Decisions that the lab could have made.
    pub same_choices: usize,
    /// Decisions with equal points of all candidates.
    pub same_points: usize,
    /// Differences by [`DifferenceCause::CandidateOrder`] and [`DifferenceCause::SlowBurst`].
    pub by_order: usize,
    pub by_burst: usize,
    pub unexplained: usize,
}

impl Agreement {
    pub fn count(decisions: &[ComparedDecision]) -> Self {
        let count = |counts: fn(&ComparedDecision) -> bool| decisions.iter().filter(|one| counts(one)).count();
        Self {
            decisions: decisions.len(),
            waits: count(|decision| decision.chosen.is_none()),
            same_choices: count(ComparedDecision::agrees),
            same_points: count(ComparedDecision::has_equal_points),
            by_order: count(|decision| decision.cause == Some(DifferenceCause::CandidateOrder)),
            by_burst: count(|decision| decision.cause == Some(DifferenceCause::SlowBurst)),
            unexplained: count(ComparedDecision::is_unexplained),
        }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decisions, waits, same_choices, same_points, by_order, by_burst, unexplained } = self;
        write!(f, "{decisions} decisions ({waits} to wait), {same_choices} alike, {same_points} with equal points; ")?;
        write!(f, "differences: {by_order} by the order of candidates, {by_burst} by a slow burst, ")?;
        write!(f, "{unexplained} unexplained")
    }
}

/// An outside scheduler whose decisions are compared with those of the lab.
pub struct ComparedPlacer<'a> {
    outside: &'a mut dyn Placer,
    lab: &'a mut dyn Placer,
    pub decisions: Vec<ComparedDecision>,
}

impl<'a> ComparedPlacer<'a> {
    /// `outside` adds [`CHOSEN`] to the points of its choice.
    pub fn new(outside: &'a mut dyn Placer, lab: &'a mut dyn Placer) -> Self {
        Self { outside, lab, decisions: Vec::new() }
    }

    /// Reason of a difference: the lab agrees in another situation.
    fn cause(
        &mut self,
        decision: &ComparedDecision,
        pod: &PodRequest,
        nodes: &[LabNode],
    ) -> Result<Option<DifferenceCause>> {
        let now = decision.at;
        if self.agrees_in_order(decision, pod, nodes, now)? {
            return Ok(Some(DifferenceCause::CandidateOrder));
        }
        let is_slow = self.agrees_in_order(decision, pod, nodes, now + AFTER_BURST)?;
        // The pods after it must see this one at its own time.
        self.agrees_in_order(decision, pod, nodes, now)?;
        Ok(is_slow.then_some(DifferenceCause::SlowBurst))
    }

    /// Whether the lab agrees at this time if the nodes that pass by the outside scheduler come first.
    fn agrees_in_order(
        &mut self,
        decision: &ComparedDecision,
        pod: &PodRequest,
        nodes: &[LabNode],
        now: i64,
    ) -> Result<bool> {
        let mut candidates = decision.candidates.clone();
        candidates.sort_by_key(|candidate| candidate.outside.is_none());
        let order: Vec<usize> = candidates.iter().map(|candidate| candidate.node).collect();
        let points = self.lab.points(pod, &order, nodes, now)?;
        candidates.iter_mut().zip(points).for_each(|(candidate, points)| candidate.lab = points);
        let reordered = ComparedDecision { candidates, ..decision.clone() };
        Ok(reordered.agrees() && reordered.has_equal_points())
    }
}

impl Placer for ComparedPlacer<'_> {
    fn points(
        &mut self,
        pod: &PodRequest,
        candidates: &[usize],
        nodes: &[LabNode],
        now: i64,
    ) -> Result<Vec<Option<f64>>> {
        let lab = self.lab.points(pod, candidates, nodes, now)?;
        let outside = self.outside.points(pod, candidates, nodes, now)?;
        let is_chosen = |points: &Option<f64>| points.is_some_and(|points| points.fract() > 0.0);
        let chosen = candidates.iter().zip(&outside).find(|(_, points)| is_chosen(points)).map(|(node, _)| *node);
        let compared = candidates.iter().zip(&outside).zip(lab).map(|((node, outside), lab)| CandidatePoints {
            node: *node,
            outside: outside.map(f64::floor),
            lab,
        });
        let (candidates, report) = (compared.collect(), self.outside.report());
        let mut decision = ComparedDecision { pod: pod.pod, at: now, chosen, candidates, cause: None, report };
        if decision.is_unexplained() {
            decision.cause = self.cause(&decision, pod, nodes)?;
        }
        self.decisions.push(decision);
        Ok(outside)
    }

    fn sampled(&mut self, nodes: &[LabNode], inlets: &[f64], now: i64) -> Result<()> {
        self.lab.sampled(nodes, inlets, now)?;
        self.outside.sampled(nodes, inlets, now)
    }

    fn bound(&mut self, pod: &PodRequest, node: usize, now: i64) -> Result<()> {
        self.lab.bound(pod, node, now)?;
        self.outside.bound(pod, node, now)
    }

    fn started(&mut self, pod: &PodRequest, node: usize, bound: i64) -> Result<()> {
        self.lab.started(pod, node, bound)?;
        self.outside.started(pod, node, bound)
    }

    fn ended(&mut self, pod: &PodRequest) -> Result<()> {
        self.lab.ended(pod)?;
        self.outside.ended(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::node;

    const POD: PodRequest = PodRequest { pod: 3, service: None, cpu: 1.0, memory: 1.0 };

    /// Gives these points, and records the calls.
    #[derive(Default)]
    struct Fake {
        points: Vec<Option<f64>>,
        /// Rejects all candidates but the first until this time.
        opens_first_until: i64,
        calls: Vec<&'static str>,
    }

    impl Placer for Fake {
        fn points(&mut self, _: &PodRequest, all: &[usize], _: &[LabNode], now: i64) -> Result<Vec<Option<f64>>> {
            let opens_all = now >= self.opens_first_until;
            let points = |node: &usize| self.points[node - 4].filter(|_| opens_all || *node == all[0]);
            Ok(all.iter().map(points).collect())
        }
        fn sampled(&mut self, _: &[LabNode], _: &[f64], _: i64) -> Result<()> {
            self.calls.push("sampled");
            Ok(())
        }
        fn bound(&mut self, _: &PodRequest, _: usize, _: i64) -> Result<()> {
            self.calls.push("bound");
            Ok(())
        }
        fn started(&mut self, _: &PodRequest, _: usize, _: i64) -> Result<()> {
            self.calls.push("started");
            Ok(())
        }
        fn ended(&mut self, _: &PodRequest) -> Result<()> {
            self.calls.push("ended");
            Ok(())
        }
        fn report(&self) -> String {
            "as reported".to_owned()
        }
    }

    /// The decision about nodes 4, 5 and 6.
    fn decision<const N: usize>(outside: [Option<f64>; N], lab: [Option<f64>; N]) -> ComparedDecision {
        let mut outside = Fake { points: outside.to_vec(), ..Fake::default() };
        decide(&mut outside, Fake { points: lab.to_vec(), ..Fake::default() })
    }

    fn decide(outside: &mut Fake, mut lab: Fake) -> ComparedDecision {
        let expected = outside.points.clone();
        let mut compared = ComparedPlacer::new(outside, &mut lab);
        let points = compared.points(&POD, &[4, 5, 6][..expected.len()], &[], 60).unwrap();
        assert_eq!(points, expected, "the run goes on from the choice of the outside scheduler");
        compared.decisions.remove(0)
    }

    #[test]
    fn a_choice_among_the_best_nodes_agrees() {
        let chosen = decision([Some(390.0), Some(390.5), Some(380.0)], [Some(190.0), Some(190.0), Some(180.0)]);
        assert_eq!(chosen.chosen, Some(5));
        assert!(chosen.agrees() && chosen.has_equal_points());
        let chosen = decision([Some(390.0), Some(390.5), Some(380.0)], [Some(191.0), Some(190.0), Some(180.0)]);
        assert!(!chosen.agrees() && !chosen.has_equal_points());
        let chosen = decision([Some(389.0), Some(390.5), Some(380.0)], [Some(190.0), Some(190.0), Some(180.0)]);
        assert!(chosen.agrees() && !chosen.has_equal_points(), "the same choice for other reasons");
    }

    #[test]
    fn rejections_must_be_the_same() {
        let alike = decision([None, Some(0.5), None], [None, Some(7.0), None]);
        assert!(alike.agrees() && alike.has_equal_points(), "the only node needs no points");
        let closed = decision([None, None, None], [None, None, None]);
        assert_eq!(closed.chosen, None);
        assert!(closed.agrees() && closed.has_equal_points());
        let late = decision([None, None, None], [None, Some(7.0), None]);
        assert!(!late.agrees() && !late.has_equal_points());
        let early = decision([Some(0.5), None, None], [None, None, None]);
        assert!(!early.agrees() && !early.has_equal_points());
        let other = decision([Some(0.5), None, None], [None, Some(7.0), None]);
        assert!(!other.agrees() && other.is_unexplained(), "the lab rejects the node");
    }

    #[test]
    fn causes_of_differences_are_found() {
        let points = vec![Some(7.0), Some(7.0)];
        let lab = |opens_first_until| Fake { points: points.clone(), opens_first_until, ..Fake::default() };
        let other = decide(&mut Fake { points: vec![None, Some(0.5)], ..Fake::default() }, lab(i64::MAX));
        assert!(!other.agrees());
        assert_eq!(other.cause, Some(DifferenceCause::CandidateOrder));
        let both = decide(&mut Fake { points: vec![Some(7.0), Some(7.5)], ..Fake::default() }, lab(i64::MAX));
        assert_eq!(both.cause, None, "no order makes the lab open both");
        let slow = decide(&mut Fake { points: vec![Some(7.0), Some(7.5)], ..Fake::default() }, lab(61));
        assert_eq!(slow.cause, Some(DifferenceCause::SlowBurst));
        let alike = decide(&mut Fake { points: vec![Some(0.5), None], ..Fake::default() }, lab(i64::MAX));
        let counted = Agreement::count(&[other, both, slow, alike]).to_string();
        let expected = "4 decisions (0 to wait), 1 alike, 1 with equal points; differences: 1 by the order of \
            candidates, 1 by a slow burst, 1 unexplained";
        assert_eq!(counted, expected);
    }

    #[test]
    fn a_description_has_the_points_of_both() {
        let text = decision([Some(390.5), None], [Some(190.0), Some(200.0)]).describe();
        let expected = "pod 3 at 60 s: node 4\n  node 4: 390, by the lab 190\n  \
            node 5: rejected, by the lab 200\n  as reported";
        assert_eq!(text, expected);
    }

    #[test]
    fn both_see_all_events() {
        let (mut outside, mut lab) = (Fake::default(), Fake::default());
        let mut compared = ComparedPlacer::new(&mut outside, &mut lab);
        compared.sampled(&[node(1.0)], &[20.0], 0).unwrap();
        compared.bound(&POD, 0, 0).unwrap();
        compared.started(&POD, 0, 0).unwrap();
        compared.ended(&POD).unwrap();
        assert_eq!(outside.calls, ["sampled", "bound", "started", "ended"]);
        assert_eq!(lab.calls, outside.calls);
    }
}
