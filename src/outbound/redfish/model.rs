//! Power model of a machine, from WAO's extension Machine Learning Model Management.

use reqwest::Url;

use super::document::BmcObject;
use super::walk::RedfishSearch;
use super::{Error, Fetch};
use crate::web::parse;

/// Maximum number of systems that are searched.
const SYSTEMS: usize = 8;

/// Maximum lengths of the URL of a server, and of the name and the version of a model.
const URL: usize = 1024;
const NAME: usize = 128;

/// Model on an inference server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEndpoint {
    /// Protocol of the server, such as `V2InferenceProtocol`.
    pub type_: String,
    /// URL of the server.
    pub url: Url,
    /// Name of the model.
    pub name: String,
    /// Version of the model. None: the server's default.
    pub version: Option<String>,
}

impl ModelEndpoint {
    /// URL for predictions.
    pub fn infer_url(&self) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["v2", "models", &self.name]);
            path.extend(self.version.iter().flat_map(|version| ["versions", version]));
            path.push("infer");
        }
        url
    }
}

/// Reads the power model of the first system that has one.
pub async fn model<F: Fetch>(fetch: &F) -> Result<ModelEndpoint, Error> {
    let mut walk = RedfishSearch::new(fetch);
    // A server that only serves models may have no service root.
    let root = walk.root().await?;
    let systems = root.as_ref().and_then(|root| root.object().link("Systems"));
    let systems = systems.unwrap_or_else(|| "/redfish/v1/Systems".to_owned());
    drop(root);
    for path in walk.members(&systems).await?.into_iter().take(SYSTEMS) {
        let system = walk.get(&path).await?;
        let link = system.as_ref().and_then(|system| system.object().link("MachineLearningModel"));
        let link = link.unwrap_or_else(|| format!("{path}/MachineLearningModel"));
        let Some(models) = walk.get(&link).await? else { continue };
        if let Some(power) = models.object().object("PowerConsumptionModel") {
            return read(power);
        }
    }
    Err(walk.unread.map_or(Error::NoModel, Error::from))
}

fn read(model: BmcObject<'_>) -> Result<ModelEndpoint, Error> {
    let word = |name: &'static str| {
        let word = model.word(name).map(|word| word.trim().to_owned()).filter(|word| !word.is_empty());
        word.map(|word| if is_segment(&word) { Ok(word) } else { Err(Error::Model(name)) }).transpose()
    };
    let needed = |name| word(name)?.ok_or(Error::Model(name));
    let url = model.text("Url").filter(|url| url.len() <= URL).and_then(|url| parse(url.trim()).ok());
    let url = url.filter(|url| url.query().is_none() && url.fragment().is_none());
    Ok(ModelEndpoint {
        type_: needed("Type")?,
        url: url.ok_or(Error::Model("Url"))?,
        name: needed("Name")?,
        version: word("Version")?,
    })
}

/// Whether a text is a single path segment that may be shown.
fn is_segment(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.len() <= NAME && text.chars().all(is_plain) && text.chars().any(|c| c != '.')
}
