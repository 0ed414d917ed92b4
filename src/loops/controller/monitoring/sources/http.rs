//! The source `http`: reads a number in the JSON document of a server.

use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::metric::Http;
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_outbound::client::{Outgoing, Unanswered};

impl PolledSource for Http {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let request = Outgoing {
            url: &self.url,
            auth: self.auth.as_ref(),
            ca: self.ca.as_ref(),
            headers: self.headers.as_deref().unwrap_or_default(),
            within: reader.within,
        };
        let answer = reader.sources.outbound.get(&reader.account, request).await?;
        Ok(answer.number(&self.path)?.into())
    }
}
