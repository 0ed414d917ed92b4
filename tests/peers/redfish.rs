//! The Redfish client against sushy-tools: the emulator of a machine, and document trees like those of vendors.

use std::fs;
use std::path::{Path, PathBuf};

use ganglion_outbound as clients;
use ganglion_outbound::redfish::{Bmc, Error, Fetch, Inlet, SensorPath, SensorPaths, inlet, model};
use ganglion_outbound::trust::Distrust;
use ganglion_outbound::web::{Call, Credentials};
use rstest::rstest;
use testkit::servers::bmc::RedfishServer;
use testkit::servers::http::Authority;
use testkit::servers::prometheus::{PASSWORD, USER};

use crate::client::{call, web};

fn tree(name: &str) -> PathBuf {
    testkit::root().join("tests/peers/trees").join(name)
}

fn login(password: &str) -> Option<Credentials> {
    Some(Credentials::Basic { username: USER.to_owned(), password: password.to_owned() })
}

/// A temperature and its origin, as a user sees them.
fn seen(found: Result<Inlet, Error>) -> Result<(f64, String), Error> {
    found.map(|inlet| (inlet.celsius, inlet.sensor.to_string()))
}

#[test]
fn the_emulator_of_a_machine_is_read_over_tls_with_a_password() {
    testkit::block_on(async {
        let authority = Authority::create();
        let server = RedfishServer::emulator(&authority).await.unwrap();
        let web = web();
        let call = Call { auth: login(PASSWORD), ca: Some(authority.pem().into()), ..call(server.url()) };
        let bmc = Bmc::new(&web, call.clone());
        let first = inlet(&bmc, None, None).await.unwrap();
        let path = first.sensor.to_string();
        assert!(path.starts_with("/redfish/v1/Chassis/") && path.ends_with("/Thermal#Chassis Intake Temp"), "{path}");
        assert_eq!(first.celsius, 25.0);
        // The sensor that is known already is read without a choice.
        let known = Inlet { choice: None, ..first.clone() };
        assert_eq!(inlet(&bmc, Some(&first.sensor), None).await, Ok(known.clone()));
        let cpu = inlet(&bmc, Some(&first.sensor), Some("CPU Temp")).await.unwrap();
        assert_eq!((cpu.celsius, cpu.sensor.to_string().ends_with("/Thermal#CPU Temp")), (41.0, true));
        assert_eq!(model(&bmc).await, Err(Error::NoModel));
        // The emulator redirects from the name of a system to its path.
        assert!(bmc.get("/redfish/v1/Systems/fake").await.is_ok());
        let missing = bmc.get("/redfish/v1/Systems/other").await.err();
        assert_eq!(missing.map(|error| error.to_string()).as_deref(), Some("the server answers 404 Not Found"));
        // A rejected password is never sent twice.
        for auth in [login("wrong"), None] {
            let refused = Bmc::new(&web, Call { auth, ..call.clone() });
            let error = inlet(&refused, Some(&first.sensor), None).await.unwrap_err();
            assert!(error.is_refusal(), "{error}");
            assert!(inlet(&refused, None, None).await.unwrap_err().is_refusal());
        }
        let untrusted = Bmc::new(&web, Call { ca: Some(Authority::create().pem().into()), ..call.clone() });
        let error = Error::Request(clients::Error::Certificate(Distrust::Issuer));
        assert_eq!(inlet(&untrusted, None, None).await, Err(error));
        let insecure = Bmc::new(&web, Call { ca: None, insecure: true, ..call });
        assert_eq!(inlet(&insecure, Some(&first.sensor), None).await, Ok(known));
    });
}

#[rstest]
#[case::valid(2, Distrust::OwnMaking)]
#[case::expired(-1, Distrust::Expired)]
fn a_certificate_that_the_machine_made_for_itself_is_named(#[case] days: i32, #[case] expected: Distrust) {
    testkit::block_on(async {
        let own = Authority::of_own_making(days);
        let server = RedfishServer::emulator(&own).await.unwrap();
        let web = web();
        let call = Call { auth: login(PASSWORD), ..call(server.url()) };
        let named = Bmc::new(&web, Call { ca: Some(own.pem().into()), ..call.clone() });
        assert_eq!(inlet(&named, None, None).await.map(|inlet| inlet.celsius), Ok(25.0));
        let error = inlet(&Bmc::new(&web, call), None, None).await.unwrap_err();
        assert_eq!(error, Error::Request(clients::Error::Certificate(expected)));
    });
}

#[rstest]
#[case::summary("thermal-metrics", 24.8, "1/Sensors/IntakeTemp")]
#[case::sensors("sensors", 22.5, "1/Sensors/128L0")]
#[case::thermal("thermal", 23.0, "1/Thermal#Inlet Temp")]
#[case::blade("blade", 19.0, "Enclosure/Thermal#01-Inlet Ambient")]
fn the_sensor_is_found(#[case] name: &str, #[case] celsius: f64, #[case] path: &str) {
    testkit::block_on(async {
        let server = RedfishServer::documents(&tree(name)).await.unwrap();
        let web = web();
        let bmc = Bmc::new(&web, call(server.url()));
        let path = format!("/redfish/v1/Chassis/{path}");
        let found = seen(inlet(&bmc, None, None).await);
        assert_eq!(found, Ok((celsius, path.clone())));
        // With the address from the status of an object: one request.
        let requests = || server.log().matches("\"GET ").count();
        let (before, known) = (requests(), path.parse::<SensorPath>().unwrap());
        assert_eq!(seen(inlet(&bmc, Some(&known), None).await), found);
        assert_eq!(requests() - before, 1, "{}", server.log());
    });
}

#[test]
fn two_sensors_that_cannot_be_told_apart_are_named_and_one_is_chosen() {
    testkit::block_on(async {
        let server = RedfishServer::documents(&tree("two")).await.unwrap();
        let web = web();
        let bmc = Bmc::new(&web, call(server.url()));
        let error = inlet(&bmc, None, None).await.unwrap_err();
        let (left, right) = ("/redfish/v1/Chassis/1/Sensors/FrontLeft", "/redfish/v1/Chassis/1/Sensors/FrontRight");
        let words = "several sensors cannot be told apart, name the path of one in sensor";
        assert_eq!(error.to_string(), format!("{words}: {left}, {right}"));
        for wanted in [right, "front right", "FrontRight"] {
            assert_eq!(seen(inlet(&bmc, None, Some(wanted)).await), Ok((24.0, right.to_owned())), "{wanted}");
        }
        assert_eq!(inlet(&bmc, None, Some("Front")).await, Err(Error::SensorNotFound));
    });
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_sensor_that_goes_is_found_elsewhere() {
    testkit::block_on(async {
        let home = tempfile::tempdir().unwrap();
        copy(&tree("thermal-metrics"), home.path());
        let server = RedfishServer::documents(home.path()).await.unwrap();
        let web = web();
        let bmc = Bmc::new(&web, call(server.url()));
        let known = inlet(&bmc, None, None).await.unwrap().sensor;
        fs::remove_dir_all(home.path().join("Chassis/1/Sensors/IntakeTemp")).unwrap();
        let metrics = "/redfish/v1/Chassis/1/ThermalSubsystem/ThermalMetrics#/TemperatureSummaryCelsius/Intake";
        assert_eq!(seen(inlet(&bmc, Some(&known), None).await), Ok((24.8, metrics.to_owned())));
        // An incomplete document, as from a BMC that restarts, and an empty one.
        let document = home.path().join("Chassis/1/ThermalSubsystem/ThermalMetrics/index.json");
        fs::write(&document, r#"{"TemperatureSummaryCelsius": {"#).unwrap();
        let error = inlet(&bmc, Some(&metrics.parse().unwrap()), None).await.unwrap_err();
        assert_eq!(error.to_string(), "the answer is no JSON document: error at line 1, column 31");
        fs::remove_file(document).unwrap();
        assert_eq!(inlet(&bmc, Some(&known), None).await, Err(Error::NoIntake(SensorPaths::default())));
    });
}

#[test]
fn the_power_model_of_a_machine_is_named_by_its_bmc() {
    testkit::block_on(async {
        let server = RedfishServer::documents(&tree("thermal-metrics")).await.unwrap();
        let web = web();
        let found = model(&Bmc::new(&web, call(server.url()))).await.unwrap();
        assert_eq!(found.type_, "V2InferenceProtocol");
        let url = "http://10.0.0.20/v2/models/PC-PowerEdgeR650xs-2CPU/versions/v0.1.0/infer";
        assert_eq!(found.infer_url().as_str(), url);
        let none = RedfishServer::documents(&tree("blade")).await.unwrap();
        assert_eq!(model(&Bmc::new(&web, call(none.url()))).await, Err(Error::NoModel));
    });
}
