//! The source `object`: reads a field or condition of an object.

use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::metric::ObjectField;
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_loops_plan::sources;
use ganglion_outbound::client::Unanswered;

impl PolledSource for ObjectField {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let Self { api_version, kind, name, .. } = self;
        let id = TargetRef { api_version: api_version.clone(), kind: kind.clone(), name: name.clone() };
        Ok(sources::field_value(self, &reader.object(&id).await?.bytes)?)
    }
}
