//! Power of server models: idle and full watts of published results.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;

use crate::csv::{CsvFile, CsvHeader, CsvRecord, DataFault};

const COLUMNS: &[&str] = &["model", "threads", "idle_watts", "full_watts", "published", "source"];

/// A model of server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerModel {
    pub name: String,
    /// Hardware threads, which Kubernetes counts as CPUs.
    pub threads: f64,
    pub idle_watts: f64,
    pub full_watts: f64,
}

impl ServerModel {
    /// Watts at a usage between 0 and 1: a straight line between the two published points.
    pub fn watts(&self, usage: f64) -> f64 {
        self.idle_watts + (self.full_watts - self.idle_watts) * usage.clamp(0.0, 1.0)
    }

    /// Additional watts for one more core in use.
    pub fn watts_per_core(&self) -> f64 {
        (self.full_watts - self.idle_watts) / self.threads
    }
}

/// Server models by name.
#[derive(Clone, Debug)]
pub struct PowerTable {
    file: String,
    models: BTreeMap<String, Arc<ServerModel>>,
}

impl PowerTable {
    /// Reads a table of models. The columns `published` and `source` must not be empty.
    pub fn parse(file: &str, reader: impl BufRead) -> Result<Self, DataFault> {
        let mut models = BTreeMap::new();
        for record in CsvFile::new(file, reader, COLUMNS, CsvHeader::Present)? {
            let record = record?;
            let model = model(&record)?;
            if models.contains_key(&model.name) {
                return Err(record.fault("model", format!("{} is in the file twice", model.name)));
            }
            models.insert(model.name.clone(), Arc::new(model));
        }
        Ok(Self { file: file.to_owned(), models })
    }

    /// The model that a field of another file names.
    pub fn model(&self, record: &CsvRecord, column: &str) -> Result<Arc<ServerModel>, DataFault> {
        let name = record.name(column)?;
        let model = self.models.get(name).cloned();
        model.ok_or_else(|| record.fault(column, format!("{name} is not in {}", self.file)))
    }
}

fn model(record: &CsvRecord) -> Result<ServerModel, DataFault> {
    record.name("published")?;
    record.name("source")?;
    let idle_watts = record.amount("idle_watts")?;
    let full_watts = record.positive("full_watts")?;
    if full_watts < idle_watts {
        return Err(record.fault("full_watts", format!("{full_watts} is below idle_watts, {idle_watts}")));
    }
    let name = record.name("model")?.to_owned();
    Ok(ServerModel { name, threads: record.positive("threads")?, idle_watts, full_watts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<PowerTable, String> {
        let text = format!("{}\n{line}\n", COLUMNS.join(","));
        PowerTable::parse("power.csv", text.as_bytes()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn power_rises_on_a_line() {
        let table = parse("old,16,60,260,2012-11,SPECpower").unwrap();
        let model = &table.models["old"];
        assert_eq!([0.0, 0.5, 1.0, 2.0].map(|usage| model.watts(usage)), [60.0, 160.0, 260.0, 260.0]);
    }

    #[test]
    fn faults_name_file_line_and_field() {
        for (line, expected) in [
            ("old,16,60,50,2012-11,x", "power.csv, line 2, field full_watts: 50 is below idle_watts, 60"),
            ("old,0,60,250,2012-11,x", "power.csv, line 2, field threads: 0 is not above 0"),
            ("old,16,60,250,,x", "power.csv, line 2, field published: is empty"),
            ("old,16,60,250,2012-11,", "power.csv, line 2, field source: is empty"),
            ("a,1,1,2,2012,x\na,1,1,2,2012,x", "power.csv, line 3, field model: a is in the file twice"),
        ] {
            assert_eq!(parse(line).unwrap_err(), expected);
        }
    }
}
