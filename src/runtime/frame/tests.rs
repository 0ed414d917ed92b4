//! Tests of the frame: order of the steps, rounds, memory by uid, deleted objects, errors.

use std::sync::Mutex as StdMutex;

use super::*;
use ganglion_core::facts::{Identity, PodFact, PolicyBindingFact, PolicyFact};
use ganglion_core::policies::{ExpectedPolicy, Guards};
use ganglion_core::world::Origin;

/// A controller of pods that counts its rounds in the memory, and logs its steps.
struct Counting {
    ctx: Context,
    memories: Memories<u32>,
    steps: StdMutex<Vec<String>>,
    /// Result of act in this round, and of report.
    act: fn(u32) -> Result<(), Error>,
    report: fn(u32) -> Result<Next, Error>,
}

impl Counting {
    fn new(act: fn(u32) -> Result<(), Error>, report: fn(u32) -> Result<Next, Error>) -> Arc<Self> {
        let ctx = Context::without_server();
        Arc::new(Self { ctx, memories: Memories::default(), steps: StdMutex::default(), act, report })
    }

    fn log(&self, step: impl Into<String>) {
        self.steps.lock().unwrap().push(step.into());
    }

    fn logged(&self) -> Vec<String> {
        std::mem::take(&mut *self.steps.lock().unwrap())
    }

    fn put(&self, uid: &str, version: &str) {
        let id = Identity { key: key(), uid: uid.into(), version: version.to_owned() };
        self.ctx.store.apply(PodFact { id, ..PodFact::default() }, Origin::Watch);
    }
}

impl Reconciler for Counting {
    type Kind = PodFact;
    type Memory = u32;
    type Observed = ();
    type Plan = u32;
    type Done = ();
    const NAME: &'static str = "counting";
    const MAX_ROUNDS: usize = 3;
    const PAUSE: Duration = Duration::from_secs(7);

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<u32> {
        &self.memories
    }

    fn observe(self: &Arc<Self>, key: &Key, memory: &mut u32) -> Option<()> {
        *memory += 1;
        self.ctx.store.read(|world| world.pod(key).map(|_| ()))
    }

    fn plan(&self, (): &(), memory: &mut u32) -> u32 {
        *memory
    }

    async fn act(self: &Arc<Self>, (): &(), plan: &u32, _: &mut u32) -> Result<(), Error> {
        self.log(format!("act {plan}"));
        (self.act)(*plan)
    }

    async fn report(
        self: &Arc<Self>,
        (): &(),
        plan: &u32,
        done: Result<&(), &Error>,
        _: &mut u32,
    ) -> Result<Next, Error> {
        self.log(done.map_or_else(|error| error.reason().to_owned(), |()| "done".to_owned()));
        (self.report)(*plan)
    }

    async fn unguarded(&self, _: &Key, problem: &GuardProblem) -> Result<(), Error> {
        self.log(problem.to_string());
        Ok(())
    }

    fn forget(&self, _: &Key) {
        self.log("forget");
    }
}

fn key() -> Key {
    Key::new("shop", "web")
}

#[tokio::test]
async fn a_reconcile_ends_when_the_report_says_so() {
    let second = |round| Ok(if round < 2 { Next::Again } else { Next::AwaitChange });
    let controller = Counting::new(|_| Ok(()), second);
    controller.put("a", "1");
    assert_eq!(reconcile(Arc::clone(&controller), key()).await.unwrap(), Action::AwaitChange);
    assert_eq!(controller.logged(), ["act 1", "done", "act 2", "done"]);
}

#[tokio::test]
async fn rounds_are_bounded_so_that_others_get_a_turn() {
    let controller = Counting::new(|_| Ok(()), |_| Ok(Next::Again));
    controller.put("a", "1");
    let result = reconcile(Arc::clone(&controller), key()).await.unwrap();
    assert_eq!(result, Action::RequeueAfter(Counting::PAUSE));
    assert_eq!(controller.logged().len(), 2 * Counting::MAX_ROUNDS);
}

#[tokio::test]
async fn a_memory_belongs_to_one_uid_and_ends_with_the_object() {
    let controller = Counting::new(|_| Ok(()), |_| Ok(Next::AwaitChange));
    controller.put("a", "1");
    for expected in ["act 1", "act 2"] {
        let _ = reconcile(Arc::clone(&controller), key()).await;
        assert_eq!(controller.logged()[0], expected);
    }
    controller.put("b", "2");
    let _ = reconcile(Arc::clone(&controller), key()).await;
    let logged = controller.logged();
    assert_eq!(logged[..2], ["forget", "act 1"], "a recreated object starts without what was kept of the earlier one");
    let id = Identity { key: key(), uid: "b".into(), version: "3".to_owned() };
    controller.ctx.store.remove::<PodFact>(&id);
    let _ = reconcile(Arc::clone(&controller), key()).await;
    assert_eq!(controller.logged(), ["forget"]);
    assert!(controller.memories.is_empty());
}

#[tokio::test]
async fn reporting_does_not_mask_the_error_of_act() {
    let fails = |_| Err(Error::NotFound("pods \"a\"".to_owned()));
    let controller = Counting::new(fails, |_| Err(Error::Conflict("status".to_owned())));
    controller.put("a", "1");
    let error = reconcile(Arc::clone(&controller), key()).await.unwrap_err();
    assert_eq!(error.reason(), "NotFound");
    assert_eq!(controller.logged(), ["act 1", "NotFound"], "the failure is reported once, and ends the reconcile");
    let _ = reconcile(Arc::clone(&controller), key()).await;
    assert_eq!(controller.logged()[0], "act 2", "the memory survives an error");
}

#[tokio::test]
async fn a_kind_is_not_acted_on_while_the_api_server_drops_its_fields() {
    let controller = Counting::new(|_| Ok(()), |_| Err(Error::Dropped("status.moved".to_owned())));
    controller.put("a", "1");
    assert!(reconcile(Arc::clone(&controller), key()).await.is_err());
    assert_eq!(controller.logged(), ["act 1", "done"]);
    let result = reconcile(Arc::clone(&controller), key()).await.unwrap();
    let logged = controller.logged();
    assert!(logged[0] == "forget" && logged[1].contains("does not have status.moved"), "{logged:?}");
    let Action::RequeueAfter(delay) = result else { panic!("it is never tried again") };
    assert!((60..=61).contains(&delay.as_secs()), "{delay:?}");
}

#[tokio::test]
async fn a_kind_is_acted_on_only_while_its_policies_are_in_force() {
    const NAME: &str = "guard";
    let controller = Counting::new(|_| Ok(()), |_| Ok(Next::AwaitChange));
    let expected = ExpectedPolicy::new(NAME, "0.1.0", "digest".to_owned());
    controller.ctx.store.write(|world| world.guard(Guards::new([expected], [(PodFact::KIND, vec![NAME])])));
    controller.put("a", "1");
    let id = |version: &str| Identity { key: Key::new("", NAME), uid: "p".into(), version: version.to_owned() };
    let policy = PolicyFact { id: id("2"), digest: "digest".to_owned(), ..PolicyFact::default() };
    controller.ctx.store.apply(policy, Origin::Watch);
    assert_eq!(reconcile(Arc::clone(&controller), key()).await.unwrap(), Action::AwaitChange);
    let logged = controller.logged();
    assert!(logged[0] == "forget" && logged[1].contains("guard (Unbound)") && logged.len() == 2, "{logged:?}");

    let binding = PolicyBindingFact { id: id("3"), policy: NAME.to_owned(), denies: true };
    controller.ctx.store.apply(binding, Origin::Watch);
    reconcile(Arc::clone(&controller), key()).await.unwrap();
    assert_eq!(controller.logged(), ["act 1", "done"]);

    controller.ctx.store.remove::<PolicyBindingFact>(&id("4"));
    reconcile(Arc::clone(&controller), key()).await.unwrap();
    assert!(controller.logged()[0] == "forget" && controller.memories.is_empty());
}
