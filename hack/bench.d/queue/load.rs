//! The moments at which keys are added.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion_core::facts::Key;

use super::passes::STAGES;
use super::sides::Side;
use crate::TIMEOUT;
use crate::frame::millis;

/// Pause before a round, in which the last passes of the previous round end.
const REST: Duration = Duration::from_millis(50);

/// Load of a round.
#[derive(Clone, Copy)]
pub enum Load {
    /// Each key `times` times, at intervals of `every`; the keys are spread over the interval.
    Spread { keys: usize, times: usize, every: Duration },
    /// All keys at once.
    Burst { keys: usize },
    /// One key whose pass requests the next one, `times` times.
    Requeue { times: usize },
}

/// Latencies of one round up to each stage, in milliseconds.
pub struct Round(pub [Vec<f64>; STAGES]);

impl Load {
    /// All keys of a round.
    pub fn keys(self) -> Vec<Key> {
        let count = match self {
            Self::Spread { keys, .. } | Self::Burst { keys } => keys,
            Self::Requeue { .. } => 1,
        };
        (0..count).map(|number| Key::new("bench", format!("loop-{number}"))).collect()
    }

    /// Plays one round on this side.
    pub async fn play(self, side: &mut Side) -> Result<Round> {
        tokio::time::sleep(REST).await;
        let (keys, passes) = (self.keys(), side.passes());
        let stages = passes.stages();
        let expected = match self {
            Self::Spread { times, .. } => {
                let plan = self.plan();
                tokio::task::spawn_blocking(move || {
                    let began = Instant::now();
                    for (at, index) in plan {
                        std::thread::sleep((began + at).saturating_duration_since(Instant::now()));
                        passes.start(&keys[index..=index]);
                    }
                })
                .await?;
                self.keys().len() * times * stages
            }
            Self::Burst { keys: count } => {
                passes.start(&keys);
                count * stages
            }
            Self::Requeue { times } => {
                passes.repeat(times);
                passes.start(&keys);
                // The first pass begins at once and is not counted.
                side.next().await?;
                times
            }
        };
        let mut round = Round(Default::default());
        for _ in 0..expected {
            let mark = tokio::time::timeout(TIMEOUT, side.next()).await.context("a pass did not begin")??;
            round.0[mark.stage].push(millis(mark.waited));
        }
        Ok(round)
    }

    /// Moments at which keys are added, in order.
    fn plan(self) -> Vec<(Duration, usize)> {
        let Self::Spread { keys, times, every } = self else { return Vec::new() };
        let mut plan = Vec::new();
        for index in 0..keys {
            // Several keys share the whole interval. A single key uses a part of it, so that its chains do not overlap.
            let width = if keys == 1 { every / 4 } else { every };
            let phase = width.mul_f64(fastrand::f64());
            let moment = |turn: u32| every * turn + if keys == 1 { width.mul_f64(fastrand::f64()) } else { phase };
            plan.extend((0..u32::try_from(times).unwrap_or(0)).map(|turn| (moment(turn), index)));
        }
        plan.sort_unstable();
        plan
    }
}
