//! Requests, and parsing of answers.

use super::*;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

#[rstest]
#[case("http://s:8080/v2/models/m/infer", "http://s:8080/v2/models/m/infer", "m", None)]
#[case("http://s:8080/v2/models/m", "http://s:8080/v2/models/m/infer", "m", None)]
#[case("http://s/v2/models/m/", "http://s/v2/models/m/infer", "m", None)]
#[case("http://s/v2/models/m/infer/", "http://s/v2/models/m/infer", "m", None)]
#[case("http://s/v2/models/m/versions/v0.1.0/infer", "http://s/v2/models/m/versions/v0.1.0/infer", "m", Some("v0.1.0"))]
#[case("http://s/v2/models/m/versions/v0.1.0", "http://s/v2/models/m/versions/v0.1.0/infer", "m", Some("v0.1.0"))]
#[case("http://s/v2/models/infer", "http://s/v2/models/infer/infer", "infer", None)]
#[case("http://s/v2/models/m/versions/infer", "http://s/v2/models/m/versions/infer/infer", "m", Some("infer"))]
#[case("https://s/a//b/v2/models/m%20n?k=v#part", "https://s/a/b/v2/models/m%20n/infer?k=v", "m%20n", None)]
fn an_address_names_a_model(
    #[case] endpoint: &str,
    #[case] url: &str,
    #[case] name: &str,
    #[case] version: Option<&str>,
) {
    let model = InferenceModel::parse(endpoint).unwrap();
    assert_eq!((model.url(), model.name(), model.version()), (url, name, version));
    assert_eq!(InferenceModel::parse(model.url()), Ok(model.clone()), "it stays as it is");
}

#[rstest]
#[case("http://s/")]
#[case("http://s/v2/models")]
#[case("http://s/v2/models/")]
#[case("http://s/models/m/infer")]
#[case("http://s/v2/models/m/versions")]
#[case("http://s/v2/models/m/ready")]
#[case("http://s/v2/models/m/infer/more")]
#[case("http://s/v2/models/m/versions/1/infer/more")]
#[case("http://s/?q=/v2/models/m/infer")]
fn an_address_without_a_model_has_words(#[case] endpoint: &str) {
    let error = InferenceModel::parse(endpoint).unwrap_err();
    assert_eq!(error, ValueError::Unfit(NO_MODEL.to_owned()));
}

#[test]
fn other_schemes_are_refused() {
    assert!(matches!(InferenceModel::parse("grpc://s/v2/models/m"), Err(ValueError::Client(Error::Refused(_)))));
}

const ROW: PowerInput = PowerInput { usage: 10.0, inlet_celsius: 22.0, pascals: 0.2 };

#[test]
fn a_request_has_a_row_for_each_node() {
    let body: Value =
        serde_json::from_slice(&request(&[ROW, PowerInput { usage: 50.5, ..ROW }], &InputLayout::default()).unwrap())
            .unwrap();
    let input = json!({"name": "predict-prob", "shape": [2, 3], "datatype": "FP32", "data": [10.0, 22.0, 0.2, 50.5, 22.0, 0.2]});
    let expected = json!({"inputs": [input]});
    // Numbers have FP32 precision and are written with the fewest digits.
    assert_eq!(body.to_string(), expected.to_string());
}

#[rstest]
#[case(&[], "a prediction is for 1 to 1000 nodes, not for 0")]
#[case(&[ROW; 1001], "a prediction is for 1 to 1000 nodes, not for 1001")]
#[case(&[ROW, PowerInput { inlet_celsius: f64::NAN, ..ROW }], "the inlet temperature of row 2 is not a finite number")]
#[case(&[PowerInput { pascals: 1e300, ..ROW }], "the differential pressure of row 1 is not a finite number")]
fn what_cannot_be_asked_has_words(#[case] rows: &[PowerInput], #[case] words: &str) {
    assert_eq!(request(rows, &InputLayout::default()).unwrap_err().to_string(), words);
}

fn layout(inputs: &Value) -> Result<InputLayout, ValueError> {
    let body = json!({"name": "m", "platform": "sklearn", "inputs": inputs, "outputs": []}).to_string();
    InputLayout::parse(StatusCode::OK, body.as_bytes())
}

/// Body of a request for two rows.
fn body(inputs: &Value) -> String {
    let rows = [ROW, PowerInput { usage: 50.5, ..ROW }];
    let layout = layout(inputs).unwrap();
    String::from_utf8(request(&rows[..rows.len().min(layout.max_rows())], &layout).unwrap()).unwrap()
}

#[rstest]
#[case(json!([{"name": "x", "datatype": "FP64", "shape": [-1, 3]}]),
    r#"{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP64","data":[10.0,22.0,0.2,50.5,22.0,0.2]}]}"#)]
#[case(json!([{"name": "x", "datatype": "FP32", "shape": [1, 3]}]),
    r#"{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[10.0,22.0,0.2]}]}"#)]
#[case(json!([{"name": "x", "datatype": "FP32", "shape": [3, 3]}]),
    r#"{"inputs":[{"name":"x","shape":[3,3],"datatype":"FP32","data":[10.0,22.0,0.2,50.5,22.0,0.2,50.5,22.0,0.2]}]}"#)]
#[case(json!([{"name": "x", "datatype": "INT64", "shape": [3]}]),
    r#"{"inputs":[{"name":"x","shape":[3],"datatype":"INT64","data":[10,22,0]}]}"#)]
#[case(json!([{"name": "a", "shape": [-1, 9]}, {"name": "predict-prob", "datatype": "FP32", "shape": [-1, -1]}]),
    r#"{"inputs":[{"name":"predict-prob","shape":[2,3],"datatype":"FP32","data":[10.0,22.0,0.2,50.5,22.0,0.2]}]}"#)]
#[case(json!([]),
    r#"{"inputs":[{"name":"predict-prob","shape":[2,3],"datatype":"FP32","data":[10.0,22.0,0.2,50.5,22.0,0.2]}]}"#)]
fn a_request_is_as_the_model_describes_its_input(#[case] inputs: Value, #[case] expected: &str) {
    assert_eq!(body(&inputs), expected);
}

#[rstest]
#[case(json!([{"name": "a"}, {"name": "b"}]), "the model has 2 inputs, not one with 3 columns")]
#[case(
    json!([{"name": "a", "shape": [-1, 4]}]),
    "the input of the model has 4 columns, not 3: processor usage, inlet temperature and differential pressure"
)]
#[case(
    json!([{"name": "a", "datatype": "BYTES", "shape": [-1, 3]}]),
    "the type of the model's input is none of FP32, FP64 and whole numbers"
)]
fn a_model_with_other_inputs_has_words(#[case] inputs: Value, #[case] words: &str) {
    assert_eq!(layout(&inputs).unwrap_err().to_string(), words);
}

/// OpenVINO Model Server, whose documentation is followed here: a fixed batch is in the shape, a dynamic one is -1,
/// names are those of the model, and what a model cannot take is refused with 400 or, where it is reshaped, with 412.
#[test]
fn openvino_describes_fixed_and_dynamic_batches() {
    let described = |shape: Value| {
        let tensor = |name: &str, shape: Value| json!({"name": name, "datatype": "FP32", "shape": shape});
        let body = json!({"name": "power", "versions": ["1"], "platform": "OpenVINO",
            "inputs": [tensor("serving_default_x:0", shape)], "outputs": [tensor("dense/BiasAdd:0", json!([-1, 1]))]});
        InputLayout::parse(StatusCode::OK, body.to_string().as_bytes()).unwrap()
    };
    for (shape, most, sent) in [(json!([1, 3]), 1, 1), (json!([8, 3]), 8, 8), (json!([-1, 3]), MAX_ROWS, 2)] {
        let layout = described(shape.clone());
        assert_eq!((layout.max_rows(), layout.sent_rows(2.min(most))), (most, sent), "{shape}");
        let body: Value = serde_json::from_slice(&request(&[ROW], &layout).unwrap()).unwrap();
        assert_eq!(body["inputs"][0]["name"], "serving_default_x:0");
    }
    let answer = json!({"model_name": "power", "model_version": "1", "outputs": [
        {"name": "dense/BiasAdd:0", "shape": [2, 1], "datatype": "FP32", "data": [120.0, 100.5]}]});
    let found = watts(StatusCode::OK, answer.to_string().as_bytes(), ExpectedOutput { name: None, rows: 2 });
    assert_eq!(found, Ok(vec![Ok(120.0), Ok(100.5)]));
    for status in [StatusCode::BAD_REQUEST, StatusCode::PRECONDITION_FAILED] {
        let refused = br#"{"error": "Invalid input batch size - Expected: 8; Actual: 2"}"#;
        let found = watts(status, refused, ExpectedOutput { name: None, rows: 2 });
        assert!(matches!(found, Err(ValueError::Rejected(_))), "{found:?}");
    }
}

#[rstest]
#[case(404, "")]
#[case(403, r#"{"inputs": [{"name": "x"}]}"#)]
#[case(200, "<html>")]
#[case(200, "{}")]
#[case(200, r#"{"inputs": 7}"#)]
fn a_model_without_a_description_has_the_input_of_wao(#[case] status: u16, #[case] body: &str) {
    let found = InputLayout::parse(StatusCode::from_u16(status).unwrap(), body.as_bytes());
    assert_eq!(found, Ok(InputLayout::default()));
}

#[rstest]
#[case("http://s/v2/models/m", "http://s/v2/models/m")]
#[case("http://s/v2/models/m/versions/1/infer?k=v", "http://s/v2/models/m/versions/1?k=v")]
#[case("http://s/v2/models/infer", "http://s/v2/models/infer")]
fn the_description_is_at_the_model(#[case] endpoint: &str, #[case] url: &str) {
    assert_eq!(InferenceModel::parse(endpoint).unwrap().metadata_url(), url);
}

fn read(data: &Value, rows: usize) -> Result<Vec<Result<f64, ValueError>>, ValueError> {
    let answer = json!({"model_name": "m", "outputs": [{"name": "predict", "shape": [rows, 1], "data": data}]});
    watts(StatusCode::OK, answer.to_string().as_bytes(), ExpectedOutput { name: None, rows })
}

const POWER: &str = "120";
const NO_POWER: &str = "the model has 2 outputs (mean, std), none of them named power: set output to the name of the \
                        one with the power";

#[rstest]
#[case(json!([{"name": "power", "data": [120]}, {"name": "std", "data": [4]}]), None, Ok(POWER))]
#[case(json!([{"name": "std", "data": [4]}, {"name": "power", "data": [120]}]), None, Ok(POWER))]
#[case(json!([{"name": "std", "data": [4]}, {"name": "mean", "data": [120]}]), Some("mean"), Ok(POWER))]
#[case(json!([{"name": "watts", "data": [120]}]), None, Ok(POWER))]
#[case(json!([{"data": [120]}]), None, Ok(POWER))]
#[case(json!([{"name": "mean", "data": [120]}, {"name": "std", "data": [4]}]), None, Err(NO_POWER))]
#[case(
    json!([{"data": [120]}, {"data": [4]}]), None,
    Err("the model has 2 outputs (without a name that can be shown), none of them named power: set output to the \
         name of the one with the power")
)]
#[case(
    json!([{"name": "dense/BiasAdd:0", "data": [120]}, {"name": "http://hunter2", "data": [4]}]), None,
    Err("the model has 2 outputs (dense/BiasAdd:0), none of them named power: set output to the name of the one with \
         the power")
)]
#[case(
    json!([{"name": "power", "data": [120]}, {"name": "power", "data": [4]}]), None,
    Err("the model has 2 outputs of the name power")
)]
#[case(
    json!([{"name": "watts", "data": [120]}, {"name": "<b>hunter2", "data": [4]}]), Some("power"),
    Err("the model has no output power: set output to one of its outputs (watts)")
)]
fn an_output_is_found_by_its_name(
    #[case] outputs: Value,
    #[case] name: Option<&str>,
    #[case] expected: Result<&str, &str>,
) {
    let answer = json!({"outputs": outputs}).to_string();
    let found = watts(StatusCode::OK, answer.as_bytes(), ExpectedOutput { name, rows: 1 });
    let found = found.map(|all| all.into_iter().map(|one| one.unwrap().to_string()).collect::<Vec<_>>().join(" "));
    assert_eq!(found.map_err(|error| error.to_string()), expected.map(str::to_owned).map_err(str::to_owned));
}

#[rstest]
#[case(json!([94.75, 100]))]
#[case(json!([[94.75], [100]]))]
#[case(json!([[94.75, 100]]))]
#[case(json!([[[94.75]], [[100]]]))]
fn each_node_gets_its_prediction(#[case] data: Value) {
    assert_eq!(read(&data, 2), Ok(vec![Ok(94.75), Ok(100.0)]));
}

#[test]
fn a_wrong_prediction_is_that_of_one_node() {
    let data = json!([1, null, -1001, "hunter2", 1e7, -5, {"a": [1]}, true]);
    let found = read(&data, 8).unwrap();
    let texts: Vec<_> = found.into_iter().map(|one| one.map_err(|error| error.to_string())).collect();
    let number = |at: usize| Err(format!("prediction {at} of 8 is not a finite number"));
    let range = |at: usize| Err(format!("prediction {at} of 8 is not between -1000 and 1000000 W"));
    assert_eq!(texts, [Ok(1.0), number(2), range(3), number(4), range(5), Ok(-5.0), number(7), number(8)]);
}

#[rstest]
#[case("NaN")]
#[case("nan")]
#[case("-Infinity")]
#[case("Infinity")]
#[case("-inf")]
#[case("1e999")]
fn a_number_that_json_does_not_have_is_that_of_one_node(#[case] number: &str) {
    let answer = format!(
        r#"{{"parameters": {{"note": "NaN, \" Infinity", "load": NaN}}, "outputs": [{{"data": [94.5, {number}, 100]}}]}}"#
    );
    let found = watts(StatusCode::OK, answer.as_bytes(), ExpectedOutput { name: None, rows: 3 }).unwrap();
    let texts: Vec<_> = found.into_iter().map(|one| one.map_err(|error| error.to_string())).collect();
    assert_eq!(texts, [Ok(94.5), Err("prediction 2 of 3 is not a finite number".into()), Ok(100.0)]);
}

#[rstest]
#[case(json!([1]), "the model gives 1 predictions for 2 rows")]
#[case(json!([1, 2, 3]), "the model gives 3 predictions for 2 rows")]
#[case(json!([]), "the model gives 0 predictions for 2 rows")]
#[case(json!(null), "the model gives 0 predictions for 2 rows")]
fn a_prediction_too_few_or_too_many_is_nobodys(#[case] data: Value, #[case] words: &str) {
    assert_eq!(read(&data, 2).unwrap_err().to_string(), words);
}

#[test]
fn elements_are_counted_beyond_the_limit() {
    let error = read(&json!(vec![1; 1500]), 2).unwrap_err();
    assert_eq!(error.to_string(), "the model gives 1500 predictions for 2 rows");
    assert_eq!(read(&json!(vec![1; MAX_ROWS]), MAX_ROWS).map(|all| all.len()), Ok(MAX_ROWS));
}

const REFUSED: &str = "the server answers 400 Bad Request: check that the model takes rows of processor usage, inlet \
                       temperature and differential pressure";

#[rstest]
#[case(404, "hunter2", "the server answers 404 Not Found: it has no model of this name and version")]
#[case(400, "{}", REFUSED)]
#[case(500, "hunter2", "the server answers 500 Internal Server Error: check that the model takes")]
#[case(412, "{}", "the server answers 412 Precondition Failed: check that the model takes")]
#[case(
    501,
    "hunter2",
    "the server answers 501 Not Implemented: KServe's own server has no versions; remove /versions/"
)]
#[case(503, "hunter2", "the server answers 503 Service Unavailable")]
#[case(200, "<html>hunter2", "the answer is no JSON document: error at line 1, column 1")]
#[case(200, r#"{"outputs": [{"data": [hunter2]}]}"#, "the answer is no JSON document: error at line 1, column 24")]
#[case(200, r#"{"error": "hunter2"}"#, "the answer has no outputs[0].data")]
#[case(200, r#"{"outputs": []}"#, "the answer has no outputs[0].data")]
fn an_answer_without_predictions_has_words(#[case] status: u16, #[case] body: &str, #[case] words: &str) {
    let status = StatusCode::from_u16(status).unwrap();
    let found = watts(status, body.as_bytes(), ExpectedOutput { name: None, rows: 1 }).unwrap_err().to_string();
    assert!(found.starts_with(words) && !found.contains("hunter2"), "{found}");
}

#[test]
fn lists_within_lists_without_end_are_no_prediction() {
    let deep = format!(r#"{{"outputs": [{{"data": {}1{}}}]}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(watts(StatusCode::OK, deep.as_bytes(), ExpectedOutput { name: None, rows: 1 }).is_err());
}

proptest! {
    #[test]
    fn an_address_with_a_model_keeps_its_names(name in "[a-zA-Z0-9._-]{1,20}", version in "[a-z0-9]{1,9}") {
        prop_assume!(!matches!(name.as_str(), "." | ".."));
        let model = InferenceModel::parse(&format!("http://s/v2/models/{name}/versions/{version}"));
        let model = model.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(model.url(), format!("http://s/v2/models/{name}/versions/{version}/infer"));
        prop_assert_eq!((model.name(), model.version()), (name.as_str(), Some(version.as_str())));
    }

    #[test]
    fn predictions_come_in_the_order_of_the_rows(all in prop::collection::vec(0.0..2_000.0_f64, 1..50),
        split in 1..9_usize) {
        let nested: Vec<_> = all.chunks(split).collect();
        let found = read(&json!(nested), all.len()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(found.len(), all.len());
        for (found, expected) in found.into_iter().zip(all) {
            prop_assert!(found.is_ok_and(|found| (found - expected).abs() < 1e-9));
        }
    }
}
