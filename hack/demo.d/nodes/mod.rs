//! The demo of node configs: one template provides values for each node, polled from real machines and servers; a BMC
//! stops answering and recovers.

mod scene;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion_api::node_config::status::{NodeReading, NodeValue};
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use testkit::operator::program;
use testkit::process::run;
use tokio::process::Command;

use super::TIMEOUT;
use super::screen::Screen;
use super::stage::Stage;
use scene::{MACHINES, MEASURED, PASCALS, POWER, Scene};

/// Lets the operator connect to the servers of the demo, which run on this host.
pub const SETTINGS: &str = "outbound: {allowedNetworks: [127.0.0.0/8], timeoutSeconds: 2}\n";

/// Interval between two refreshes of the table.
const GLANCE: Duration = Duration::from_millis(500);

/// Runs the whole demo. Returns false if a check failed.
pub async fn play(screen: &Screen, stage: &mut Stage) -> Result<bool> {
    screen.title("Ganglion: node data, read from the machines themselves");
    stage.build(screen).await?;
    let (client, namespace) = stage.place()?;
    let scene = scene::make(&client, &namespace, screen).await?;
    let api: Api<NodeConfig> = Api::namespaced(client.clone(), &namespace);
    let mut wrong = 0;

    screen.heading("1 of 3: one template for all nodes");
    screen.manifest(&scene.template);
    apply(&client, &namespace, &scene.template).await?;
    wrong += usize::from(!fills(&api, stage, screen).await?);

    screen.heading("2 of 3: a BMC stops answering");
    let (node, bmc) = scene.machines.first().context("there is no machine")?;
    screen.say(&format!("    $ kill -STOP {}    # the emulator of {node}\n", bmc.id()));
    bmc.pause()?;
    wrong += usize::from(!fails(&api, &scene, stage, screen).await?);
    screen.say(&format!("$ ganglion explain node {node}\n{}", explain(stage, node).await?));

    screen.heading("3 of 3: the BMC answers again");
    screen.say(&format!("    $ kill -CONT {}\n", bmc.id()));
    bmc.resume()?;
    wrong += usize::from(!recovers(&api, node, stage, screen).await?);
    match wrong {
        0 => screen.good("All 3 acts went as promised."),
        some => {
            stage.show_log(screen);
            screen.bad(&format!("{some} of 3 acts did not go as promised."));
        }
    }
    Ok(wrong == 0)
}

async fn apply(client: &Client, namespace: &str, manifest: &str) -> Result<()> {
    let template: NodeConfigTemplate = serde_saphyr::from_str(manifest)?;
    let api: Api<NodeConfigTemplate> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &template).await?;
    Ok(())
}

/// Shows the table until every NodeConfig satisfies `like`, or until the timeout. Returns the last NodeConfigs, and
/// whether they satisfied it.
async fn until(
    api: &Api<NodeConfig>,
    stage: &Stage,
    screen: &Screen,
    like: impl Fn(&NodeConfig) -> bool,
) -> Result<(Vec<NodeConfig>, bool)> {
    let began = Instant::now();
    loop {
        let all = api.list(&ListParams::default()).await?.items;
        let done = all.len() == MACHINES && all.iter().all(&like);
        let table = stage.kubectl(&["get", "ncft,ncfg"]).await?;
        screen.live(std::slice::from_ref(&table));
        if done || began.elapsed() > TIMEOUT {
            screen.rest();
            screen.say(&format!("$ kubectl get ncft,ncfg\n{table}"));
            return Ok((all, done));
        }
        tokio::time::sleep(GLANCE).await;
    }
}

fn data(config: &NodeConfig) -> (&str, &str) {
    let conditions = config.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let data = conditions.iter().find(|condition| condition.type_ == "DataAvailable");
    data.map_or(("", ""), |data| (data.status.as_str(), data.reason.as_str()))
}

fn reading(config: &NodeConfig, value: NodeValue) -> Option<&NodeReading> {
    config.status.as_ref()?.reading(value)
}

fn number(config: &NodeConfig, value: NodeValue) -> Option<f64> {
    reading(config, value)?.value.as_ref()?.parse().ok()
}

/// Checks that every node has its values, and that the power matches the model.
async fn fills(api: &Api<NodeConfig>, stage: &Stage, screen: &Screen) -> Result<bool> {
    let is_filled = |config: &NodeConfig| {
        let is_compared = config.status.as_ref().is_some_and(|status| status.power_accuracy.is_some());
        data(config) == ("True", "Sampled") && is_compared
    };
    let (all, done) = until(api, stage, screen, is_filled).await?;
    let shown = |value: NodeValue| {
        let values = all.iter().map(|config| number(config, value).map_or("-".to_owned(), |number| number.to_string()));
        values.collect::<Vec<String>>().join(", ")
    };
    let every = |good: &dyn Fn(&NodeConfig) -> bool| done && all.iter().all(good);
    let is = |value: NodeValue, expected: f64| move |config: &NodeConfig| number(config, value) == Some(expected);
    // The emulator reports an intake temperature of 25 °C. The usage changes between its poll and the prediction, hence
    // the tolerance.
    let predicted = |config: &NodeConfig| {
        let values = [NodeValue::Cpu, NodeValue::InletTemperature, NodeValue::DifferentialPressure];
        let [Some(cpu), Some(inlet), Some(pressure)] = values.map(|value| number(config, value)) else { return false };
        number(config, NodeValue::Power).is_some_and(|watts| (watts - POWER.watts([cpu, inlet, pressure])).abs() < 6.0)
    };
    let inlet = every(&is(NodeValue::InletTemperature, 25.0));
    let pressure = every(&is(NodeValue::DifferentialPressure, PASCALS));
    let power = every(&predicted);
    let watts = |nth: usize| MEASURED[0] + MEASURED[1] * nth as f64;
    let measured = done
        && all.iter().enumerate().all(|(nth, config)| number(config, NodeValue::MeasuredPower) == Some(watts(nth)));
    screen.verdict("inlet temperatures, in °C", &shown(NodeValue::InletTemperature), inlet);
    screen.verdict("differential pressures, in Pa", &shown(NodeValue::DifferentialPressure), pressure);
    screen.verdict("power, predicted by the model, in W", &shown(NodeValue::Power), power);
    screen.verdict("power, measured, in W", &shown(NodeValue::MeasuredPower), measured);
    let errors =
        all.iter().filter_map(|config| config.status.as_ref()?.power_accuracy.as_ref()?.mean_absolute_error.clone());
    let errors: Vec<String> = errors.collect();
    screen.verdict("mean error of the prediction, in W", &errors.join(", "), errors.len() == MACHINES);
    Ok(inlet && pressure && power && measured && errors.len() == MACHINES)
}

/// Checks that the value of one node and the prediction from it become stale, while all other values stay current.
async fn fails(api: &Api<NodeConfig>, scene: &Scene, stage: &Stage, screen: &Screen) -> Result<bool> {
    let (node, _) = scene.machines.first().context("there is no machine")?;
    let stale = |config: &NodeConfig, value| reading(config, value).is_some_and(|one| one.stale == Some(true));
    let failed = |config: &NodeConfig| {
        data(config).0 == "False"
            && stale(config, NodeValue::InletTemperature)
            && stale(config, NodeValue::Power)
            && !stale(config, NodeValue::DifferentialPressure)
    };
    let like = |config: &NodeConfig| match config.spec.node_name == *node {
        true => failed(config),
        false => data(config) == ("True", "Sampled"),
    };
    let (all, done) = until(api, stage, screen, like).await?;
    let of_node = all.iter().find(|config| config.spec.node_name == *node);
    let problem = of_node.and_then(|config| reading(config, NodeValue::InletTemperature)?.problem.clone());
    screen.verdict(&format!("inlet temperature of {node}"), &problem.unwrap_or_else(|| "-".to_owned()), done);
    let others = all.iter().filter(|config| config.spec.node_name != *node && data(config).0 == "True").count();
    screen.verdict("other nodes with all values", &others.to_string(), others == MACHINES - 1);
    Ok(done)
}

async fn recovers(api: &Api<NodeConfig>, node: &str, stage: &Stage, screen: &Screen) -> Result<bool> {
    let (all, done) = until(api, stage, screen, |config| data(config) == ("True", "Sampled")).await?;
    let seen = all.iter().find(|config| config.spec.node_name == node).map(|config| data(config).1.to_owned());
    screen.verdict(&format!("state of {node}"), &seen.unwrap_or_default(), done);
    Ok(done)
}

/// Runs `ganglion explain node`, as a user would.
async fn explain(stage: &Stage, node: &str) -> Result<String> {
    let mut command = Command::new(program()?);
    command.args(["explain", "node", node, "--kubeconfig"]).arg(stage.kubeconfig()?);
    run(command, None).await
}
