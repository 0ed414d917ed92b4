//! Tests of two candidates against a hand-written Lease API with virtual time: lost renewals, conflicts, outages,
//! release.

use std::sync::{Arc, Mutex};

use kube::core::Status;

use super::*;

const TIMINGS: Timings = Timings {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// Reaction of the fake API server to the next requests.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Well,
    /// Requests fail at once.
    Down,
    /// Requests hang, as behind a dead connection.
    Mute,
    /// Writes are executed, but their answers get lost.
    Deaf,
}

#[derive(Clone)]
struct Fake(Arc<Mutex<Server>>);

struct Server {
    lease: Option<Lease>,
    version: u64,
    mood: Mood,
    writes: usize,
}

impl Fake {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Server { lease: None, version: 0, mood: Mood::Well, writes: 0 })))
    }

    fn mood(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    fn change(&self, change: impl FnOnce(&mut LeaseSpec)) {
        let mut server = self.0.lock().unwrap();
        server.version += 1;
        let version = server.version.to_string();
        let lease = server.lease.as_mut().unwrap();
        change(lease.spec.as_mut().unwrap());
        lease.metadata.resource_version = Some(version);
    }

    fn delete(&self) {
        self.0.lock().unwrap().lease = None;
    }

    fn spec(&self) -> LeaseSpec {
        self.0.lock().unwrap().lease.clone().unwrap().spec.unwrap()
    }

    fn holder(&self) -> String {
        self.spec().holder_identity.unwrap()
    }

    async fn answer<T>(&self, work: impl FnOnce(&mut Server) -> Result<T, ApiError>) -> Result<T, ApiError> {
        sleep(Duration::from_millis(5)).await;
        let mood = self.0.lock().unwrap().mood;
        let gone = || ApiError::Other(kube::Error::Api(Status::failure("etcd is away", "").with_code(503).boxed()));
        match mood {
            Mood::Down => Err(gone()),
            Mood::Well => work(&mut self.0.lock().unwrap()),
            Mood::Mute | Mood::Deaf => {
                if mood == Mood::Deaf {
                    let _ = work(&mut self.0.lock().unwrap());
                }
                sleep(Duration::from_secs(3)).await;
                Err(ApiError::Timeout(Duration::from_secs(3)))
            }
        }
    }
}

impl Leases for Fake {
    async fn get(&self) -> Result<Option<Lease>, ApiError> {
        self.answer(|server| Ok(server.lease.clone())).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.answer(|server| match server.lease {
            Some(_) => Err(ApiError::Conflict),
            None => Ok(server.store(lease)),
        })
        .await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.answer(|server| {
            let Some(there) = &server.lease else { return Err(ApiError::NotFound) };
            let there = there.metadata.resource_version.clone();
            if there == lease.metadata.resource_version { Ok(server.store(lease)) } else { Err(ApiError::Conflict) }
        })
        .await
    }
}

impl Server {
    fn store(&mut self, lease: &Lease) -> Lease {
        self.version += 1;
        self.writes += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }
}

fn candidate(fake: &Fake, identity: &str) -> Elector<Fake> {
    Elector::new(fake.clone(), TIMINGS, identity.to_owned(), "a", "ganglion")
}

/// Whether the candidate acquires the lease within this time.
async fn acquires(elector: &mut Elector<Fake>, seconds: u64) -> bool {
    timeout(Duration::from_secs(seconds), elector.acquire()).await.is_ok()
}

/// Reason why the candidate loses the lease within this time; None if it does not.
async fn loses(elector: &mut Elector<Fake>, seconds: u64) -> Option<LeaseLost> {
    timeout(Duration::from_secs(seconds), elector.hold()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_candidate_knows_whether_another_one_may_have_acted_since_it_was_created() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    assert!(!one.follows_another(), "the lease is new");
    assert!(acquires(&mut two, 60).await);
    assert!(two.follows_another(), "the other one's lease has expired");
    let mut three = candidate(&fake, "three");
    assert!(acquires(&mut three, 60).await);
    assert!(three.follows_another(), "another candidate held the lease");
    three.release().await;
    let mut four = candidate(&fake, "four");
    assert!(acquires(&mut four, 1).await);
    assert!(four.follows_another(), "another candidate released the lease");
    let mut again = candidate(&fake, "four");
    assert!(acquires(&mut again, 1).await);
    assert!(!again.follows_another(), "its own former process held the lease");
}

#[tokio::test(start_paused = true)]
async fn the_first_gets_it_and_the_second_does_not_while_it_is_renewed() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    let (lost, got) = tokio::join!(loses(&mut one, 120), acquires(&mut two, 120));
    assert_eq!((lost, got), (None, false));
    assert_eq!(fake.holder(), "one");
    let spec = fake.spec();
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(0), Some(15)));
}

#[tokio::test(start_paused = true)]
async fn the_holder_annotates_the_lease_and_its_successor_removes_the_annotation() {
    let fake = Fake::new();
    let annotations = || fake.0.lock().unwrap().lease.clone().unwrap().metadata.annotations.unwrap_or_default();
    let mut one = candidate(&fake, "one").annotated("namespaces", Some("a,b".to_owned()));
    assert!(acquires(&mut one, 1).await);
    assert_eq!(annotations(), [("namespaces".to_owned(), "a,b".to_owned())].into());
    one.release().await;
    let mut two = candidate(&fake, "two").annotated("namespaces", None);
    assert!(acquires(&mut two, 1).await);
    assert_eq!(annotations(), [].into());
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_at_the_same_moment_one_gets_it() {
    let fake = Fake::new();
    let mut all: Vec<_> = (0..8).map(|index| candidate(&fake, &index.to_string())).collect();
    let got = futures::future::join_all(all.iter_mut().map(|one| acquires(one, 1))).await;
    assert_eq!(got.iter().filter(|got| **got).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_gone_is_followed_after_its_lease_expired_and_not_sooner() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    assert!(!acquires(&mut two, 14).await, "not before 15 s");
    assert!(acquires(&mut two, 6).await);
    assert_eq!((fake.holder().as_str(), fake.spec().lease_transitions), ("two", Some(1)));
}

#[tokio::test(start_paused = true)]
async fn nobodys_wall_clock_is_believed() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    // The holder's clock is an hour behind: by the wall clock its lease has long expired.
    fake.change(|spec| spec.renew_time = Some(MicroTime(Timestamp::UNIX_EPOCH)));
    assert!(!acquires(&mut two, 14).await);
    // Now the clock is years ahead: by the wall clock its lease never expires.
    fake.change(|spec| spec.renew_time = Some(MicroTime(Timestamp::MAX)));
    assert!(!acquires(&mut two, 14).await);
    assert!(acquires(&mut two, 6).await);
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_deadline_is_survived() {
    // Requests that hang notice the end of the outage only when they time out.
    for (mood, seconds) in [(Mood::Down, 9), (Mood::Mute, 6)] {
        let fake = Fake::new();
        let mut one = candidate(&fake, "one");
        assert!(acquires(&mut one, 1).await);
        let outage = async {
            // Just after a renewal; the deadline counts from there.
            sleep(Duration::from_millis(2100)).await;
            fake.mood(mood);
            sleep(Duration::from_secs(seconds)).await;
            fake.mood(Mood::Well);
        };
        let (lost, ()) = tokio::join!(loses(&mut one, 60), outage);
        assert_eq!(lost, None, "an outage of {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_deadline_ends_the_holder_before_another_may_take_over() {
    for mood in [Mood::Down, Mood::Mute] {
        let fake = Fake::new();
        let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
        assert!(acquires(&mut one, 1).await);
        assert!(!acquires(&mut two, 1).await);
        let begun = Instant::now();
        fake.mood(mood);
        assert_eq!(loses(&mut one, 11).await, Some(LeaseLost::Deadline(TIMINGS.renew_deadline)));
        let stopped = begun.elapsed();
        assert!(stopped <= TIMINGS.renew_deadline, "{stopped:?}");
        fake.mood(Mood::Well);
        assert!(!acquires(&mut two, 3).await, "others wait on");
        assert!(acquires(&mut two, 10).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_took_is_lost_at_the_next_renewal() {
    let fake = Fake::new();
    let mut one = candidate(&fake, "one");
    assert!(acquires(&mut one, 1).await);
    fake.change(|spec| spec.holder_identity = Some("two".into()));
    assert_eq!(loses(&mut one, 3).await, Some(LeaseLost::Taken("two".into())));
    assert_eq!(fake.holder(), "two", "the other holder's lease was not overwritten");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_somebody_who_is_no_candidate_is_read_again_and_renewed() {
    let fake = Fake::new();
    let mut one = candidate(&fake, "one");
    assert!(acquires(&mut one, 1).await);
    fake.change(|spec| spec.lease_transitions = Some(7));
    assert_eq!(loses(&mut one, 60).await, None);
    assert_eq!((fake.holder().as_str(), fake.spec().lease_transitions), ("one", Some(7)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deleted_is_made_again() {
    let fake = Fake::new();
    let mut one = candidate(&fake, "one");
    assert!(acquires(&mut one, 1).await);
    fake.delete();
    let writes = fake.0.lock().unwrap().writes;
    assert_eq!(loses(&mut one, 3).await, None);
    assert_eq!((fake.holder().as_str(), fake.0.lock().unwrap().writes), ("one", writes + 1), "at the next renewal");
    assert_eq!(loses(&mut one, 60).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deleted_is_not_taken_from_its_holder() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    assert!(!acquires(&mut two, 1).await);
    let deletions = async {
        for pause in [100, 1700, 2300, 900] {
            sleep(Duration::from_millis(pause)).await;
            fake.delete();
        }
    };
    let (lost, got, ()) = tokio::join!(loses(&mut one, 60), acquires(&mut two, 60), deletions);
    assert_eq!((lost, got), (None, false));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_of_a_holder_that_is_gone_is_taken_when_it_would_have_expired() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    assert!(!acquires(&mut two, 1).await);
    fake.delete();
    assert!(!acquires(&mut two, 13).await);
    assert!(acquires(&mut two, 4).await);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_that_another_made_again_is_lost_at_the_next_renewal() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    fake.delete();
    assert!(acquires(&mut two, 1).await, "a candidate that never saw the lease acquires it");
    assert_eq!(loses(&mut one, 3).await, Some(LeaseLost::Taken("two".into())));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_free_at_once() {
    let fake = Fake::new();
    let (mut one, mut two) = (candidate(&fake, "one"), candidate(&fake, "two"));
    assert!(acquires(&mut one, 1).await);
    assert!(!acquires(&mut two, 1).await);
    one.release().await;
    assert_eq!(fake.holder(), "");
    assert!(acquires(&mut two, 3).await);
    one.release().await;
    assert_eq!(fake.holder(), "two", "the lease of another holder is not released");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_though_the_last_renewal_was_dropped_half_way() {
    let fake = Fake::new();
    let mut one = candidate(&fake, "one");
    assert!(acquires(&mut one, 1).await);
    fake.mood(Mood::Deaf);
    let renewed = fake.0.lock().unwrap().writes;
    assert_eq!(loses(&mut one, 3).await, None);
    assert!(fake.0.lock().unwrap().writes > renewed, "the renewal was written, but its answer got lost");
    fake.mood(Mood::Well);
    one.release().await;
    assert_eq!(fake.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn answers_that_get_lost_do_not_lose_the_lease() {
    let fake = Fake::new();
    let mut one = candidate(&fake, "one");
    assert!(acquires(&mut one, 1).await);
    let outage = async {
        fake.mood(Mood::Deaf);
        sleep(Duration::from_secs(4)).await;
        fake.mood(Mood::Well);
    };
    let (lost, ()) = tokio::join!(loses(&mut one, 60), outage);
    assert_eq!(lost, None);
}

#[tokio::test(start_paused = true)]
async fn the_same_identity_has_it_back_at_once() {
    let fake = Fake::new();
    let mut before = candidate(&fake, "one");
    assert!(acquires(&mut before, 1).await);
    drop(before);
    let begun = Instant::now();
    let mut after = candidate(&fake, "one");
    assert!(acquires(&mut after, 1).await);
    assert!(begun.elapsed() < Duration::from_millis(100));
    assert_eq!(fake.spec().lease_transitions, Some(0), "the holder has not changed");
    assert_eq!(loses(&mut after, 60).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_does_not_renew_wakes_up_to_the_deadline() {
    let fake = Fake::new();
    let mut one = candidate(&fake, "one");
    assert!(acquires(&mut one, 1).await);
    // The machine slept, or the process was stopped: another replica may act by now.
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(loses(&mut one, 3).await, Some(LeaseLost::Deadline(TIMINGS.renew_deadline)));
}
