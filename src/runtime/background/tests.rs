//! Tests of tasks beside reconciles: answers, changed questions, panics.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use ganglion_core::facts::PodFact;

type Work = BackgroundWork<PodFact, &'static str, i32>;

fn context() -> Context {
    let ctx = Context::without_server();
    ctx.store.queue::<PodFact>().open();
    ctx
}

fn key() -> Key {
    Key::new("shop", "web")
}

/// Whether the object is enqueued soon.
async fn is_woken(ctx: &Context) -> bool {
    let queue = ctx.store.queue::<PodFact>();
    match timeout(Duration::from_millis(100), queue.get()).await {
        Ok(key) => {
            queue.done(key);
            true
        }
        Err(_) => false,
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_stays_until_it_is_acknowledged() {
    let (ctx, work) = (context(), Work::default());
    assert!(work.state(&key(), |_| true).is_none());
    work.start(&ctx, key(), Arc::new("how many?"), |answers| async move {
        answers.publish(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        answers.publish(2);
    });
    assert!(work.state(&key(), |_| true).is_some_and(|state| !state.has_answered && !state.has_ended));
    assert!(is_woken(&ctx).await);
    let first = work.state(&key(), |_| true).and_then(|state| state.answer).unwrap();
    assert_eq!(*first, 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // A newer answer is not lost.
    work.acknowledge(&key(), &first);
    let second = work.state(&key(), |_| true).unwrap();
    assert_eq!((second.answer.as_deref(), second.has_ended), (Some(&2), true));
    work.acknowledge(&key(), &second.answer.unwrap());
    assert!(work.state(&key(), |_| true).is_some_and(|state| state.has_answered && state.answer.is_none()));
}

#[tokio::test(start_paused = true)]
async fn another_question_cancels_the_task() {
    let (ctx, work) = (context(), Work::default());
    for question in ["old", "new"] {
        work.start(&ctx, key(), Arc::new(question), move |answers| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            answers.publish(if question == "old" { 1 } else { 2 });
        });
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(work.state(&key(), |question| *question == "new").unwrap().answer.as_deref(), Some(&2));
    assert!(is_woken(&ctx).await);
    assert!(work.state(&key(), |question| *question == "third").is_none());
    assert!(work.state(&key(), |_| true).is_none(), "its task is gone");
}

#[tokio::test(start_paused = true)]
async fn a_task_without_an_answer_wakes_its_object() {
    let (ctx, work) = (context(), Work::default());
    work.start(&ctx, key(), Arc::new("why?"), |_| async { panic!("a fault of this program") });
    assert!(is_woken(&ctx).await);
    assert!(work.state(&key(), |_| true).is_some_and(|state| state.has_ended && !state.has_answered));
    // The end of the leader term ends the tasks.
    work.start(&ctx, key(), Arc::new("how long?"), |_| std::future::pending());
    ctx.stop.cancel();
    assert!(is_woken(&ctx).await);
    assert!(work.state(&key(), |_| true).is_some_and(|state| state.has_ended));
}
