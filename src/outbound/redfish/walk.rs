//! Requests of one search, bounded in number.

use super::document::{Document, Object};
use super::path::is_page;
use super::sensor::Sensor;
use super::{Error, Fetch, names};
use crate as clients;

/// Maximum number of requests of one search.
pub(super) const REQUESTS: usize = 128;

/// Maximum number of members of a collection that are asked for one by one, unless a user names one of them.
const MEMBERS: usize = 64;

/// Maximum number of members of a collection, and of pages that they come on.
const LISTED: usize = 1024;
const PAGES: usize = 8;

/// How a service expands the members of a collection, the better way first: property of ExpandQuery, and the query.
const EXPANSIONS: [(&str, &str); 2] = [("NoLinks", "?$expand=.($levels=1)"), ("ExpandAll", "?$expand=*($levels=1)")];

/// The requests of one search.
pub(super) struct Walk<'a, F> {
    fetch: &'a F,
    left: usize,
    /// The query that expands members, if the service says that it can.
    expansion: Option<&'static str>,
    /// Why a document that exists could not be read. It matters if nothing is found.
    pub unread: Option<clients::Error>,
}

impl<'a, F: Fetch> Walk<'a, F> {
    pub(super) fn new(fetch: &'a F) -> Self {
        Self { fetch, left: REQUESTS, expansion: None, unread: None }
    }

    /// The document at this path; none if there is none that can be read.
    pub(super) async fn get(&mut self, path: &str) -> Result<Option<Document>, Error> {
        self.left = self.left.checked_sub(1).ok_or(Error::TooManyRequests)?;
        match self.fetch.get(path).await {
            Ok(document) => Ok(Some(document)),
            Err(error) if is_missing(&error) => Ok(None),
            // One broken resource must not hide the others. Whoever refuses a login or is busy is not asked for more.
            Err(error @ (clients::Error::Answer(_) | clients::Error::TooLong(_))) => {
                self.unread.get_or_insert(error);
                Ok(None)
            }
            Err(clients::Error::Status(status)) if matches!(status.as_u16(), 400 | 405 | 500 | 501) => {
                self.unread.get_or_insert(clients::Error::Status(status));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The service root, if there is one.
    pub(super) async fn root(&mut self) -> Result<Option<Document>, Error> {
        let root = self.get("/redfish/v1/").await?;
        let features = root.as_ref().and_then(|root| root.object().object("ProtocolFeaturesSupported"));
        let expand = features.and_then(|features| features.object("ExpandQuery"));
        let can = |property| {
            let said = expand.and_then(|expand| expand.value(property)).and_then(serde_json::Value::as_bool);
            said.unwrap_or_default()
        };
        self.expansion = EXPANSIONS.into_iter().find(|(property, _)| can(property)).map(|(_, query)| query);
        Ok(root)
    }

    /// The paths of the members of a collection.
    pub(super) async fn members(&mut self, collection: &str) -> Result<Vec<String>, Error> {
        self.collect(collection.to_owned(), |member| member.id().map(str::to_owned)).await
    }

    /// The sensors of a collection. `wanted`: one that is looked for, by name or id.
    pub(super) async fn sensors(&mut self, collection: &str, wanted: Option<&str>) -> Result<Vec<Sensor>, Error> {
        if let Some(query) = self.expansion {
            // Services that ignore the query answer with references, which are no sensors.
            let sensors = self.collect(format!("{collection}{query}"), Sensor::resource).await?;
            if !sensors.is_empty() {
                return Ok(sensors);
            }
        }
        let mut paths = self.members(collection).await?;
        let is_wanted = |path: &String| path.rsplit('/').next().is_some_and(|last| Some(last) == wanted);
        if paths.iter().any(is_wanted) {
            paths.retain(is_wanted);
        } else if wanted.is_none() && paths.len() > MEMBERS {
            paths.retain(|path| names::is_hint(path));
            paths.truncate(MEMBERS);
        }
        let mut sensors = Vec::new();
        for path in paths {
            let document = self.get(&path).await?;
            let path = super::SensorPath::resource(&path);
            sensors.extend(document.and_then(|document| Sensor::at(&document, &path)));
        }
        Ok(sensors)
    }

    /// What this reads off the members on the pages of a collection, of which one is in memory at a time.
    async fn collect<T>(&mut self, first: String, read: fn(Object<'_>) -> Option<T>) -> Result<Vec<T>, Error> {
        let (mut found, mut next) = (Vec::new(), Some(first));
        for _ in 0..PAGES {
            let Some(path) = next else { break };
            let Some(page) = self.get(&path).await? else { break };
            found.extend(page.object().objects("Members").filter_map(read));
            next = page.object().text("Members@odata.nextLink").filter(|next| is_page(next)).map(str::to_owned);
        }
        found.truncate(LISTED);
        Ok(found)
    }
}

/// Whether the resource does not exist.
pub(super) fn is_missing(error: &clients::Error) -> bool {
    matches!(error, clients::Error::Status(status) if matches!(status.as_u16(), 404 | 410))
}
