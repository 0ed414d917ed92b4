//! Predictions of MLServer, KServe's own server and Triton, for models whose answers can be computed.

use std::collections::BTreeSet;

use anyhow::Result;
use ganglion_core::power_curve::PowerInput;
use ganglion_nodes_plan::batches::{BatchRefusal, Batches};
use ganglion_outbound::inference::{
    CONTENT_TYPE, ExpectedOutput, InferenceModel, InputLayout, MAX_ROWS, request, watts,
};
use ganglion_outbound::value::ValueError;
use rstest::rstest;
use testkit::block_on;
use testkit::servers::inference::{Linear, MODEL, ModelServer};
use testkit::servers::models::PowerModels;

use crate::client::{call, web};

const FIRST: Linear = Linear { base: 100.0, cpu: 2.0, inlet: 3.0, pressure: 5.0, ..Linear::ZERO };
const SECOND: Linear = Linear { base: 400.0, cpu: 1.0, inlet: -2.0, pressure: 0.5, ..Linear::ZERO };

async fn predicted(model: &InferenceModel, rows: &[PowerInput]) -> Result<Vec<Result<f64, ValueError>>, ValueError> {
    let answer = web().ask(&call(model.url()), CONTENT_TYPE, request(rows, &InputLayout::default())?).await?;
    watts(answer.status, answer.body(), ExpectedOutput { name: None, rows: rows.len() })
}

/// Rows with pairwise different predictions.
fn rows(count: u32) -> Vec<PowerInput> {
    let row = |nth: u32| {
        let nth = f64::from(nth);
        PowerInput { usage: nth / 10.0, inlet_celsius: 15.0 + nth % 20.0, pascals: nth % 7.0 - 3.0 }
    };
    (0..count).map(row).collect()
}

/// Checks the predictions of this number of rows.
async fn check(model: &InferenceModel, linear: Linear, count: u32) {
    let rows = rows(count);
    let found = predicted(model, &rows).await.unwrap();
    assert_eq!(found.len(), rows.len());
    for (row, found) in rows.iter().zip(found) {
        let expected = linear.watts([row.usage, row.inlet_celsius, row.pascals]);
        let found = found.unwrap();
        assert!((found - expected).abs() < 0.01, "{row:?}: {found} instead of {expected}");
    }
}

#[test]
fn a_server_predicts_the_power_of_each_row() {
    block_on(async {
        let server = ModelServer::start(&[("v0.1.0", FIRST), ("v0.2.0", SECOND)]).await.unwrap();
        let model = |path: &str| InferenceModel::parse(&server.url(path)).unwrap();
        for count in [1, 2, 300, 1000] {
            check(&model(&format!("/v2/models/{MODEL}/versions/v0.1.0/infer")), FIRST, count).await;
            check(&model(&format!("/v2/models/{MODEL}/versions/v0.2.0")), SECOND, count).await;
        }
        // Without a version, the server uses a default.
        check(&model(&format!("/v2/models/{MODEL}/infer")), SECOND, 3).await;

        for path in ["/v2/models/none/infer", &format!("/v2/models/{MODEL}/versions/v9/infer")] {
            let error = predicted(&model(path), &rows(1)).await.unwrap_err();
            let words = "the server answers 404 Not Found: it has no model of this name and version";
            assert_eq!(error, ValueError::NotFound(words.into()));
        }
    });
}

#[test]
fn a_model_of_another_shape_and_an_answer_of_another_length_have_words() {
    block_on(async {
        let server = ModelServer::start(&[("v0.1.0", FIRST)]).await.unwrap();
        let call = call(server.url(&format!("/v2/models/{MODEL}/infer")));
        let body = String::from_utf8(request(&rows(2), &InputLayout::default()).unwrap()).unwrap();
        let ask = async |body: String| {
            let answer = web().ask(&call, CONTENT_TYPE, body.into_bytes()).await.unwrap();
            (answer.status, watts(answer.status, answer.body(), ExpectedOutput { name: None, rows: 2 }))
        };
        let (status, good) = ask(body.clone()).await;
        assert!(status.is_success() && good.is_ok_and(|all| all.len() == 2));
        // Three rows of two columns, but the model needs three columns.
        let (status, wrong) = ask(body.replace("[2,3]", "[3,2]")).await;
        println!("{status}: {wrong:?}");
        assert!(!status.is_success());
        let words = wrong.unwrap_err().to_string();
        assert!(words.starts_with(&format!("the server answers {status}")), "{words}");
        assert!(!words.contains("features"), "it shows what the server said: {words}");
        let (status, wrong) = ask("hello".to_owned()).await;
        assert!(wrong.unwrap_err().to_string().starts_with(&format!("the server answers {status}")));
        let answer = web().ask(&call, CONTENT_TYPE, body.into_bytes()).await.unwrap();
        let wrong = watts(answer.status, answer.body(), ExpectedOutput { name: None, rows: 3 }).unwrap_err();
        assert_eq!(wrong, ValueError::Rejected("the model gives 2 predictions for 3 rows".into()));
    });
}

/// Predictions for all rows, and how they were obtained.
struct Polled {
    watts: Vec<Option<f64>>,
    requests: usize,
    /// Limit of the model that the refusals have shown.
    limit: Option<usize>,
}

/// Description of a model.
async fn described(model: &InferenceModel) -> InputLayout {
    let answer = web().get(&call(model.metadata_url())).await.unwrap();
    InputLayout::parse(answer.status, answer.body()).unwrap()
}

/// Predicts the power of these rows as the operator does: in the form that the model describes, and in smaller batches
/// after each refusal.
async fn polled(model: &InferenceModel, layout: &InputLayout, output: Option<&str>, rows: &[PowerInput]) -> Polled {
    let mut batches = Batches::new(rows.len(), layout.max_rows().min(MAX_ROWS));
    let (mut all, mut requests) = (vec![None; rows.len()], 0);
    loop {
        let taken = batches.take();
        if taken.is_empty() {
            return Polled { watts: all, requests, limit: batches.limit() };
        }
        for batch in taken {
            requests += 1;
            let body = request(&rows[batch.clone()], layout).unwrap();
            let answer = web().ask(&call(model.url()), CONTENT_TYPE, body).await.unwrap();
            let expected = ExpectedOutput { name: output, rows: layout.sent_rows(batch.len()) };
            match watts(answer.status, answer.body(), expected) {
                Ok(found) => {
                    batches.accept();
                    batch.zip(found).for_each(|(row, found)| all[row] = found.ok());
                }
                Err(ValueError::Rejected(_)) => assert_ne!(batches.refuse(batch), BatchRefusal::Model),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn start(server: &str) -> PowerModels {
    let started = if server == "kserve" { PowerModels::kserve().await } else { PowerModels::triton().await };
    started.unwrap()
}

#[rstest]
fn kserve_and_triton_are_used_as_they_describe_their_models(#[values("kserve", "triton")] server: &str) {
    block_on(async {
        let models = start(server).await;
        let model = |name: &str| InferenceModel::parse(&models.url(&format!("/v2/models/{name}"))).unwrap();
        // The curve of a node has 21 rows. Two of these have no finite prediction.
        let rows: Vec<PowerInput> =
            rows(21).into_iter().enumerate().map(|(at, row)| PowerInput { usage: 5.0 * at as f64, ..row }).collect();
        let without: BTreeSet<usize> = [19, 20].into();
        // Name, number of requests, limit. The narrow model refuses batches of 21, 10 and 5 rows.
        let mut expected = vec![("power", 1, None), ("narrow", 3 + 12, Some(2)), ("single", 21, None)];
        if server == "kserve" {
            expected.push(("plain", 1, None));
        }
        for (name, requests, limit) in expected {
            let model = model(name);
            let layout = described(&model).await;
            let found = polled(&model, &layout, None, &rows).await;
            assert_eq!((found.requests, found.limit), (requests, limit), "{name}");
            for (at, (row, watts)) in rows.iter().zip(&found.watts).enumerate() {
                let expected = (!without.contains(&at)).then_some(100.0 + 2.0 * row.usage);
                assert_eq!(*watts, expected, "{name}, row {at}");
            }
            // The other output has a name of its own.
            let other = polled(&model, &layout, Some("std"), &rows[..1]).await;
            assert_eq!(other.watts, [Some(1.0)], "{name}");
        }
    });
}

#[rstest]
fn a_missing_model_of_kserve_and_triton_has_words(#[values("kserve", "triton")] server: &str) {
    block_on(async {
        let models = start(server).await;
        let missing = "the server answers 404 Not Found: it has no model of this name and version";
        let unversioned = "the server answers 501 Not Implemented: KServe's own server has no versions; remove";
        let version = if server == "kserve" { unversioned } else { missing };
        for (path, words) in [("none", missing), ("power/versions/v0.1.0", version), ("power/versions/7", version)] {
            let model = InferenceModel::parse(&models.url(&format!("/v2/models/{path}"))).unwrap();
            // A model without a description has the input of WAO's models.
            assert_eq!(described(&model).await, InputLayout::default());
            let error = predicted(&model, &rows(2)).await.unwrap_err();
            assert!(matches!(&error, ValueError::NotFound(said) if said.starts_with(words)), "{path}: {error}");
        }
    });
}
