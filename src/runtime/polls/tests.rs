//! Tests of the engine on a paused clock, with scripted machines that answer, hang, refuse, panic or wait.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};
use tokio_util::sync::CancellationToken;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Reaction of a machine to a poll.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Answers(Duration),
    Refuses,
    Hangs,
    Panics,
    Waits(Duration),
}

/// Records every poll, and checks the limits at its start.
#[derive(Default)]
struct Machines {
    manners: Mutex<HashMap<u32, Manner>>,
    /// Start times of the polls of each key.
    begun: Mutex<HashMap<u32, Vec<Instant>>>,
    /// Running polls.
    under: Mutex<Vec<u32>>,
    /// Maximum number of concurrent polls: of one key, and in total.
    most: Mutex<(usize, usize)>,
    broken_off: Mutex<Vec<(u32, BrokenOff)>>,
    orders: Arc<PollSet<u32>>,
}

/// Removes a running poll from the list, even if its future is dropped.
struct Under<'a>(&'a Machines, u32);

impl Drop for Under<'_> {
    fn drop(&mut self) {
        let mut under = self.0.under.lock().unwrap();
        let at = under.iter().position(|key| *key == self.1).unwrap();
        under.swap_remove(at);
    }
}

impl Poller for Machines {
    type Key = u32;

    async fn poll(self: Arc<Self>, key: u32) -> PollOutcome {
        let _under = {
            let mut under = self.under.lock().unwrap();
            under.push(key);
            let same = under.iter().filter(|other| **other == key).count();
            let mut most = self.most.lock().unwrap();
            *most = (most.0.max(same), most.1.max(under.len()));
            Under(&self, key)
        };
        self.begun.lock().unwrap().entry(key).or_default().push(Instant::now());
        let manner = self.manners.lock().unwrap().get(&key).copied().unwrap_or(Manner::Answers(SECOND / 100));
        match manner {
            Manner::Answers(after) => {
                sleep(after).await;
                PollOutcome::Ok
            }
            Manner::Refuses => PollOutcome::Failed,
            Manner::Hangs => std::future::pending().await,
            Manner::Panics => panic!("a fault of this program"),
            Manner::Waits(pause) => PollOutcome::WaitUntil(Instant::now() + pause),
        }
    }

    fn broken_off(&self, key: &u32, how: BrokenOff) {
        self.broken_off.lock().unwrap().push((*key, how));
    }
}

impl Machines {
    fn start(polls: usize) -> (Arc<Self>, CancellationToken, JoinHandle<()>) {
        let machines = Arc::new(Self::default());
        let stop = CancellationToken::new();
        let running = run(Arc::clone(&machines), Arc::clone(&machines.orders), PollLimits { polls }, {
            let stop = stop.clone();
            async move { stop.cancelled().await }
        });
        (machines, stop, tokio::spawn(running))
    }

    fn turn(&self, key: u32, manner: Manner) {
        self.manners.lock().unwrap().insert(key, manner);
    }

    fn times(&self, key: u32) -> Vec<Instant> {
        self.begun.lock().unwrap().get(&key).cloned().unwrap_or_default()
    }

    fn count(&self, key: u32) -> usize {
        self.times(key).len()
    }

    /// Times between the polls of a key, in milliseconds.
    fn gaps(&self, key: u32) -> Vec<u128> {
        self.times(key).windows(2).map(|pair| pair[1].duration_since(pair[0]).as_millis()).collect()
    }

    fn under(&self) -> usize {
        self.under.lock().unwrap().len()
    }
}

fn target(host: &str, interval: Duration) -> PollTarget {
    PollTarget { host: host.into(), at_once: 1, tenant: "a".into(), interval, timeout: SECOND * 10 }
}

/// A key with its own host.
fn alone(key: u32) -> PollTarget {
    target(&key.to_string(), SECOND * 10)
}

#[tokio::test(start_paused = true)]
async fn a_key_is_polled_soon_and_then_every_interval_without_drift() {
    let (machines, _stop, _task) = Machines::start(8);
    let begun = Instant::now();
    machines.turn(1, Manner::Answers(SECOND * 3));
    machines.orders.put(1, alone(1));
    sleep(SECOND * 1020).await;
    let times = machines.times(1);
    assert!(times[0].duration_since(begun) <= SECOND * 2 + SECOND / 100, "{:?}", times[0].duration_since(begun));
    assert!((101..=103).contains(&times.len()), "every ten seconds, though each poll takes three: {}", times.len());
    let gaps = machines.gaps(1).split_off(1);
    assert!(gaps.iter().all(|gap| (9_800..=10_202).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != 10_000), "some jitter");
    let total = times[100].duration_since(times[1]).as_millis();
    assert!((989_800..=990_202).contains(&total), "{total}");
}

#[tokio::test(start_paused = true)]
async fn polls_that_began_together_are_spread_over_the_interval() {
    let (machines, _stop, _task) = Machines::start(5000);
    let begun = Instant::now();
    let spread = |from: Duration| {
        let whole = |at: &Instant| at.checked_duration_since(begun + from).map(|late| late.as_secs());
        let all: Vec<u64> = (0..5000).filter_map(|key| machines.times(key).iter().find_map(whole)).collect();
        (0..10).map(|second| all.iter().filter(|at| **at == second).count()).collect::<Vec<_>>()
    };
    for key in 0..5000 {
        machines.orders.put(key, alone(key));
    }
    sleep(SECOND * 2 + SECOND / 50).await;
    assert!((0..5000).all(|key| machines.count(key) > 0), "all are polled soon");
    sleep(SECOND * 23).await;
    let settled = spread(SECOND * 13);
    assert!(settled.iter().all(|within| (350..=650).contains(within)), "{settled:?}");
    // All servers fail, and recover in the same second.
    (0..5000).for_each(|key| machines.turn(key, Manner::Refuses));
    sleep(SECOND * 60).await;
    (0..5000).for_each(|key| machines.turn(key, Manner::Answers(SECOND / 100)));
    sleep(SECOND * 400).await;
    let back = spread(SECOND * 460);
    assert!(back.iter().all(|within| (350..=650).contains(within)), "{back:?}");
}

#[tokio::test(start_paused = true)]
async fn a_due_time_that_passed_during_a_poll_is_skipped_and_the_phase_stays() {
    let (machines, _stop, _task) = Machines::start(8);
    machines.turn(1, Manner::Answers(SECOND * 15));
    machines.orders.put(1, PollTarget { timeout: SECOND * 60, ..alone(1) });
    sleep(SECOND * 225).await;
    let gaps = machines.gaps(1).split_off(1);
    assert!(gaps.len() >= 9 && gaps.iter().all(|gap| (19_800..=20_202).contains(gap)), "{gaps:?}");
    assert_eq!(*machines.most.lock().unwrap(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_up_to_five_minutes_and_a_success_ends_that() {
    for (manner, wait) in [(Manner::Refuses, 0), (Manner::Hangs, 0), (Manner::Panics, 0)] {
        let (machines, stop, task) = Machines::start(8);
        machines.turn(1, manner);
        machines.orders.put(1, alone(1));
        sleep(SECOND * (1300 + wait)).await;
        let gaps: Vec<u128> = machines.gaps(1).iter().map(|gap| (gap + 500) / 1000).collect();
        let expected = match manner {
            // The poll takes its ten seconds, so the first due time is missed.
            Manner::Hangs => vec![20, 20, 40, 80, 160, 300, 300, 300],
            _ => vec![10, 20, 40, 80, 160, 300, 300, 300],
        };
        assert_eq!(gaps, expected, "{manner:?}");
        machines.turn(1, Manner::Answers(SECOND));
        sleep(SECOND * 330).await;
        let gaps = machines.gaps(1);
        assert_eq!((gaps.last().unwrap() + 500) / 1000, 10, "{manner:?}");
        let broken_off = machines.broken_off.lock().unwrap().clone();
        match manner {
            Manner::Hangs => {
                assert!(!broken_off.is_empty() && broken_off.iter().all(|one| *one == (1, BrokenOff::Timeout)))
            }
            Manner::Panics => {
                assert!(!broken_off.is_empty() && broken_off.iter().all(|one| *one == (1, BrokenOff::Panic)))
            }
            _ => assert_eq!(broken_off, []),
        }
        stop.cancel();
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_question_has_changed_does_not_wait_for_the_pause_of_the_former_one() {
    let (machines, _stop, _task) = Machines::start(8);
    machines.turn(1, Manner::Refuses);
    machines.orders.put(1, alone(1));
    sleep(SECOND * 350).await;
    let failed = machines.count(1);
    machines.orders.put(1, alone(1));
    sleep(SECOND * 3).await;
    assert_eq!(machines.count(1), failed, "the same question waits for its pause");
    // After a success, the next poll may follow at once; after a failure, it follows after ten seconds.
    machines.orders.restart(1, alone(1));
    sleep(SECOND * 3).await;
    assert_eq!(machines.count(1), failed + 1);
}

#[tokio::test(start_paused = true)]
async fn an_interval_of_more_than_five_minutes_is_its_own_longest_pause() {
    let (machines, _stop, _task) = Machines::start(8);
    machines.turn(1, Manner::Refuses);
    machines.orders.put(1, target("a", SECOND * 3600));
    sleep(SECOND * 3600 * 5).await;
    let gaps = machines.gaps(1);
    assert!(gaps.len() >= 3 && gaps.iter().all(|gap| (3_599_000..=3_601_000).contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_waits_is_no_failure_and_is_woken_early() {
    let (machines, _stop, _task) = Machines::start(8);
    machines.turn(1, Manner::Waits(SECOND * 100));
    machines.orders.put(1, alone(1));
    sleep(SECOND * 250).await;
    assert_eq!(machines.count(1), 3);
    machines.orders.wake(1, SECOND);
    machines.orders.wake(1, SECOND * 50);
    sleep(SECOND / 2).await;
    assert_eq!(machines.count(1), 3);
    sleep(SECOND).await;
    assert_eq!(machines.count(1), 4, "the earlier of two wakes counts");
    machines.turn(1, Manner::Waits(Duration::ZERO));
    machines.orders.wake(1, Duration::ZERO);
    sleep(SECOND * 10).await;
    assert!((75..=110).contains(&(machines.count(1) - 4)), "{} polls: never a hot loop", machines.count(1));
}

#[tokio::test(start_paused = true)]
async fn a_wake_during_a_poll_leads_to_another_one() {
    let (machines, _stop, _task) = Machines::start(8);
    machines.turn(1, Manner::Answers(SECOND * 5));
    machines.orders.put(1, alone(1));
    sleep(SECOND * 3).await;
    assert_eq!((machines.count(1), machines.under()), (1, 1));
    machines.orders.wake(1, Duration::ZERO);
    sleep(SECOND * 5).await;
    assert_eq!(machines.count(1), 2);
    sleep(SECOND * 4).await;
    assert_eq!(machines.count(1), 2, "one more, not two");
}

#[tokio::test(start_paused = true)]
async fn a_removed_key_has_its_poll_cancelled_and_one_with_another_target_begins_anew() {
    let (machines, _stop, _task) = Machines::start(8);
    machines.turn(1, Manner::Hangs);
    machines.orders.put(1, PollTarget { timeout: SECOND * 3600, ..alone(1) });
    sleep(SECOND * 3).await;
    assert_eq!(machines.under(), 1);
    machines.orders.put(1, PollTarget { timeout: SECOND * 3600, ..alone(1) });
    sleep(SECOND).await;
    assert_eq!((machines.under(), machines.count(1)), (1, 1), "the same target changes nothing");
    machines.turn(1, Manner::Answers(SECOND));
    machines.orders.put(1, target("elsewhere", SECOND));
    sleep(SECOND / 100).await;
    assert_eq!(machines.under(), 0);
    sleep(SECOND * 6).await;
    assert!(machines.count(1) >= 3, "{}", machines.count(1));
    machines.orders.remove(1);
    machines.orders.wake(1, Duration::ZERO);
    sleep(SECOND / 100).await;
    let polled = machines.count(1);
    sleep(SECOND * 20).await;
    assert_eq!((machines.under(), machines.count(1)), (0, polled));
}

#[tokio::test(start_paused = true)]
async fn a_host_is_asked_by_one_at_a_time_and_each_has_its_turn() {
    let (machines, _stop, _task) = Machines::start(100);
    for key in 0..5 {
        machines.turn(key, Manner::Answers(SECOND));
        machines.orders.put(key, target("bmc", SECOND * 10));
    }
    sleep(SECOND * 100).await;
    assert_eq!(machines.most.lock().unwrap().1, 1);
    for key in 0..5 {
        assert!((9..=11).contains(&machines.count(key)), "{} polls of {key}", machines.count(key));
    }
}

#[tokio::test(start_paused = true)]
async fn all_ends_at_once_when_it_is_stopped() {
    let (machines, stop, task) = Machines::start(100);
    for key in 0..50 {
        machines.turn(key, Manner::Hangs);
        machines.orders.put(key, alone(key));
    }
    sleep(SECOND * 5).await;
    assert_eq!(machines.under(), 50);
    stop.cancel();
    task.await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(machines.under(), 0);
    advance(SECOND * 1000).await;
    assert_eq!(machines.under(), 0);
}

/// Drives the engine by hand to inspect it.
fn engine(machines: &Arc<Machines>) -> Engine<Machines> {
    Engine::new(Arc::clone(machines), PollLimits { polls: 100 })
}

async fn drain(engine: &mut Engine<Machines>) {
    while let Some(done) = engine.tasks.join_next_with_id().await {
        engine.end(done);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_ten_thousand_keys() {
    let machines = Arc::new(Machines::default());
    let mut engine = engine(&machines);
    for round in 0..10 {
        for key in 0..1000 {
            machines.turn(key, Manner::Hangs);
            // A tenth share a host, so that some wait for it.
            let host = if key % 10 == 0 { "shared".to_owned() } else { key.to_string() };
            machines.orders.put(key, target(&host, SECOND * 10));
        }
        engine.take_in(machines.orders.take_orders());
        // At different stages: waiting for their due time, waiting for a place, running.
        sleep(SECOND * 5).await;
        engine.catch_up();
        engine.begin();
        tokio::task::yield_now().await;
        assert!(machines.under() == 50 && engine.wheel.len() > 100);
        for key in 0..1000 {
            machines.orders.remove(key);
            if key % 7 == round % 7 {
                machines.orders.put(key, target("new", SECOND));
                machines.orders.remove(key);
            }
        }
        engine.take_in(machines.orders.take_orders());
        drain(&mut engine).await;
        assert!(engine.is_empty(), "round {round}");
    }
    assert!(machines.orders.take_orders().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_put_again_while_its_poll_is_cancelled_is_not_polled_twice_at_the_same_time() {
    let machines = Arc::new(Machines::default());
    let mut engine = engine(&machines);
    machines.turn(1, Manner::Hangs);
    machines.orders.put(1, alone(1));
    engine.take_in(machines.orders.take_orders());
    sleep(SECOND * 3).await;
    engine.catch_up();
    engine.begin();
    tokio::task::yield_now().await;
    machines.orders.remove(1);
    machines.orders.put(1, alone(1));
    machines.orders.wake(1, Duration::ZERO);
    engine.take_in(machines.orders.take_orders());
    assert!(engine.wheel.is_empty(), "it waits for the end of the poll that is being cancelled");
    drain(&mut engine).await;
    assert_eq!((engine.wheel.len(), machines.under()), (1, 0));
}

/// p99 of the gaps of these keys, as a multiple of the interval.
fn p99(machines: &Machines, keys: impl Iterator<Item = u32>, interval: Duration) -> f64 {
    let mut gaps: Vec<u128> = keys.flat_map(|key| machines.gaps(key)).collect();
    gaps.sort_unstable();
    gaps[gaps.len() * 99 / 100] as f64 / interval.as_millis() as f64
}

#[tokio::test(start_paused = true)]
async fn machines_that_hang_or_refuse_do_not_hold_back_the_healthy_ones() {
    // A hundred hang for ten seconds each: without limits they would occupy all 64 places.
    let (machines, _stop, _task) = Machines::start(64);
    for key in 0..1000 {
        machines.turn(
            key,
            match key % 10 {
                0 => Manner::Hangs,
                1 => Manner::Refuses,
                _ => Manner::Answers(SECOND / 20),
            },
        );
        machines.orders.put(key, alone(key));
    }
    sleep(SECOND * 300).await;
    let p99 = p99(&machines, (0..1000).filter(|key| key % 10 > 1), SECOND * 10);
    assert!(p99 <= 1.2, "{p99}");
    let fewest = (0..1000).filter(|key| key % 10 > 1).map(|key| machines.count(key)).min();
    assert!(fewest >= Some(27), "{fewest:?}");
    assert!(machines.most.lock().unwrap().1 <= 64);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_servers_are_slow_leaves_places_to_the_others() {
    let (machines, _stop, _task) = Machines::start(16);
    for key in 0..200 {
        machines.turn(key, Manner::Answers(SECOND * 9));
        machines.orders.put(key, alone(key));
    }
    for key in 1000..1020 {
        machines.orders.put(key, PollTarget { tenant: "b".into(), ..alone(key) });
    }
    sleep(SECOND * 300).await;
    let p99 = p99(&machines, 1000..1020, SECOND * 10);
    assert!(p99 <= 1.2, "{p99}");
}

/// One operation on the engine.
#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32),
    Remove(u32),
    Wake(u32),
    Turn(u32, Manner),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let manner = prop_oneof![
        (0_u64..20_000).prop_map(|millis| Manner::Answers(Duration::from_millis(millis))),
        Just(Manner::Refuses),
        Just(Manner::Hangs),
        (0_u64..5_000).prop_map(|millis| Manner::Waits(Duration::from_millis(millis))),
    ];
    prop_oneof![
        (0_u32..20, 0_u32..6).prop_map(|(key, host)| Step::Put(key, host)),
        (0_u32..20).prop_map(Step::Remove),
        (0_u32..20).prop_map(Step::Wake),
        (0_u32..20, manner).prop_map(|(key, manner)| Step::Turn(key, manner)),
        (1_u64..8_000).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_limits_hold_and_every_key_is_polled(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (machines, stop, task) = Machines::start(4);
            let mut wanted: HashMap<u32, u32> = HashMap::new();
            for step in steps {
                match step {
                    Step::Put(key, host) => {
                        wanted.insert(key, host);
                        machines.orders.put(key, target(&host.to_string(), SECOND * 2));
                    }
                    Step::Remove(key) => {
                        wanted.remove(&key);
                        machines.orders.remove(key);
                    }
                    Step::Wake(key) => machines.orders.wake(key, Duration::ZERO),
                    Step::Turn(key, manner) => machines.turn(key, manner),
                    Step::Pass(millis) => {
                        sleep(Duration::from_millis(millis)).await;
                        let under = machines.under.lock().unwrap().clone();
                        let hosts: Vec<_> = under.iter().filter_map(|key| wanted.get(key)).collect();
                        let different: HashSet<_> = hosts.iter().collect();
                        assert_eq!(under.len(), hosts.len(), "no poll of a removed key");
                        assert_eq!(hosts.len(), different.len(), "one poll for each host");
                    }
                }
            }
            // Once all machines answer, every key that was not removed is polled, and no other.
            for key in 0..20 {
                machines.turn(key, Manner::Answers(SECOND / 10));
            }
            sleep(SECOND * 400).await;
            let before: Vec<usize> = (0..20).map(|key| machines.count(key)).collect();
            sleep(SECOND * 10).await;
            for key in 0..20 {
                let polls = machines.count(key) - before[key as usize];
                let expected = if wanted.contains_key(&key) { 4..=6 } else { 0..=0 };
                assert!(expected.contains(&polls), "{polls} polls of {key}, {expected:?} expected");
            }
            let most = *machines.most.lock().unwrap();
            assert!(most.0 <= 1 && most.1 <= 4, "{most:?}");
            stop.cancel();
            task.await.unwrap();
        });
    }
}
