//! Deployments whose rollout does not go on: without a second ReplicaSet, their replicas move.

use super::*;

impl Stage {
    fn change_web(&mut self, change: impl FnOnce(&mut DeploymentFact)) {
        let mut web = self.world.get::<DeploymentFact>(&Key::new(NAMESPACE, "web")).expect("it is there").clone();
        web.id.version = self.id("web").version;
        change(&mut web);
        self.world.apply(web, Origin::Watch);
    }
}

#[rstest]
#[case::rolls_out(false, false, false)]
#[case::paused(true, false, true)]
#[case::paused_and_not_observed(true, true, false)]
fn a_paused_deployment_whose_template_was_changed_moves(
    #[case] paused: bool,
    #[case] behind: bool,
    #[case] moves: bool,
) {
    let mut stage = Stage::new();
    stage.change_web(|web| {
        (web.paused, web.updated_replicas) = (paused, 0);
        (web.generation, web.observed_generation) = (2, if behind { 1 } else { 2 });
    });
    stage.act("go", move_web(json!({"nodeName": "d"})));
    let next = stage.settle("go");
    if moves {
        assert!(matches!(next, NextStep::Do(Effect::CreatePod(_))), "{:?}", stage.ready("go"));
    } else {
        let (_, reason, message) = stage.ready("go");
        assert_eq!(reason, "Queued", "{message}");
        assert!(message.contains("a rollout of Deployment web is in flight"), "{message}");
    }
}

#[rstest]
#[case::paused(true, "is paused")]
#[case::stuck(false, "makes no progress")]
fn one_that_stops_amid_a_rollout_says_so(#[case] paused: bool, #[case] words: &str) {
    let mut stage = Stage::new();
    stage.change_web(|web| {
        (web.paused, web.stuck) = (paused, !paused);
        // The controller has not seen the latest change, which may be the remedy.
        (web.generation, web.observed_generation) = (3, 2);
    });
    let owner = Owner { kind: "Deployment".into(), name: "web".into(), uid: "uid-web".into() };
    stage.put(
        |id| ReplicaSetFact {
            id,
            scale: ScaleFact { replicas: 1, ..ScaleFact::default() },
            controller: Some(owner),
            controller_version: "apps/v1".into(),
            revision: Some("0".into()),
            ..ReplicaSetFact::default()
        },
        "web-h0",
    );
    stage.act("go", move_web(json!({"nodeName": "d"})));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(5);
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Queued");
    stage.change_web(|web| web.observed_generation = 3);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "RolloutStuck"), "{message}");
    assert!(message.contains(&format!("the rollout of Deployment web {words}")), "{message}");
}
