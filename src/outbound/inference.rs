//! Predicted power of nodes, from a server with the V2 inference protocol (KServe, MLServer, OpenVINO, Triton).

use std::fmt;

use reqwest::StatusCode;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::Error;
use super::value::{ValueError, is_plain_name};
use super::web::{good, parse};
use ganglion_core::amounts::or_default;
use ganglion_core::document::{parsed, parsed_without_nan};
use ganglion_core::items::Items;
use ganglion_core::power_curve::PowerInput;

pub const CONTENT_TYPE: &str = "application/json";

/// Maximum number of nodes in one request.
pub const MAX_ROWS: usize = 1000;

/// Valid range of predicted power in watts. A regression may predict slightly negative power for an idle node. It is
/// kept unchanged, because the difference between two predictions matters.
const WATTS: std::ops::RangeInclusive<f64> = -1_000.0..=1_000_000.0;

/// Name of the input in WAO's models, if the server does not describe the model.
const INPUT: &str = "predict-prob";

/// Number of columns of the input.
const COLUMNS: usize = 3;

/// Maximum number of inputs in a description that are read.
const MAX_INPUTS: usize = 16;

/// Maximum number of dimensions of an input that are read.
const MAX_DIMENSIONS: usize = 8;

/// Name of the output with the power, if a model has several and the spec names none.
const OUTPUT: &str = "power";

/// Maximum number of outputs in an answer that are read.
const MAX_OUTPUTS: usize = 16;

const NO_MODEL: &str = "the address does not name a model: it must end with /v2/models/MODEL/infer or \
                        /v2/models/MODEL/versions/VERSION/infer";

/// Model on a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InferenceModel {
    url: String,
    name: String,
    version: Option<String>,
}

impl InferenceModel {
    /// Parses the URL of a model: `…/v2/models/NAME/infer` or `…/v2/models/NAME/versions/VERSION/infer`. `/infer` is
    /// optional.
    pub fn parse(endpoint: &str) -> Result<Self, ValueError> {
        let mut url = parse(endpoint)?;
        let parts: Vec<_> = url.path().split('/').filter(|part| !part.is_empty()).collect();
        let models = parts.windows(2).position(|two| two == ["v2", "models"]);
        let model = models.and_then(|at| parts.get(at.saturating_add(2)..)).unwrap_or_default();
        let (name, version) = match *model {
            [name] | [name, "infer"] => (name.to_owned(), None),
            [name, "versions", version] | [name, "versions", version, "infer"] => {
                (name.to_owned(), Some(version.to_owned()))
            }
            _ => return Err(ValueError::Unfit(NO_MODEL.to_owned())),
        };
        let infer = if model.len() % 2 == 1 { "/infer" } else { "" };
        let path = format!("/{}{infer}", parts.join("/"));
        url.set_path(&path);
        url.set_fragment(None);
        Ok(Self { url: url.into(), name, version })
    }

    /// URL for predictions.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Name of the model, as in the URL.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Version of the model, as in the URL. None: the server's default.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// URL of the model's description.
    pub fn metadata_url(&self) -> String {
        let (path, query) =
            self.url.split_once('?').map_or((self.url.as_str(), None), |(path, query)| (path, Some(query)));
        let path = path.strip_suffix("/infer").unwrap_or(path);
        query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
    }
}

/// Form of the numbers of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputType {
    Fp32,
    Fp64,
    /// Whole numbers of this type: inputs are rounded.
    Whole(&'static str),
}

impl InputType {
    /// Type of this name. None: JSON has no form for its elements, or they are no numbers.
    fn parse(name: &str) -> Option<Self> {
        let whole = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"];
        match name {
            "FP32" => Some(Self::Fp32),
            "FP64" => Some(Self::Fp64),
            name => whole.into_iter().find(|one| *one == name).map(Self::Whole),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Whole(name) => name,
        }
    }
}

/// Number of rows in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowCount {
    /// Any number that the server accepts.
    Any,
    /// Exactly this many: the last row is repeated.
    Fixed(usize),
    /// One, without a dimension for it.
    One,
}

/// Input of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputLayout {
    name: String,
    datatype: InputType,
    rows: RowCount,
}

impl Default for InputLayout {
    /// Input of WAO's models.
    fn default() -> Self {
        Self { name: INPUT.to_owned(), datatype: InputType::Fp32, rows: RowCount::Any }
    }
}

/// Description of a model.
#[derive(Deserialize)]
struct ModelMetadata {
    #[serde(default)]
    inputs: Items<TensorMetadata, MAX_INPUTS>,
}

#[derive(Deserialize)]
struct TensorMetadata {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    datatype: String,
    #[serde(default)]
    shape: Items<i64, MAX_DIMENSIONS>,
}

impl InputLayout {
    /// Parses the description of a model: its only input, or that of WAO's name. The default if the server does not
    /// describe the input. Fails if the model takes other inputs.
    pub fn parse(status: StatusCode, body: &[u8]) -> Result<Self, ValueError> {
        let described = good(status).is_ok().then(|| parsed::<ModelMetadata>(body).ok()).flatten();
        let Some(Items { mut kept, count: 1.. }) = described.map(|model| model.inputs) else {
            return Ok(Self::default());
        };
        let at = match kept.iter().position(|input| input.name == INPUT) {
            Some(at) => at,
            None if kept.len() == 1 => 0,
            None => {
                let words = format!("the model has {} inputs, not one with {COLUMNS} columns", kept.len());
                return Err(ValueError::Invalid(words));
            }
        };
        let TensorMetadata { name, datatype, shape } = kept.swap_remove(at);
        let columns = shape.kept.last().copied().unwrap_or(-1);
        if usize::try_from(columns).is_ok_and(|columns| columns != COLUMNS) {
            return Err(ValueError::Invalid(format!(
                "the input of the model has {columns} columns, not {COLUMNS}: processor usage, inlet temperature and \
                 differential pressure"
            )));
        }
        let rows = match (shape.count, shape.kept.first()) {
            (1, _) => RowCount::One,
            (2, Some(rows @ 1..)) => RowCount::Fixed(usize::try_from(*rows).unwrap_or(MAX_ROWS).min(MAX_ROWS)),
            _ => RowCount::Any,
        };
        let datatype = if datatype.is_empty() { InputType::Fp32.as_str() } else { &datatype };
        let datatype = InputType::parse(datatype).ok_or_else(|| {
            ValueError::Invalid("the type of the model's input is none of FP32, FP64 and whole numbers".to_owned())
        })?;
        Ok(Self { name, datatype, rows })
    }

    /// Maximum number of rows in a request.
    pub fn max_rows(&self) -> usize {
        match self.rows {
            RowCount::Any => MAX_ROWS,
            RowCount::Fixed(rows) => rows,
            RowCount::One => 1,
        }
    }

    /// Number of rows that a request for this many rows contains.
    pub fn sent_rows(&self, rows: usize) -> usize {
        match self.rows {
            RowCount::Any | RowCount::One => rows,
            RowCount::Fixed(fixed) => fixed.max(rows),
        }
    }

    fn shape(&self, rows: usize) -> Vec<usize> {
        match self.rows {
            RowCount::One => vec![COLUMNS],
            RowCount::Any | RowCount::Fixed(_) => vec![self.sent_rows(rows), COLUMNS],
        }
    }
}

#[derive(Serialize)]
struct InferenceRequest<'a> {
    inputs: [Input<'a>; 1],
}

#[derive(Serialize)]
struct Input<'a> {
    name: &'a str,
    shape: Vec<usize>,
    datatype: &'static str,
    data: InputData,
}

/// Numbers row by row.
#[derive(Serialize)]
#[serde(untagged)]
enum InputData {
    Fp32(Vec<f32>),
    Fp64(Vec<f64>),
    Whole(Vec<i64>),
}

impl InputData {
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the type: a cast saturates")]
    fn new(datatype: InputType, data: impl Iterator<Item = f64>) -> Self {
        match datatype {
            InputType::Fp32 => Self::Fp32(data.map(|input| input as f32).collect()),
            InputType::Fp64 => Self::Fp64(data.collect()),
            InputType::Whole(_) => Self::Whole(data.map(|input| input.round() as i64).collect()),
        }
    }
}

/// Creates the body of a request for 1 to [`MAX_ROWS`] rows. Fails on inputs that are not finite: JSON cannot represent
/// them.
pub fn request(rows: &[PowerInput], layout: &InputLayout) -> Result<Vec<u8>, ValueError> {
    if rows.is_empty() || rows.len() > MAX_ROWS {
        return Err(ValueError::Unfit(format!("a prediction is for 1 to {MAX_ROWS} nodes, not for {}", rows.len())));
    }
    let columns = |row: &PowerInput| [row.usage, row.inlet_celsius, row.pascals];
    for (row, inputs) in (1_usize..).zip(rows.iter().map(columns)) {
        let names = ["processor usage", "inlet temperature", "differential pressure"];
        for (name, input) in names.into_iter().zip(inputs) {
            if input.abs() > f64::from(f32::MAX) || input.is_nan() {
                return Err(ValueError::Unfit(format!("the {name} of row {row} is not a finite number")));
            }
        }
    }
    let padding = layout.sent_rows(rows.len()).saturating_sub(rows.len());
    let padded = rows.iter().chain(rows.last().into_iter().cycle().take(padding));
    let input = Input {
        name: &layout.name,
        shape: layout.shape(rows.len()),
        datatype: layout.datatype.as_str(),
        data: InputData::new(layout.datatype, padded.flat_map(columns)),
    };
    serde_json::to_vec(&InferenceRequest { inputs: [input] }).map_err(|error| ValueError::Unfit(error.to_string()))
}

/// Answer of the server.
#[derive(Deserialize)]
struct InferenceReply {
    #[serde(default)]
    outputs: Items<InferenceOutput, MAX_OUTPUTS>,
}

#[derive(Deserialize)]
struct InferenceOutput {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    data: Predictions,
}

/// Selects the output of this name, or else the only output, or else the one that is named `power`. The order of the
/// outputs has no meaning.
fn select(outputs: Items<InferenceOutput, MAX_OUTPUTS>, name: Option<&str>) -> Result<InferenceOutput, ValueError> {
    let Items { mut kept, count } = outputs;
    let wanted = name.unwrap_or(OUTPUT);
    let of_name: Vec<usize> =
        (0..kept.len()).filter(|at| kept.get(*at).is_some_and(|one| one.name == wanted)).collect();
    let names = || {
        let plain: Vec<&str> = kept.iter().map(|one| one.name.as_str()).filter(|name| is_shown(name)).collect();
        if plain.is_empty() { "without a name that can be shown".to_owned() } else { plain.join(", ") }
    };
    match (of_name.as_slice(), name) {
        _ if count == 0 => Err(ValueError::Invalid("the answer has no outputs[0].data".to_owned())),
        (_, None) if count == 1 => Ok(kept.swap_remove(0)),
        ([at], _) => Ok(kept.swap_remove(*at)),
        ([], Some(name)) => Err(ValueError::Invalid(format!(
            "the model has no output {name}: set output to one of its outputs ({})",
            names()
        ))),
        ([], None) => Err(ValueError::Ambiguous(format!(
            "the model has {count} outputs ({}), none of them named {OUTPUT}: set output to the name of the one with the \
             power",
            names()
        ))),
        (several, _) => {
            Err(ValueError::Ambiguous(format!("the model has {} outputs of the name {wanted}", several.len())))
        }
    }
}

/// Whether the name of an output may be shown. TensorFlow's have a colon, such as `dense/BiasAdd:0`.
fn is_shown(name: &str) -> bool {
    !name.contains("://") && is_plain_name(&name.replace(':', "_"))
}

/// Predictions to find in an answer.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedOutput<'a> {
    /// Name of the output. None: the only output, or the one that is named `power`.
    pub name: Option<&'a str>,
    /// Number of rows in the request.
    pub rows: usize,
}

/// Parses the predicted watts in the order of the request. If the server refuses the rows, or the number of predictions
/// is not theirs, the error is [`ValueError::Rejected`]: fewer rows may work.
/// A prediction that is not finite or out of range is an error of its own row only.
pub fn watts(
    status: StatusCode,
    body: &[u8],
    expected: ExpectedOutput<'_>,
) -> Result<Vec<Result<f64, ValueError>>, ValueError> {
    match status {
        StatusCode::NOT_FOUND => {
            let words = format!("the server answers {status}: it has no model of this name and version");
            return Err(ValueError::NotFound(words));
        }
        StatusCode::NOT_IMPLEMENTED => {
            let words = format!(
                "the server answers {status}: KServe's own server has no versions; remove /versions/VERSION from the \
                 address"
            );
            return Err(ValueError::NotFound(words));
        }
        // MLServer answers 500 if the model fails on its input, and OpenVINO 412 if it cannot be reshaped for it.
        StatusCode::BAD_REQUEST
        | StatusCode::PRECONDITION_FAILED
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY
        | StatusCode::INTERNAL_SERVER_ERROR => {
            let words = format!(
                "the server answers {status}: check that the model takes rows of processor usage, inlet temperature and \
                 differential pressure"
            );
            return Err(ValueError::Rejected(words));
        }
        status => good(status)?,
    }
    let reply: InferenceReply = parsed_without_nan(body).map_err(Error::Answer)?;
    let ExpectedOutput { name, rows } = expected;
    let Predictions { kept, count } = select(reply.outputs, name)?.data;
    if count != rows || kept.len() != rows {
        return Err(ValueError::Rejected(format!("the model gives {count} predictions for {rows} rows")));
    }
    let checked = kept.into_iter().enumerate().map(|(at, watts)| {
        let number = at.saturating_add(1);
        let watts = watts.filter(|watts| watts.is_finite());
        let watts = watts.ok_or_else(|| format!("prediction {number} of {rows} is not a finite number"))?;
        let (from, to) = (WATTS.start(), WATTS.end());
        if WATTS.contains(&watts) {
            Ok(watts)
        } else {
            Err(format!("prediction {number} of {rows} is not between {from} and {to} W"))
        }
    });
    Ok(checked.map(|one| one.map_err(ValueError::Invalid)).collect())
}

/// First [`MAX_ROWS`] elements of a tensor, and the total number of elements. Servers return `[a, b]`, `[[a], [b]]` or
/// deeper lists for the same tensor. An element is None if it is not a number.
#[derive(Default)]
struct Predictions {
    kept: Vec<Option<f64>>,
    count: usize,
}

impl Predictions {
    fn add(&mut self, element: Option<f64>) {
        self.count = self.count.saturating_add(1);
        if self.kept.len() < MAX_ROWS {
            self.kept.push(element);
        }
    }
}

impl<'de> Deserialize<'de> for Predictions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = Self::default();
        deserializer.deserialize_any(Elements(&mut found))?;
        Ok(found)
    }
}

/// Collects the elements of nested lists. The parser bounds the depth.
struct Elements<'p>(&'p mut Predictions);

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Elements(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.0.add(None);
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.0.add(Some(number));
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.0.add(Some(number as f64));
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.0.add(Some(number as f64));
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.0.add(None);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.0.add(None);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.add(None);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
