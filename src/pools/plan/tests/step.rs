//! Tests of the steps of a controller: their order, and what leads from one to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::file::{JobList, Published, render};
use crate::handover::WorkerReport;
use crate::output::OutputMap;
use crate::replicas::{FollowStep, ObservedWorkload, ScaleWrite, follow_step, retry_at};
use crate::room::JobRoom;
use crate::sources::ParsedSource;
use crate::step::{ListsToPublish, ObservedPool, PlannedHandover, PoolBlock, PoolMemory, PoolStep, next_step};
use crate::workers::PoolWorkloadFact;
use crate::{Job, PoolProblem};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{PoolWorkloadKind, SwarmPool, SwarmPoolStatus};
use ganglion_core::conditions::Health;
use ganglion_core::facts::{FieldOwner, Identity, Key, PodFact, ScaleFact};

/// Room for about a megabyte of jobs.
const ROOM: JobRoom = JobRoom { free: 1 << 20, per_namespace: 1 << 20 };

fn pool(spec: Value) -> Arc<SwarmPool> {
    let mut whole = json!({
        "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w"},
        "jobs": {"inline": [{"name": "a"}, {"name": "b"}]},
        "output": {"configMap": "lists"},
        "replicas": 2,
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let pool = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool",
        "metadata": {"name": "p", "namespace": "n", "uid": "pool", "generation": 1}, "spec": whole,
    });
    Arc::new(serde_json::from_value(pool).unwrap())
}

fn id(name: &str, version: u32) -> Identity {
    Identity { key: Key::new("n", name), uid: name.into(), version: version.to_string() }
}

/// Two Ready workers of a StatefulSet, and a pool that was never reconciled.
pub fn observed(spec: Value) -> ObservedPool {
    let pod = |name: &str| PodFact {
        id: id(name, 1),
        node: Some("node".into()),
        ready_since: Some(Timestamp::UNIX_EPOCH),
        ..PodFact::default()
    };
    let kind = PoolWorkloadKind::StatefulSet;
    ObservedPool {
        pool: pool(spec),
        block: None,
        workload: Some(ObservedWorkload {
            fact: PoolWorkloadFact { kind, name: "w".to_owned(), replicas: 2, first_ordinal: 0 },
            id: id("w", 1),
            scale: ScaleFact { replicas: 2, ..ScaleFact::default() },
            autoscaler: None,
            status_replicas: 2,
            selector: String::new(),
            pods: ["w-0", "w-1"].map(|name| (name.to_owned(), pod(name))).into(),
        }),
        sources: BTreeMap::new(),
        outputs: Ok(BTreeMap::new()),
        probed: BTreeMap::new(),
        unprobed: BTreeSet::new(),
        room: ROOM,
        now: Timestamp::UNIX_EPOCH,
    }
}

/// Memory of a process that has read all ConfigMaps.
pub fn memory(observed: &ObservedPool) -> PoolMemory {
    let mut memory = PoolMemory::default();
    memory.output.end_read(&observed.pool);
    memory
}

fn refusal(step: PoolStep) -> PoolReason {
    match step {
        PoolStep::Refuse(Health::Stalled(reason, _) | Health::Suspended(reason, _)) => reason,
        _ => panic!("the pool is not refused"),
    }
}

fn handover(step: PoolStep) -> PlannedHandover {
    match step {
        PoolStep::HandOver(handover) => *handover,
        PoolStep::Read { .. } => panic!("ConfigMaps are read"),
        _ => panic!("no handover"),
    }
}

/// An output ConfigMap with these lists.
fn config_map(name: &str, version: u32, published: &Published) -> ConfigMap {
    let (file, record) = render(published);
    let map = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string()},
        "data": {"config.yml": file, "handover.json": record},
    });
    serde_json::from_value(map).unwrap()
}

/// A pool with this number in its spec, whose operator recorded these, of a workload with this number of replicas.
pub fn following(shown: Option<i32>, followed: &[i32], wanted: i32) -> ObservedPool {
    let mut observed = observed(json!({ "replicas": shown }));
    let status = SwarmPoolStatus { followed: followed.to_vec(), ..SwarmPoolStatus::default() };
    observed.pool = Arc::new(SwarmPool { status: Some(status), ..SwarmPool::clone(&observed.pool) });
    observed.workload.as_mut().unwrap().scale.replicas = wanted;
    observed
}

#[rstest]
#[case::without_replicas(None, &[], Some(FollowStep::Record(vec![2])))]
#[case::recorded(None, &[2], Some(FollowStep::Write(2)))]
#[case::shown(Some(2), &[2], None)]
#[case::the_workload_was_scaled(Some(3), &[3], Some(FollowStep::Record(vec![3, 2])))]
#[case::recorded_again(Some(3), &[3, 2], Some(FollowStep::Write(2)))]
#[case::written_again(Some(2), &[3, 2], Some(FollowStep::Record(vec![2])))]
#[case::somebody_removed_it(None, &[3], Some(FollowStep::Record(vec![2])))]
#[case::somebody_scaled_the_pool(Some(5), &[3, 2], Some(FollowStep::Record(vec![])))]
#[case::it_scales_its_workload(Some(2), &[], None)]
fn a_pool_without_replicas_shows_those_of_its_workload(
    #[case] shown: Option<i32>,
    #[case] followed: &[i32],
    #[case] expected: Option<FollowStep>,
) {
    let observed = following(shown, followed, 2);
    assert_eq!(follow_step(&observed.pool, observed.workload.as_ref().unwrap(), None, observed.now), expected);
}

/// Whether a pool follows is decided before anything is scaled.
#[test]
fn a_pool_that_follows_does_not_scale_its_workload() {
    let step = |shown, followed: &[i32]| next_step(&following(shown, followed, 2), &mut PoolMemory::default());
    assert!(matches!(step(Some(3), &[3]), PoolStep::Follow(FollowStep::Record(_))));
    assert!(matches!(step(Some(3), &[3, 2]), PoolStep::Follow(FollowStep::Write(2))));
    assert!(matches!(step(Some(5), &[3, 2]), PoolStep::Scale(5)));
    assert!(matches!(step(Some(5), &[]), PoolStep::Scale(5)));
}

proptest! {
    /// Whatever the workload and other clients set, with a crash after any write: the workload gets no other number
    /// than one that somebody set in the pool, and in the end both have the same.
    #[test]
    fn a_pool_ends_with_the_replicas_of_its_workload(
        events in prop::collection::vec((prop::bool::ANY, 0..4_i32, 0..4_usize), 1..12),
    ) {
        let (mut shown, mut followed, mut wanted) = (None, Vec::new(), 0);
        let mut set_in_pool = BTreeSet::new();
        for (is_pool, number, steps) in events.into_iter().chain([(false, 3, 20)]) {
            if is_pool {
                shown = Some(number);
                set_in_pool.insert(number);
            } else {
                wanted = number;
            }
            for _ in 0..steps {
                match next_step(&following(shown, &followed, wanted), &mut PoolMemory::default()) {
                    PoolStep::Follow(FollowStep::Record(numbers)) => followed = numbers,
                    PoolStep::Follow(FollowStep::Write(number)) => {
                        prop_assert_eq!(number, wanted);
                        shown = Some(number);
                    }
                    PoolStep::Scale(number) => {
                        prop_assert!(set_in_pool.contains(&number));
                        wanted = number;
                    }
                    _ => break,
                }
                prop_assert!(followed.len() <= 2);
            }
        }
        prop_assert_eq!(shown, Some(wanted));
    }
}

#[test]
fn a_blocked_pool_is_not_touched() {
    let step = |block| {
        let observed = ObservedPool { block: Some(block), ..observed(json!({"replicas": 5})) };
        next_step(&observed, &mut PoolMemory::default())
    };
    let taken = PoolProblem::new(PoolReason::WorkloadTaken, "taken");
    assert_eq!(refusal(step(PoolBlock::Refused(taken))), PoolReason::WorkloadTaken);
    assert_eq!(refusal(step(PoolBlock::Suspended)), PoolReason::Suspended);
    assert!(matches!(step(PoolBlock::WatchStarts), PoolStep::AwaitWatch));
    assert!(matches!(step(PoolBlock::WatchForbidden), PoolStep::ReportForbiddenWatch));
}

#[test]
fn a_pool_without_its_workload_is_refused() {
    let observed = ObservedPool { workload: None, ..observed(json!({})) };
    assert_eq!(refusal(next_step(&observed, &mut PoolMemory::default())), PoolReason::WorkloadNotFound);
}

#[test]
fn a_pool_is_scaled_then_read_then_handed_over() {
    let mut observed = observed(json!({"replicas": 5}));
    let mut memory = PoolMemory::default();
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::Scale(5)));
    observed.workload.as_mut().unwrap().scale.replicas = 5;
    let PoolStep::Read { sources, outputs } = next_step(&observed, &mut memory) else { panic!("nothing was read") };
    assert!(sources.is_empty() && outputs.is_empty());
    memory.output.end_read(&observed.pool);
    let handover = handover(next_step(&observed, &mut memory));
    let ListsToPublish::Next(lists) = &handover.publication else { panic!("the first lists are published") };
    assert_eq!((lists.version, lists.lists.len()), (1, 2));
    assert_eq!(lists.changes[&1].why, "first deal");
}

/// A write of five replicas this many minutes after the start.
fn scale_write(minutes: i64) -> ScaleWrite {
    ScaleWrite { workload: "w".into(), at: Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes), replicas: 5 }
}

#[test]
fn replicas_of_others_are_left_alone() {
    let problem = |scale: ScaleFact, autoscaler: Option<&str>, writes: usize| {
        let mut observed = observed(json!({"replicas": 5}));
        let mut memory = memory(&observed);
        memory.scaled = vec![scale_write(0); writes];
        let workload = observed.workload.as_mut().unwrap();
        (workload.scale, workload.autoscaler) = (scale, autoscaler.map(str::to_owned));
        let problem = handover(next_step(&observed, &mut memory)).problems.remove(0);
        (problem.reason, problem.message)
    };
    let owned =
        ScaleFact { replicas: 2, owned_by: Some(FieldOwner::server_side("flux", None)), ..ScaleFact::default() };
    assert!(problem(owned, None, 0).1.starts_with("spec.replicas of StatefulSet w belongs to flux:"));
    let free = ScaleFact { replicas: 2, ..ScaleFact::default() };
    assert!(problem(free.clone(), Some("hpa"), 0).1.contains("belongs to the autoscaler hpa:"));
    let (reason, message) = problem(free, None, 3);
    assert_eq!(reason, PoolReason::FieldConflict);
    assert!(message.contains("replicas: 5 of StatefulSet w 3 times within ten minutes"), "{message}");
}

#[test]
fn replicas_of_an_owner_that_ignores_changes_are_written_but_not_those_of_an_autoscaler() {
    let mut observed = observed(json!({"replicas": 5, "onReplicaOwner": "Force"}));
    let mut memory = memory(&observed);
    let workload = observed.workload.as_mut().unwrap();
    workload.scale.owned_by = Some(FieldOwner::server_side("flux", None));
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::Scale(5)));
    observed.workload.as_mut().unwrap().autoscaler = Some("hpa".to_owned());
    let problem = handover(next_step(&observed, &mut memory)).problems.remove(0);
    assert_eq!(problem.reason, PoolReason::ReplicasOwnedElsewhere);
    assert!(
        problem.message.contains("the autoscaler hpa") && !problem.message.contains("Force"),
        "{}",
        problem.message
    );
}

#[test]
fn after_ten_minutes_the_replicas_are_written_again() {
    let mut observed = observed(json!({"replicas": 5}));
    let mut memory = memory(&observed);
    memory.scaled = vec![scale_write(0); 2];
    assert_eq!(retry_at(&memory.scaled), None);
    memory.scaled.push(scale_write(1));
    observed.now = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(2);
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::HandOver(_)));
    observed.now = retry_at(&memory.scaled).unwrap();
    assert_eq!(observed.now, Timestamp::UNIX_EPOCH + SignedDuration::from_mins(10));
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::Scale(5)));
}

/// Nobody has reverted the replicas of a workload that was deleted and created again.
#[test]
fn writes_to_an_earlier_workload_of_that_name_do_not_count() {
    let mut observed = observed(json!({"replicas": 5}));
    let mut memory = memory(&observed);
    memory.scaled = vec![scale_write(0); 3];
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::HandOver(_)));
    observed.workload.as_mut().unwrap().id.uid = "another".into();
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::Scale(5)));
}

#[test]
fn a_source_is_read_once_per_version_and_its_jobs_are_assigned() {
    let mut observed = observed(json!({"jobs": {"configMaps": {"names": ["jobs", "missing"]}}}));
    observed.sources = [("jobs".to_owned(), Some(id("jobs", 3))), ("missing".to_owned(), None)].into();
    let mut memory = memory(&observed);
    let PoolStep::Read { sources, outputs } = next_step(&observed, &mut memory) else { panic!("nothing is read") };
    assert_eq!((sources, outputs.len()), (vec![id("jobs", 3)], 0));
    let map = json!({"metadata": {"name": "jobs", "uid": "jobs", "resourceVersion": "4"}, "data": {"x": "a\nb\nc"}});
    memory.sources.insert(ParsedSource::parse(&serde_json::from_value(map).unwrap(), ROOM));
    let handover = handover(next_step(&observed, &mut memory));
    let names: Vec<&Job> = handover.desired.table.jobs.iter().collect();
    assert_eq!(names.len(), 3, "the version that was read is newer than the cached one: {names:?}");
    assert_eq!(handover.problems[0].reason, PoolReason::SourceNotFound);
}

#[test]
fn a_source_without_room_keeps_the_jobs_and_is_read_once_there_is_room() {
    let mut observed = observed(json!({"jobs": {"configMaps": {"names": ["first", "second"]}}}));
    observed.sources = ["first", "second"].map(|name| (name.to_owned(), Some(id(name, 3)))).into();
    let mut memory = memory(&observed);
    let source = |name: &str, jobs: usize| -> ConfigMap {
        let text: String = (0..jobs).map(|job| format!("{name}-{job}\n")).collect();
        let metadata = json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": "3"});
        serde_json::from_value(json!({"metadata": metadata, "data": {"x": text}})).unwrap()
    };
    // Each of the two has about a megabyte of jobs.
    let room = |memory: &PoolMemory| JobRoom { free: ROOM.free - memory.sources.bytes(), ..ROOM };
    for name in ["first", "second"] {
        memory.sources.insert(ParsedSource::parse(&source(name, 2000), room(&memory)));
    }
    observed.room = room(&memory);
    let planned = handover(next_step(&observed, &mut memory));
    let PoolProblem { reason, message, .. } = &planned.problems[0];
    assert_eq!((*reason, planned.desired.table.jobs.len()), (PoolReason::JobsTooMany, 2000));
    assert!(message.contains("ConfigMap second") && message.contains("swarmPools.maxBytesPerNamespace"), "{message}");
    assert!(memory.sources.lacks_room());
    // A shorter version of the first makes room for the second, which has not changed.
    memory.sources.remove("first");
    memory.sources.insert(ParsedSource::parse(&source("first", 10), room(&memory)));
    observed.room = room(&memory);
    let PoolStep::Read { sources, .. } = next_step(&observed, &mut memory) else { panic!("nothing is read") };
    assert_eq!(sources, [id("second", 3)]);
    memory.sources.remove("second");
    memory.sources.insert(ParsedSource::parse(&source("second", 2000), room(&memory)));
    let planned = handover(next_step(&observed, &mut memory));
    assert_eq!((planned.problems.len(), planned.desired.table.jobs.len()), (0, 2010));
    // Memory of a source that is gone counts as free at once.
    memory.sources.insert(ParsedSource::parse(&source("second", 2000), ROOM).without_room(ROOM));
    memory.sources.insert(ParsedSource::parse(&source("first", 2000), ROOM));
    observed.room = room(&memory);
    assert!(memory.sources.unread(&observed.sources, observed.room).is_empty());
    observed.sources.insert("first".to_owned(), None);
    assert_eq!(memory.sources.unread(&observed.sources, observed.room), [id("second", 3)]);
}

#[test]
fn a_source_that_changes_all_the_time_does_not_stop_the_pool() {
    let mut observed = observed(json!({}));
    let mut memory = memory(&observed);
    observed.sources = [("jobs".to_owned(), Some(id("jobs", 3)))].into();
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::Read { .. }));
    memory.has_just_read = true;
    assert!(matches!(next_step(&observed, &mut memory), PoolStep::HandOver(_)));
}

#[test]
fn lists_that_somebody_edited_before_the_start_are_confirmed_by_all() {
    let mut observed = observed(json!({"version": {"source": "Annotation"}, "refresh": {"policy": "HotReload"}}));
    observed.outputs = Ok([("lists".to_owned(), id("lists", 7))].into());
    let mut map = config_map("lists", 7, &Published { version: 4, ..Published::default() });
    map.data.as_mut().unwrap().insert("config.yml".to_owned(), "workloads: {}\nversion: 5\n".to_owned());
    let mut memory = PoolMemory::default();
    memory.output.insert_read(OutputMap::parse(&observed.pool, &map));
    memory.output.end_read(&observed.pool);
    let ListsToPublish::Confirm(lists) = handover(next_step(&observed, &mut memory)).publication else {
        panic!("the lists are trusted")
    };
    assert_eq!(lists.version, 6);
    assert!(lists.lists.values().all(|list| list.version == 6 && list.unknown == Some(6)));
}

/// A pool with weights whose source becomes unreadable while the operator restarts: the record suffices.
#[test]
fn jobs_of_an_unreadable_source_stay_where_they_are_after_a_restart() {
    let spec = json!({"jobs": {"configMaps": {"names": ["jobs"]}}});
    let source = |text: &str, version: &str| -> ConfigMap {
        let metadata = json!({"namespace": "n", "name": "jobs", "uid": "jobs", "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata, "data": {"x": text}})).unwrap()
    };
    let mut observed = observed(spec);
    observed.sources = [("jobs".to_owned(), Some(id("jobs", 3)))].into();
    let mut memory = memory(&observed);
    let text = "- {name: a, qos: Dedicated}\n- {name: b, weight: 7}\n- c\n- d\n";
    memory.sources.insert(ParsedSource::parse(&source(text, "3"), ROOM));
    let first = handover(next_step(&observed, &mut memory));
    let written = config_map("lists", 7, first.lists());
    // The operator restarts, and a bracket is not closed.
    observed.outputs = Ok([("lists".to_owned(), id("lists", 7))].into());
    observed.sources = [("jobs".to_owned(), Some(id("jobs", 4)))].into();
    let mut memory = PoolMemory::default();
    memory.output.insert_read(OutputMap::parse(&observed.pool, &written));
    memory.output.end_read(&observed.pool);
    memory.sources.insert(ParsedSource::parse(&source("- [", "4"), ROOM));
    let after = handover(next_step(&observed, &mut memory));
    assert_eq!(after.problems[0].reason, PoolReason::SourceInvalid);
    assert_eq!(after.desired.lists, first.desired.lists);
    assert!(matches!(after.publication, ListsToPublish::Unchanged));
    // It is repaired, with another weight: no list changes, and the record has the weight.
    observed.sources = [("jobs".to_owned(), Some(id("jobs", 5)))].into();
    memory.sources.insert(ParsedSource::parse(&source(&text.replace('7', "8"), "5"), ROOM));
    let repaired = handover(next_step(&observed, &mut memory));
    let ListsToPublish::Next(lists) = &repaired.publication else { panic!("the weight is not recorded") };
    assert_eq!(render(lists).0, written.data.unwrap()["config.yml"]);
    assert_eq!(lists.version, 1);
}

/// Workers may still run the lists of a pool that was deleted: the new one looks first, and begins above their version.
#[test]
fn a_new_pool_waits_for_the_first_answers_and_begins_above_them() {
    let mut observed = observed(json!({"version": {"probe": {"port": 9}}, "refresh": {"policy": "HotReload"}}));
    let mut memory = memory(&observed);
    observed.unprobed = ["w-1".to_owned()].into();
    let planned = handover(next_step(&observed, &mut memory));
    assert!(matches!(planned.publication, ListsToPublish::AwaitReports));
    assert_eq!(planned.plan.due, Some(observed.now + SignedDuration::from_secs(5)));
    observed.unprobed.clear();
    observed.probed = [("w-0".to_owned(), WorkerReport { version: 57, has_others: false })].into();
    let ListsToPublish::Confirm(lists) = handover(next_step(&observed, &mut memory)).publication else {
        panic!("the worker is believed")
    };
    assert_eq!((lists.version, lists.lists.len(), lists.lists["w-0"].unknown), (58, 1, Some(58)));
    assert!(lists.lists["w-0"].jobs.is_empty() && !lists.has_written(57));
    // Nobody answers.
    observed.unprobed = ["w-1".to_owned()].into();
    observed.probed.clear();
    observed.now += SignedDuration::from_secs(5);
    let planned = handover(next_step(&observed, &mut memory));
    assert!(matches!(planned.publication, ListsToPublish::Next(_)));
}

/// Status of a pool that has written version 9, of which worker `w-0` has version 8.
fn written() -> Value {
    json!({"version": 9, "workers": [{"name": "w-0", "jobs": 1, "weight": 1, "desiredVersion": 8, "state": "Converged"}]})
}

#[test]
fn lists_of_a_backup_are_confirmed_by_all() {
    let list = |version| JobList { version, ..JobList::default() };
    for (layout, version, of_worker, is_replaced) in [
        ("Shared", 9, 8, false),
        ("Shared", 10, 10, false),
        ("Shared", 8, 8, true),
        ("Shared", 9, 7, true),
        ("PerWorker", 8, 8, false),
        ("PerWorker", 7, 7, true),
    ] {
        let mut observed = observed(json!({"output": {"configMap": "lists", "layout": layout}}));
        let mut pool = SwarmPool::clone(&observed.pool);
        pool.status = Some(serde_json::from_value(written()).unwrap());
        observed.pool = Arc::new(pool);
        let stored = Published { lists: [("w-0".to_owned(), list(of_worker))].into(), version, ..Published::default() };
        let mut memory = PoolMemory::default();
        memory.output.insert_read(OutputMap::parse(&observed.pool, &config_map("lists", 7, &stored)));
        memory.output.end_read(&observed.pool);
        assert_eq!(memory.output.is_distrusted, is_replaced, "{layout} {version} {of_worker}");
    }
}

#[test]
fn a_write_whose_answer_was_lost_is_adopted() {
    let observed = observed(json!({}));
    let mut memory = memory(&observed);
    let at = |version| Published { version, ..Published::default() };
    memory.output.insert_read(OutputMap::parse(&observed.pool, &config_map("lists", 7, &at(4))));
    memory.output.insert_read(OutputMap::parse(&observed.pool, &config_map("lists", 8, &at(5))));
    assert_eq!(
        (memory.output.maps["lists"].published.version, memory.output.maps["lists"].is_foreign_edit),
        (5, false)
    );
    memory.output.insert_read(OutputMap::parse(&observed.pool, &config_map("lists", 9, &at(3))));
    assert_eq!((memory.output.maps["lists"].published.version, memory.output.maps["lists"].is_foreign_edit), (5, true));
}

#[test]
fn lists_that_somebody_edited_later_are_written_again_as_they_were() {
    let mut observed = observed(json!({}));
    let mut memory = memory(&observed);
    let written = Published { version: 4, ..Published::default() };
    memory.output.insert_read(OutputMap::parse(&observed.pool, &config_map("lists", 7, &written)));
    observed.outputs = Ok([("lists".to_owned(), id("lists", 8))].into());
    let PoolStep::Read { outputs, .. } = next_step(&observed, &mut memory) else { panic!("the edit is not read") };
    assert_eq!(outputs, [id("lists", 8)]);
    memory.output.insert_read(OutputMap::parse(&observed.pool, &config_map("lists", 8, &Published::default())));
    let map = &memory.output.maps["lists"];
    assert!(map.is_foreign_edit && map.published == written);
    observed.outputs = Ok(BTreeMap::new());
    assert!(memory.output.unread(&BTreeMap::new()).is_empty());
    assert!(!memory.output.maps["lists"].exists(), "a deleted ConfigMap is created again");
}
