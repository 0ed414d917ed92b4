//! Predictions of MLServer, for a model whose answers can be computed.

use anyhow::Result;
use ganglion_core::power_curve::PowerInput;
use ganglion_outbound::inference::{CONTENT_TYPE, ExpectedOutput, InferenceModel, InputLayout, request, watts};
use ganglion_outbound::value::ValueError;
use testkit::block_on;
use testkit::servers::inference::{Linear, MODEL, ModelServer};

use crate::client::{call, web};

const FIRST: Linear = Linear { base: 100.0, cpu: 2.0, inlet: 3.0, pressure: 5.0 };
const SECOND: Linear = Linear { base: 400.0, cpu: 1.0, inlet: -2.0, pressure: 0.5 };

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
