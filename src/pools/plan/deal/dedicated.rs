//! Workers of dedicated jobs.

use super::item::{Item, index, mix};

/// Sets the draw for a worker apart from other uses of a hash.
const SALT: u64 = 0x6465_6469_6361_7465;

/// Each of these jobs and the index of its worker, and the workers that are free then. There are enough workers.
///
/// Jobs keep the worker that they have. The others choose in the order of their hashes, each the free worker for which it draws the
/// highest number: when a job or a worker comes or goes, few others choose otherwise.
pub fn choose(
    items: &[Item],
    mut jobs: Vec<u32>,
    workers: &[u32],
    previous: &[Option<u32>],
) -> (Vec<(u32, u32)>, Vec<u32>) {
    jobs.sort_unstable_by_key(|job| (items[*job as usize].hash, *job));
    let mut free: Vec<u32> = (0..index(workers.len())).collect();
    let mut chosen = Vec::with_capacity(jobs.len());
    jobs.retain(|job| {
        let held = previous[*job as usize].and_then(|held| free.iter().position(|worker| *worker == held));
        if let Some(at) = held {
            chosen.push((*job, free.swap_remove(at)));
        }
        held.is_none()
    });
    for job in jobs {
        let hash = items[job as usize].hash ^ SALT;
        let drawn = |at: &usize| (mix(hash, workers[free[*at] as usize].into()), free[*at]);
        let Some(best) = (0..free.len()).max_by_key(drawn) else { break };
        chosen.push((job, free.swap_remove(best)));
    }
    free.sort_unstable();
    (chosen, free)
}
