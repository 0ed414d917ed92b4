//! Levels: the numbers in labels.
//!
//! kube-scheduler adds up the weights of the terms that match a node, divides the sum by the largest sum among the
//! nodes that it scores, and multiplies it by 100 and by the weight of NodeAffinity, 2 by default. Terms whose weights
//! add up to the level of the node (see [`super::TOP`]) so give the best node 200 points. An extender gives 10 × weight
//! points per point of score. To rank nodes as an extender of this weight does, a level falls by `weight / 2 × 1.5` per
//! point of score below that of the best nodes.

use super::TOP;

/// Weight of NodeAffinity in the default configuration of kube-scheduler.
const NODE_AFFINITY: f64 = 2.0;

/// Highest score of a policy.
const BEST_SCORE: f64 = 10.0;

/// A level changes if its exact value differs by at least this, and not by half: otherwise, a score between two levels
/// would change the label each time.
const STEP: f64 = 0.75;

/// Minimum change of the best score that counts. All levels depend on it.
const BEST_STEP: f64 = 0.25;

/// Levels of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelScale {
    /// Weight of an extender that ranks nodes in the same way.
    weight: f64,
    /// Lowest score of the best nodes. They share the best level.
    pub best: f64,
}

impl LevelScale {
    /// `former` is the best score of the pass before; None after a start.
    pub fn new(weight: u32, former: Option<f64>, best: f64) -> Self {
        let kept = former.filter(|former| (former - best).abs() < BEST_STEP);
        Self { weight: f64::from(weight), best: kept.unwrap_or(best) }
    }

    /// Level of a score from 0 to 10, before rounding.
    pub fn exact(self, score: f64) -> f64 {
        let top = f64::from(TOP);
        let below = (self.best - score) / BEST_SCORE * self.weight / NODE_AFFINITY;
        (top - top * below).clamp(0.0, top)
    }

    /// Level of a score, where the node has this one now.
    pub fn level(self, score: f64, current: Option<u8>) -> u8 {
        let exact = self.exact(score);
        if let Some(current) = current.filter(|current| (exact - f64::from(*current)).abs() < STEP) {
            return current;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 15")]
        let level = exact.round() as u8;
        level
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(2, 10.0, [15, 14, 8, 0])]
    #[case(2, 9.0, [15, 15, 9, 2])] // A best score of 9 leaves no room above it.
    #[case(1, 10.0, [15, 14, 11, 8])]
    #[case(4, 10.0, [15, 12, 0, 0])]
    #[case(20, 10.0, [15, 0, 0, 0])]
    fn a_level_falls_with_the_distance_to_the_best_score(
        #[case] weight: u32,
        #[case] best: f64,
        #[case] expected: [u8; 4],
    ) {
        let scale = LevelScale::new(weight, None, best);
        assert_eq!([10.0, 9.0, 5.0, 0.0].map(|score| scale.level(score, None)), expected);
    }

    proptest! {
        /// Points of the scheduler differ as with an extender of this weight, up to the rounding of a level.
        #[test]
        fn points_differ_as_with_an_extender(
            weight in 1_u32..20,
            scores in prop::collection::vec(0.0_f64..=10.0, 2..9),
        ) {
            let best = scores.iter().copied().fold(0.0, f64::max);
            let scale = LevelScale::new(weight, None, best);
            let points = |score| NODE_AFFINITY * 100.0 * scale.exact(score) / f64::from(TOP);
            for score in scores {
                let (expected, lost) = (10.0 * f64::from(weight) * (best - score), points(best) - points(score));
                prop_assert!((lost - expected.min(200.0)).abs() < 1e-6, "{} {}", lost, expected);
            }
        }

        /// A score that moves by less than a quarter of a level does not change a label that has been written for it.
        #[test]
        fn a_step_has_to_matter(weight in 1_u32..5, score in 0.0_f64..=10.0, noise in -1.0_f64..1.0) {
            let scale = LevelScale::new(weight, None, 10.0);
            let level = scale.level(score, None);
            let quarter = 0.249 * BEST_SCORE * NODE_AFFINITY / f64::from(weight) / f64::from(TOP);
            prop_assert_eq!(scale.level(score + noise * quarter, Some(level)), level);
        }

        /// A label is never further from the exact level than a step.
        #[test]
        fn a_label_is_near_the_exact_level(score in 0.0_f64..=10.0, current in prop::option::of(0_u8..=TOP)) {
            let scale = LevelScale::new(2, None, 10.0);
            prop_assert!((f64::from(scale.level(score, current)) - scale.exact(score)).abs() < STEP);
        }
    }

    #[test]
    fn the_best_score_has_to_change_noticeably() {
        assert_eq!(LevelScale::new(2, Some(8.0), 8.2).best, 8.0);
        assert_eq!(LevelScale::new(2, Some(8.0), 8.25).best, 8.25);
        assert_eq!(LevelScale::new(2, None, 8.2).best, 8.2);
    }
}
