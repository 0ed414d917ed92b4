//! What limits remember.

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::bench::at;
use crate::api::decision::{Act, Direction};
use crate::logic::closed_loop::limits::Limits;
use crate::logic::closed_loop::micros;

const DIRECTIONS: [Direction; 3] = [Direction::Raise, Direction::Lower, Direction::Neither];

fn acts(list: &[(i64, usize, bool)]) -> Vec<Act> {
    let mut time = 0;
    let act = |(seq, (gap, direction, other)): (usize, &(i64, usize, bool))| {
        time += gap;
        let dimension = if *other { "app/memory" } else { "replicas" };
        Act {
            seq: i64::try_from(seq).unwrap(),
            at: micros(at(time)),
            direction: DIRECTIONS[direction % DIRECTIONS.len()],
            dimension: dimension.to_owned(),
        }
    };
    list.iter().enumerate().map(act).collect()
}

fn limits(dwell: i64, max: i64, per: i64, reversals: i64, calm: i64) -> Limits {
    let policy = json!({
        "dwell": format!("{dwell}s"),
        "budget": {"max": max, "per": format!("{per}s")},
        "oscillation": {"reversals": reversals, "per": format!("{calm}s"), "then": "Freeze"},
    });
    Limits::parse(&serde_json::from_value(policy).unwrap()).unwrap()
}

proptest! {
    /// What is forgotten is missed at no time to come.
    #[test]
    fn what_is_forgotten_is_not_missed(
        list in prop::collection::vec((0_i64..60, 0_usize..3, any::<bool>()), 0..30),
        (dwell, max, per, reversals, calm) in (0_i64..90, 1_i64..6, 1_i64..200, 1_i64..4, 1_i64..200),
        wait in 0_i64..100, more in 0_i64..200,
    ) {
        let limits = limits(dwell, max, per, reversals, calm);
        let all = acts(&list);
        let now = all.last().map_or(at(0), |last| last.at.0) + SignedDuration::from_secs(wait);
        let mut kept = all.clone();
        limits.forget(&mut kept, now);
        let then = now + SignedDuration::from_secs(more);
        for direction in DIRECTIONS {
            prop_assert_eq!(limits.held(&kept, direction, then), limits.held(&all, direction, then));
        }
        prop_assert_eq!(limits.state(&kept, then), limits.state(&all, then));
    }
}

#[test]
fn a_loop_without_limits_keeps_the_last_few_actions_and_the_last_of_each_dimension() {
    let on_memory = [(0, 0, true), (5, 1, true)];
    let on_replicas = [(5, 0, false); 10];
    let mut kept = acts(&[&on_memory[..], &on_replicas].concat());
    Limits::default().forget(&mut kept, at(100));
    assert_eq!(kept.iter().map(|act| act.seq).collect::<Vec<i64>>(), [1, 4, 5, 6, 7, 8, 9, 10, 11]);
}
