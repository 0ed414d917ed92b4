//! The source `cron`: a number that depends on the time.

use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::metric::CronSource;
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_outbound::client::Unanswered;

impl PolledSource for CronSource {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let number = reader.cron.ok_or_else(|| "its windows cannot be parsed".to_owned())?;
        Ok(number.at(reader.sources.ctx.now()).to_owned().into())
    }
}
