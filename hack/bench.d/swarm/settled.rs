//! A pool whose workers have their jobs, and the time to plan its next step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ganglion_api::swarm_pool::{HandoverPolicy, RefreshPolicy};
use ganglion_pools_plan::Job;
use ganglion_pools_plan::assign::JobAssignment;
use ganglion_pools_plan::file::{JobList, ListedJob, Published};
use ganglion_pools_plan::handover::{HandoverInput, HandoverRules, WorkerPod, WorkerReport, plan_handover};
use jiff::{SignedDuration, Timestamp};

use crate::frame::millis;

pub struct Settled {
    published: Published,
    desired: BTreeMap<String, Vec<Arc<str>>>,
    pods: BTreeMap<String, WorkerPod>,
}

impl Settled {
    /// A pool in which every worker has, and reports, its assigned jobs.
    pub fn of(jobs: &[Job], deal: &JobAssignment) -> Self {
        let mut desired: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for (job, owner) in jobs.iter().zip(&deal.owner) {
            let worker = format!("worker-{}", owner.unwrap_or_default());
            desired.entry(worker).or_default().push(Arc::clone(&job.name));
        }
        let held = |job: &Arc<str>| ListedJob { name: Arc::clone(job), since: 1 };
        let list =
            |jobs: &Vec<Arc<str>>| JobList { version: 1, jobs: jobs.iter().map(held).collect(), ..JobList::default() };
        let lists = desired.iter().map(|(name, jobs)| (name.clone(), list(jobs))).collect();
        let report = Some(WorkerReport { version: 1, has_others: false });
        let pod = WorkerPod { runs: true, ready: true, annotated_version: Some(1), report, ..WorkerPod::default() };
        let pods = desired.keys().map(|name| (name.clone(), pod.clone())).collect();
        Self { published: Published { lists, version: 1, ..Published::default() }, desired, pods }
    }

    /// Milliseconds to compute a plan without any step.
    pub fn plan(&self) -> f64 {
        let rules = HandoverRules {
            handover: HandoverPolicy::Strict,
            refresh: RefreshPolicy::HotReload,
            max_unavailable: 1,
            reports: true,
            confirmed: BTreeMap::new(),
            patience: SignedDuration::from_secs(2),
            names_return: true,
        };
        let input = HandoverInput {
            published: &self.published,
            desired: &self.desired,
            pods: &self.pods,
            stopped: &BTreeMap::new(),
            gone: &BTreeMap::new(),
            reserved: &BTreeSet::new(),
            rules: &rules,
            now: Timestamp::UNIX_EPOCH,
        };
        let began = Instant::now();
        let plan = std::hint::black_box(plan_handover(&input));
        assert!(plan.lists.is_empty() && plan.annotate.is_empty(), "nothing is to be done");
        millis(began.elapsed())
    }
}
