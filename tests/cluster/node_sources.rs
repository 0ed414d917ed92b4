//! NodeConfigs with real machines, a real Prometheus and a real model server.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use ganglion_api::node_config::status::NodeReading;
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::servers::bmc::RedfishServer;
use testkit::servers::http::{Authority, Manner, Server};
use testkit::servers::inference::{Linear, MODEL, ModelServer};
use testkit::servers::prometheus::{PASSWORD, PrometheusProcess, PrometheusVersion, USER};
use testkit::testbed::loops::until;
use testkit::testbed::nodes::Size;
use testkit::testbed::story;

use super::node_configs::{fake, message, pascals, pressure, put, ready};
use super::node_templates::move_to;

const VERSION: &str = "v0.1.0";

/// Documents of a machine that reports all values.
const TREE: &str = "tests/peers/trees/thermal-metrics";

fn number(reading: &Option<NodeReading>) -> Result<f64> {
    reading.as_ref().and_then(|reading| reading.value.as_ref()?.parse::<f64>().ok()).context("no value")
}

/// Checks the predicted power over the usage in percent. The inputs are rounded: to half a degree, and to a twentieth
/// of the pressure.
fn curve(status: &NodeConfigStatus, watts: impl Fn(f64) -> f64) -> Result<()> {
    let curve = status.power_curve.as_ref().context("no curve")?;
    ensure!(curve.watts.len() == 21 && curve.problem.is_none(), "{curve:?}");
    for (at, found) in curve.watts.iter().enumerate() {
        let (found, expected) = (found.parse::<f64>()?, watts(at as f64 * 5.0));
        ensure!((found - expected).abs() < 0.25 * 3.0 + 0.03 * 7.5 * 5.0 + 0.1, "{found} W instead of {expected} W");
    }
    Ok(())
}

#[test]
fn real_machines_and_a_real_model_give_the_power_of_a_node() {
    story("ncfg-real", async |testbed| {
        let authority = Authority::create();
        let bmc = RedfishServer::emulator(&authority).await?;
        let tree = RedfishServer::documents(&testkit::root().join(TREE)).await?;
        let linear = Linear { base: 100.0, cpu: 2.0, inlet: 3.0, pressure: 5.0, ..Linear::ZERO };
        let model = ModelServer::start(&[("v0.1.0", linear)]).await?;
        let sensors = Server::start(pascals(7.5)).await;
        let nodes = testbed.nodes(3, Size::default()).await?;
        let redfish = json!({"type": "Redfish", "endpoint": tree.url(), "fetchInterval": "1s"});
        let endpoint = model.url("/v2/models/power/versions/v0.1.0/infer");
        let power = json!({"type": "V2InferenceProtocol", "endpoint": endpoint, "fetchInterval": "1s"});
        let object = |name: &str, node: &str, collector: Value| {
            json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": name},
                "spec": {"nodeName": node, "metricsCollector": collector, "predictor": {"powerConsumption": power}},
            })
        };
        let all = json!({"inletTemp": redfish, "deltaP": pressure(&sensors.url("")), "usage": fake()});
        testbed.create::<NodeConfig>(object("one", &nodes.names[0], all.clone())).await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        let inlet = number(&status.inlet_temperature)?;
        let sensor = status.inlet_temperature.as_ref().and_then(|inlet| inlet.source.clone()).unwrap_or_default();
        ensure!(sensor.starts_with("/redfish/v1/"), "the sensor is {sensor}");
        let (watts, expected) = (number(&status.power)?, linear.watts([50.0, inlet, 7.5]));
        ensure!((watts - expected).abs() < 0.2, "{watts} W instead of {expected} W");
        curve(&status, |percent| linear.watts([percent, inlet, 7.5]))?;
        ensure!(status.power.and_then(|power| power.source).as_deref() == Some("power/v0.1.0"), "the model's name");

        // A model whose input is in cores.
        let mut raw = power.clone();
        raw["cpuUsageFormat"] = json!("Raw");
        let mut cores = object("cores", &nodes.names[2], all.clone());
        cores["spec"]["predictor"]["powerConsumption"] = raw;
        testbed.create::<NodeConfig>(cores).await?;
        let found = ready(testbed, "cores", "True", "Sampled").await?;
        let node = Api::<Node>::all(testbed.client.clone()).get(&nodes.names[2]).await?;
        let size = node.status.and_then(|status| status.capacity?.remove("cpu")).context("a capacity")?.0;
        let size: f64 = size.parse().context("whole cores")?;
        curve(&found, |percent| linear.watts([percent / 100.0 * size, inlet, 7.5]))?;
        testbed.kubectl(&["delete", "nodeconfig", "cores"], None).await?;

        // The message names the missing input of a prediction.
        let mut lacks = all;
        lacks["deltaP"] = Value::Null;
        testbed.create::<NodeConfig>(object("lacks", &nodes.names[1], lacks)).await?;
        let lacks = ready(testbed, "lacks", "False", "InputMissing").await?;
        ensure!(
            message(&lacks).contains("the prediction needs fresh values of differentialPressure"),
            "{}",
            message(&lacks)
        );
        ensure!(lacks.inlet_temperature.is_some_and(|inlet| inlet.stale.is_none()), "the others are not measured");

        // TLS with a private authority, and a password.
        let login = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc"},
            "stringData": {"username": USER, "password": PASSWORD, "ca.crt": String::from_utf8(authority.pem())?},
        });
        testbed.kubectl(&["apply", "-f", "-"], Some(&login.to_string())).await?;
        let secure = json!({
            "type": "Redfish", "endpoint": bmc.url(), "fetchInterval": "1s", "basicAuthSecret": {"name": "bmc"},
            "ca": {"secret": {"name": "bmc", "key": "ca.crt"}},
        });
        put(testbed, "bmc", &nodes.names[2], json!({"inletTemp": secure})).await?;
        let found = ready(testbed, "bmc", "True", "Sampled").await?;
        ensure!((number(&found.inlet_temperature)? - 25.0).abs() < f64::EPSILON, "{found:?}");
        Ok(())
    });
}

/// A machine that names this server for the prediction of its power.
async fn naming(models: &ModelServer, home: &TempDir) -> Result<RedfishServer> {
    let tree = home.path().join("tree");
    let copied = Command::new("cp").arg("-r").arg(testkit::root().join(TREE)).arg(&tree).status()?;
    ensure!(copied.success(), "cp: {copied}");
    let model = json!({"Name": MODEL, "Url": models.url(""), "Type": "V2InferenceProtocol", "Version": VERSION});
    let document = json!({
        "@odata.id": "/redfish/v1/Systems/1/MachineLearningModel", "Name": "Model", "PowerConsumptionModel": model,
    });
    std::fs::write(tree.join("Systems/1/MachineLearningModel/index.json"), document.to_string())?;
    RedfishServer::documents(&tree).await
}

#[test]
fn the_usage_is_prometheus_and_the_model_is_named_by_the_machine() {
    story("ncfg-named", async |testbed| {
        let linear = Linear { base: 100.0, cpu: 0.0, inlet: 3.0, pressure: 5.0, ..Linear::ZERO };
        let home = TempDir::new()?;
        let models = ModelServer::start(&[(VERSION, linear)]).await?;
        let machine = naming(&models, &home).await?;
        let prometheus = PrometheusProcess::of_this_host(PrometheusVersion::V2_42).await?;
        let nodes = testbed.nodes(1, Size::default()).await?;
        // Prometheus finds the node by this address.
        move_to(testbed, &nodes.names[0], &["127.0.0.1"]).await?;
        let redfish = json!({"type": "Redfish", "endpoint": machine.url(), "fetchInterval": "1s"});
        let usage = json!({"type": "Prometheus", "endpoint": prometheus.url(), "fetchInterval": "1s"});
        // Used only if the machine names no server.
        let endpoint = models.url("/v2/models/missing/infer");
        let power = json!({"type": "V2InferenceProtocol", "endpoint": endpoint, "fetchInterval": "1s"});
        let object = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "one"},
            "spec": {
                "nodeName": nodes.names[0],
                "metricsCollector": {"inletTemp": redfish, "deltaP": fake(), "usage": usage},
                "predictor": {"powerConsumption": power, "powerConsumptionEndpointProvider": redfish},
            },
        });
        testbed.create::<NodeConfig>(object).await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        let (cpu, memory) = (number(&status.cpu)?, number(&status.memory)?);
        ensure!(cpu > 0.0 && cpu <= 100.0, "{cpu} % of a host that runs these tests");
        ensure!(memory > 0.0 && memory < 100.0, "{memory} %");
        let expected = linear.watts([cpu, number(&status.inlet_temperature)?, number(&status.differential_pressure)?]);
        let watts = number(&status.power)?;
        ensure!((watts - expected).abs() < 0.2, "{watts} W instead of {expected} W");
        let source = status.power.and_then(|power| power.source).unwrap_or_default();
        ensure!(source == format!("{MODEL}/{VERSION}"), "predicted by {source}");
        Ok(())
    });
}

#[test]
fn a_model_that_takes_one_row_predicts_the_power_and_the_curve() {
    story("ncfg-rows", async |testbed| {
        // It predicts a single row, regardless of the number of rows in the request.
        let answer = json!({"outputs": [{"name": "power", "shape": [1], "datatype": "FP32", "data": [250.0]}]});
        let model = Server::start(Manner::Says("200 OK", answer.to_string())).await;
        let sensors = Server::start(pascals(7.5)).await;
        let nodes = testbed.nodes(1, Size::default()).await?;
        let endpoint = model.url("/v2/models/power/infer");
        let power = json!({"type": "V2InferenceProtocol", "endpoint": endpoint, "fetchInterval": "1s"});
        let collector = json!({"inletTemp": fake(), "deltaP": pressure(&sensors.url("")), "usage": fake()});
        testbed
            .create::<NodeConfig>(json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "one"},
                "spec": {
                    "nodeName": nodes.names[0], "metricsCollector": collector, "predictor": {"powerConsumption": power},
                },
            }))
            .await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        ensure!((number(&status.power)? - 250.0).abs() < 0.1, "{:?}", status.power);
        let curve = status.power_curve.context("the status has no curve")?;
        ensure!(curve.watts == vec!["250"; 21] && curve.problem.is_none(), "{curve:?}");
        let heard = model.heard();
        let (single, whole) = (heard.matches("[1,3]").count(), heard.matches("[21,3]").count());
        // One request for the power, one for each point of the curve, and one that the model answered with one row.
        ensure!(single >= 22 && whole == 1, "{single} requests for a row and {whole} for a curve");
        Ok(())
    });
}

/// A BMC whose chassis has these entries of PowerControl.
pub(super) fn bmc(controls: Value) -> Manner {
    let id = |path: &str| json!({"@odata.id": path});
    let documents = [
        ("/redfish/v1/", json!({"Systems": id("/redfish/v1/Systems"), "Chassis": id("/redfish/v1/Chassis")})),
        ("/redfish/v1/Systems", json!({"Members": [id("/redfish/v1/Systems/1")]})),
        ("/redfish/v1/Systems/1", json!({"Links": {"Chassis": [id("/redfish/v1/Chassis/1")]}})),
        ("/redfish/v1/Chassis/1", json!({"ChassisType": "RackMount", "Power": id("/redfish/v1/Chassis/1/Power")})),
        ("/redfish/v1/Chassis/1/Power", json!({"PowerControl": controls})),
    ];
    Manner::Paths(documents.map(|(path, document)| (path, Manner::Says("200 OK", document.to_string()))).to_vec())
}

#[test]
fn power_is_measured_by_a_bmc_and_a_straight_line_is_compared_with_it() {
    story("ncfg-watts", async |testbed| {
        let entry = |name: &str, watts: Value| json!({"Name": name, "PowerConsumedWatts": watts});
        let whole = |watts| json!([entry("Server Power Control", watts), entry("CPU Sub-system Power", json!(90))]);
        let server = Server::start(bmc(whole(json!(250)))).await;
        let nodes = testbed.nodes(1, Size::default()).await?;
        let power = json!({"type": "Redfish", "endpoint": server.url(""), "fetchInterval": "1s"});
        let line = json!({"type": "Linear", "idleWatts": 100, "fullWatts": 300, "fetchInterval": "1s"});
        let object = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "one"},
            "spec": {
                "nodeName": nodes.names[0], "metricsCollector": {"usage": fake(), "power": power},
                "predictor": {"powerConsumption": line},
            },
        });
        testbed.create::<NodeConfig>(object).await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        ensure!((number(&status.power)?, number(&status.measured_power)?) == (200.0, 250.0), "{status:?}");
        let source = status.measured_power.and_then(|power| power.source).unwrap_or_default();
        ensure!(source == "/redfish/v1/Chassis/1/Power#Server Power Control", "{source}");
        let accuracy = status.power_accuracy.context("nothing is compared")?;
        ensure!(accuracy.mean_absolute_error.as_deref() == Some("50"), "{accuracy:?}");
        let curve = status.power_curve.context("no curve")?;
        ensure!(curve.watts.len() == 21 && curve.watts[0] == "100" && curve.watts[20] == "300", "{curve:?}");
        let table = testbed.kubectl(&["get", "ncfg", "one"], None).await?;
        ensure!(table.lines().next().is_some_and(|head| head.contains("MEASURED(W)")), "{table}");

        // A machine that runs draws power.
        server.turn(bmc(whole(json!(0))));
        let silent = ready(testbed, "one", "False", "NoReading").await?;
        ensure!(message(&silent).contains("Power#Server Power Control has no reading"), "{}", message(&silent));

        // Entries that cannot be told apart are a question; a path from it is the answer.
        server.turn(bmc(json!([entry("Domain A", json!(100)), entry("Domain B", json!(150))])));
        let asks = ready(testbed, "one", "False", "SensorAmbiguous").await?;
        let path = "/redfish/v1/Chassis/1/Power#Domain B";
        ensure!(message(&asks).contains(path), "{}", message(&asks));
        let patch = json!({"spec": {"metricsCollector": {"power": {"sensor": path}}}}).to_string();
        testbed.kubectl(&["patch", "ncfg", "one", "--type=merge", "-p", &patch], None).await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        ensure!(number(&status.measured_power)? == 150.0, "{status:?}");

        // Without watts: eight CPUs of the family, half used.
        let family = json!({"idleWatts": null, "fullWatts": null, "cpuFamily": "IceLake"});
        let patch = json!({"spec": {"predictor": {"powerConsumption": family}}}).to_string();
        testbed.kubectl(&["patch", "ncfg", "one", "--type=merge", "-p", &patch], None).await?;
        until::<NodeConfig, _>(testbed, "one", "the power of the family", |one| {
            (number(&one.status?.power).ok()? == 18.12).then_some(())
        })
        .await?;
        Ok(())
    });
}

#[test]
fn power_from_prometheus_is_one_series_of_the_node() {
    story("ncfg-series", async |testbed| {
        let prometheus = PrometheusProcess::start(PrometheusVersion::V3).await?;
        let nodes = testbed.nodes(1, Size::default()).await?;
        let (node, metric) = (&nodes.names[0], "ipmi_dcmi_power_consumption_watts");
        let series = |rack: &str, watts: i32| format!("{metric}{{node=\"{node}\",rack=\"{rack}\"}} {watts}\n");
        prometheus.export(metric, &format!("# TYPE {metric} gauge\n{}", series("a", 250)))?;
        let power = json!({
            "type": "Prometheus", "endpoint": prometheus.url(), "metric": metric, "nodeLabel": "node",
            "fetchInterval": "1s",
        });
        put(testbed, "one", node, json!({"power": power})).await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        ensure!(number(&status.measured_power)? == 250.0, "{status:?}");
        ensure!(status.power_accuracy.is_none(), "nothing is predicted");

        prometheus.export(metric, &format!("# TYPE {metric} gauge\n{}{}", series("a", 250), series("b", 180)))?;
        let asks = ready(testbed, "one", "False", "Ambiguous").await?;
        ensure!(message(&asks).contains("2 series of ipmi_dcmi_power_consumption_watts"), "{}", message(&asks));
        let patch = json!({"spec": {"metricsCollector": {"power": {"matchers": {"rack": "b"}}}}}).to_string();
        testbed.kubectl(&["patch", "ncfg", "one", "--type=merge", "-p", &patch], None).await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        ensure!(number(&status.measured_power)? == 180.0, "{status:?}");

        // The schema refuses what has no unit, and a line without watts.
        let wrong = json!({"spec": {"metricsCollector": {"power": {"metric": "power"}}}}).to_string();
        let refused = testbed.kubectl(&["patch", "ncfg", "one", "--type=merge", "-p", &wrong], None).await;
        ensure!(refused.is_err(), "a metric without a unit");
        let wrong =
            json!({"spec": {"predictor": {"powerConsumption": {"type": "Linear", "idleWatts": 9}}}}).to_string();
        let refused = testbed.kubectl(&["patch", "ncfg", "one", "--type=merge", "-p", &wrong], None).await;
        ensure!(refused.is_err_and(|error| format!("{error:#}").contains("idleWatts and fullWatts")), "half a line");
        let both = json!({"type": "Linear", "cpuFamily": "IceLake", "idleWatts": 9, "fullWatts": 90});
        let fake = json!({"type": "Fake", "cpuFamily": "IceLake"});
        let unknown = json!({"type": "Linear", "cpuFamily": "Pentium"});
        for (term, words) in [(both, "cpuFamily without them"), (fake, "requires type Linear"), (unknown, "Pentium")] {
            let wrong = json!({"spec": {"predictor": {"powerConsumption": term}}}).to_string();
            let refused = testbed.kubectl(&["patch", "ncfg", "one", "--type=merge", "-p", &wrong], None).await;
            ensure!(refused.is_err_and(|error| format!("{error:#}").contains(words)), "{wrong}");
        }
        Ok(())
    });
}
