//! The source `prometheus`: queries a Prometheus server.

use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::metric::Prometheus;
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_loops_plan::sources;
use ganglion_outbound::client::{Outgoing, Unanswered};
use ganglion_outbound::prometheus;

impl PolledSource for Prometheus {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let url = prometheus::query_url(&self.url, &self.query)?;
        let request = Outgoing {
            url: url.as_str(),
            auth: self.auth.as_ref(),
            ca: self.ca.as_ref(),
            headers: self.headers.as_deref().unwrap_or_default(),
            within: reader.within,
        };
        let answer = reader.sources.outbound.get(&reader.account, request).await?;
        let point = prometheus::point(answer.status, answer.body())?;
        Ok(sources::queried(point.value, point.at, reader.sources.ctx.now())?)
    }
}
