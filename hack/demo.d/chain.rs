//! The demo of all parts together: heat in one rack, and what loops, actions, policies and pools make of it. The crate
//! testkit has the chain; this file shows it.

use std::time::Instant;

use anyhow::{Result, ensure};
use testkit::chain::{HeatChain, Station};
use testkit::plane::install::bind_loops;

use super::screen::Screen;
use super::stage::Stage;

/// Lets the operator connect to the servers of the demo, which run on this host.
pub const SETTINGS: &str = "outbound: {allowedNetworks: [127.0.0.0/8]}\n";

/// Each station: its title, and what a user does there besides applying manifests.
const STATIONS: [(Station, &str, &str); 7] = [
    (Station::Measured, "ten machines in two racks are measured", ""),
    (Station::Hot, "rack a gets hot, and the policy prefers rack b", "its inlet temperature rises from 24 °C to 38 °C"),
    (Station::Leaving, "a loop moves replicas off the hot rack", "ganglion push web queue=120"),
    (Station::Tuned, "only temperature is served: a slow loop raises the queue that starves", ""),
    (
        Station::Avoided,
        "the queue is served, and new replicas avoid the hot rack",
        "ganglion push web queue=150   # repeated until it is served",
    ),
    (Station::Empty, "the last replicas leave, and workers of a pool with their jobs", ""),
    (Station::Cool, "rack a cools down, and nothing goes back", "its inlet temperature falls to 24 °C"),
];

/// Runs the whole demo. Returns false if a check failed.
pub async fn play(screen: &Screen, stage: &mut Stage) -> Result<bool> {
    ensure!(stage.is_local(), "this demo runs machines and workers on this host: leave --kubeconfig out");
    screen.title("Ganglion: one chain, from the inlet temperature of a rack to jobs that run elsewhere");
    stage.build(screen).await?;
    let (client, namespace) = stage.place()?;
    bind_loops(&client, &namespace).await?;
    screen.doing("starting ten BMCs, a model server, replicas and workers");
    let began = Instant::now();
    let chain = HeatChain::set(stage.cluster()?, &namespace).await?;
    screen.done("machines", "ten BMCs (sushy-tools), and a model of their power (MLServer, scikit-learn)");
    screen.done("workloads", &format!("10 replicas, 4 workers of a pool, up after {} s", began.elapsed().as_secs()));
    let mut wrong = 0;
    for (nth, (station, title, done)) in STATIONS.into_iter().enumerate() {
        screen.heading(&format!("{} of {}: {title}", nth + 1, STATIONS.len()));
        for manifest in chain.manifests(station) {
            screen.manifest(&manifest);
        }
        if !done.is_empty() {
            screen.say(&format!("    {done}\n"));
        }
        screen.doing("waiting for what follows");
        let checks = chain.play(station).await?;
        screen.rest();
        for command in chain.commands(station) {
            let shown = chain.show(&command).await?;
            screen.say(&format!("$ {command}\n{shown}"));
        }
        for check in &checks {
            screen.verdict(&check.what, &check.seen, check.holds);
        }
        wrong += usize::from(checks.iter().any(|check| !check.holds));
    }
    screen.gap();
    match wrong {
        0 => screen.good(&format!("All {} stations went as promised.", STATIONS.len())),
        some => {
            stage.show_log(screen);
            screen.bad(&format!("{some} of {} stations did not go as promised.", STATIONS.len()));
        }
    }
    Ok(wrong == 0)
}
