//! Requests to a BMC.

use super::{Document, Fetch};
use crate::Error;
use crate::web::{Call, Web, parse};

/// BMC over HTTP. Redirects on the same server are followed.
pub struct Bmc<'a> {
    web: &'a Web,
    call: Call,
}

impl<'a> Bmc<'a> {
    /// BMC at the host of this request; the path of its URL is ignored.
    pub fn new(web: &'a Web, call: Call) -> Self {
        Self { web, call: Call { redirects: true, ..call } }
    }
}

impl Fetch for Bmc<'_> {
    async fn get(&self, path: &str) -> Result<Document, Error> {
        let mut url = parse(&self.call.url)?;
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        // A path cannot change the host this way.
        url.set_path(path);
        url.set_query(query);
        url.set_fragment(None);
        let answer = self.web.get(&Call { url: url.into(), ..self.call.clone() }).await?;
        Document::parse(answer.good()?)
    }
}
