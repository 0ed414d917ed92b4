//! Memory for the jobs of all pools, which namespaces share.
//!
//! A megabyte of text can list hundreds of thousands of jobs, each of which occupies many times its text.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Job;
use ganglion_core::world::{Occupancy, OccupancyLimits};

/// Memory of a job besides its name, in bytes: in the table of its source and of the pool, in the desired and the
/// published lists, and while they are merged.
const JOB: usize = 480;

/// Estimate of the memory that jobs occupy, in bytes.
pub fn bytes(jobs: &[Job]) -> usize {
    let names = jobs.iter().map(|job| job.name.len()).fold(0, usize::saturating_add);
    jobs.len().saturating_mul(JOB).saturating_add(names)
}

/// Memory for jobs. Cheap to clone; all clones share it.
#[derive(Clone, Debug, Default)]
pub struct JobRoom(Arc<Mutex<Occupancy>>);

impl JobRoom {
    pub fn new(limits: OccupancyLimits) -> Self {
        Self(Arc::new(Mutex::new(Occupancy::new(limits))))
    }

    /// Occupies memory for the jobs of a pool in this namespace. None if there is no room.
    pub fn occupy(&self, namespace: &str, bytes: usize) -> Option<JobPlace> {
        let mut occupancy = self.lock();
        if !occupancy.admits(namespace, 0, bytes) {
            return None;
        }
        occupancy.replace(namespace, 0, bytes);
        Some(JobPlace { room: self.clone(), namespace: namespace.to_owned(), bytes })
    }

    /// Maximum bytes of one namespace.
    pub fn per_namespace(&self) -> usize {
        self.lock().limits.per_namespace
    }

    /// Bytes that a namespace may add.
    pub fn free(&self, namespace: &str) -> usize {
        self.lock().free(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, Occupancy> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Occupied memory, free again once it is dropped.
#[derive(Debug)]
pub struct JobPlace {
    room: JobRoom,
    namespace: String,
    bytes: usize,
}

impl Drop for JobPlace {
    fn drop(&mut self) {
        self.room.lock().replace(&self.namespace, self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_gets_its_memory_back() {
        let room = JobRoom::new(OccupancyLimits { per_namespace: 100, in_all: 150 });
        let place = room.occupy("a", 100).unwrap();
        assert!(room.occupy("a", 1).is_none());
        let other = room.occupy("b", 50).unwrap();
        assert!(room.occupy("c", 75).is_some(), "its share, although all is occupied");
        drop((place, other));
        assert_eq!(room.free("a"), 100);
    }
}
