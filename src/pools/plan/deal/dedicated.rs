//! Chooses the workers of dedicated jobs.

use super::item::{Item, index, mix};

/// Separates the draw of a worker from other uses of the hash.
const SALT: u64 = 0x6465_6469_6361_7465;

/// Returns each of these jobs with the index of its worker, and the remaining free workers. There must be enough
/// workers.
///
/// Jobs keep their previous worker. The others choose in the order of their hashes: each job takes the free worker for
/// which it draws the highest number. Therefore few jobs choose differently when a job or a worker is added or removed.
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
