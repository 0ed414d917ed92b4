//! The demos: they show on a real control plane what the operator does, and check it with an independent watch.
//!
//! `hack/demo` builds the prerequisites and starts this program. The checks rely on what the API server reports to a
//! watch of the demo. The operator's own statements do not count, except for the end of an action.

mod acts;
mod chain;
mod judge;
mod loops;
mod narrator;
mod nodes;
mod placement;
mod play;
mod scene;
mod screen;
mod stage;
mod swarm;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use testkit::eye::{Eye, Seen};
use testkit::plugin::Plugin;
use tokio::signal::unix::{SignalKind, signal};

use acts::Act;
use play::Theatre;
use scene::Scene;
use screen::Screen;
use stage::Stage;

/// Maximum time to wait for any event that should happen by itself.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Shows what the operator does, on a real control plane.
#[derive(Parser, Debug)]
#[command(name = "hack/demo")]
pub struct Options {
    /// Demo to run.
    #[arg(value_enum, default_value = "moves")]
    play: Play,
    /// Leave the control plane and the operator running for a look around; `hack/demo down` stops them.
    #[arg(long)]
    keep: bool,
    /// Use this cluster instead of a local control plane, in a separate namespace that is deleted afterwards.
    #[arg(long, value_name = "FILE", conflicts_with = "keep")]
    kubeconfig: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    /// Moves, swaps, creates and deletes exactly the requested replicas, and drains a node; no replica is lost.
    Moves,
    /// A loop monitors, decides and scales, and a slower loop tunes it; another one tracks a target, with a higher
    /// minimum for a while; one takes over from a live HorizontalPodAutoscaler, and hands back.
    Loops,
    /// The operator polls machines and servers for node data; a machine stops answering and recovers.
    Nodes,
    /// Jobs are assigned to workers; workers are added, removed and lost.
    Swarm,
    /// The stock kube-scheduler queries a policy, which avoids risky nodes and prefers green ones.
    Placement,
    /// A rack gets hot: loops, actions, policies and a pool make its workloads leave.
    Chain,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let screen = Screen::new();
    let mut stage = Stage::new(&options);
    let outcome = tokio::select! {
        played = play(options.play, &screen, &mut stage) => Some(played),
        () = interrupted() => None,
    };
    screen.rest();
    let kept = options.keep && matches!(outcome, Some(Ok(_)));
    let cleared = if kept { Ok(()) } else { stage.clear(&screen).await };
    let code = match outcome {
        None => {
            screen.say("interrupted");
            130
        }
        Some(Err(error)) => {
            screen.bad(&format!("{error:#}"));
            1
        }
        Some(Ok(good)) => u8::from(!good),
    };
    if let Err(error) = cleared {
        screen.bad(&format!("cleanup failed, some objects remain: {error:#}"));
        return ExitCode::from(code.max(1));
    }
    if kept {
        stage.leave(&screen, hints(options.play));
    }
    ExitCode::from(code)
}

async fn play(play: Play, screen: &Screen, stage: &mut Stage) -> Result<bool> {
    match play {
        Play::Moves => moves(screen, stage).await,
        Play::Loops => loops::play(screen, stage).await,
        Play::Nodes => nodes::play(screen, stage).await,
        Play::Swarm => swarm::play(screen, stage).await,
        Play::Placement => placement::play(screen, stage).await,
        Play::Chain => chain::play(screen, stage).await,
    }
}

/// Commands to try on what still runs; `-n NS` stands for the namespace.
fn hints(play: Play) -> &'static [&'static str] {
    match play {
        Play::Moves => &[
            "kubectl -n NS get workloadactions,pods -o wide",
            "cargo run -- top -n NS",
            "kubectl -n NS apply -f samples/workloadaction/move-minimal.yaml",
            "kubectl -n NS events --for=deployment/web",
            "cargo run -- drain node-2 --dry-run   # shows its progress",
            "cargo run -- timeline wa $(kubectl -n NS get wa -o name | tail -n 1 | cut -d / -f 2) -n NS",
        ],
        Play::Loops => &[
            "kubectl -n NS get mon,dec,exe -w",
            "cargo run -- push web -n NS cpu=2 memory=40",
            "cargo run -- explain loop web -n NS",
            "cargo run -- push queue -n NS jobs=120   # tracks a target: 12 workers",
            "kubectl -n NS events --for=deployment/web",
            "cargo run -- timeline loop web -n NS -w",
            "cargo run -- timeline loop web -n NS --svg web.svg   # open it in a browser",
            "cargo run -- top loop -n NS",
        ],
        // The servers have stopped, so the values are stale.
        Play::Nodes => {
            &["kubectl -n NS get ncft,ncfg", "cargo run -- explain node node-0", "cargo run -- top ncfg -n NS"]
        }
        // The workers have stopped.
        Play::Swarm => &[
            "kubectl -n NS get swp -o wide",
            "kubectl -n NS get cm swarm-worker-config -o yaml",
            "cargo run -- timeline pool $(kubectl -n NS get swp -o name | cut -d / -f 2) -n NS",
            "cargo run -- top swp -n NS",
        ],
        // The machines and the workers have stopped.
        Play::Chain => &[
            "kubectl -n NS get loop,mon,dec,exe",
            "kubectl -n NS get wa,pods -o wide",
            "cargo run -- timeline loop web -n NS --svg web.svg   # open it in a browser",
            "cargo run -- top -n NS",
        ],
        Play::Placement => &[
            "kubectl -n NS get plpol,ncfg",
            "cargo run -- top plpol,ncfg -n NS",
            "kubectl annotate node -l example.com/model=green mean-used-cpu=30400 --overwrite   # makes it risky, too",
            "kubectl -n NS scale deployment batch --replicas=9",
            "kubectl -n NS get pods -o wide --sort-by=.spec.nodeName",
            "cargo run -- explain placement -n NS --policy default --pod $(kubectl -n NS get pods -o name | head -n 1 | cut -d / -f 2)",
        ],
    }
}

/// Runs the demo of moves. Returns false if a check failed.
async fn moves(screen: &Screen, stage: &mut Stage) -> Result<bool> {
    screen.title("Ganglion: replicas move exactly to the requested nodes, and none is lost on the way");
    stage.build(screen).await?;
    let (client, namespace) = stage.place()?;
    let eye = Eye::open(&client, &namespace).await?;
    let scene = scene::make(&client, &namespace, &eye, screen).await?;
    let mut acts: Vec<fn(&Scene, &Seen) -> Result<Act>> =
        vec![acts::move_one, acts::swap_two, acts::create_one, acts::delete_one, acts::move_application];
    let mut plugin = None;
    if stage.is_local() {
        acts.push(acts::drain_node);
        plugin = Some(Plugin::new(&std::fs::read_to_string(stage.kubeconfig()?)?).await?);
    } else {
        screen.say("\nSkipping the drain of a node: on your cluster it would move other pods, too.");
    }
    let theatre = Theatre { client, namespace, eye, screen, plugin };
    let count = acts.len();
    let mut broken = 0;
    for (number, act) in acts.into_iter().enumerate() {
        let act = act(&scene, &theatre.eye.now())?;
        screen.heading(&format!("{} of {count}: {}", number + 1, act.title));
        let complaints = theatre.play(&act).await?;
        if complaints > 0 {
            broken += 1;
            stage.show_log(screen);
        }
    }
    screen.gap();
    match broken {
        0 => screen.good(&format!("All {count} acts went as promised.")),
        some => screen.bad(&format!("{some} of {count} acts did not go as promised.")),
    }
    Ok(broken == 0)
}

/// Returns when the process receives SIGINT, SIGTERM or SIGHUP.
async fn interrupted() {
    let wait = async |kind| match signal(kind) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}
