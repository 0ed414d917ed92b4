//! The fleets: which servers a simulated cluster has, and where they are.
//!
//! The fleets are fixed in `data/fleets.csv`, the power of the server models in `data/power.csv`.

mod heat;
mod power;

use std::io::BufRead;
use std::sync::Arc;

pub use heat::HeatModel;
pub use power::{PowerTable, ServerModel};

use crate::csv::{CsvFile, CsvHeader, CsvRecord, DataFault};

/// Memory of a server in GiB per thread. Published results have only as much memory as the benchmark needs.
pub const GIB_PER_THREAD: f64 = 4.0;

const FLEETS_COLUMNS: &[&str] = &["fleet", "site", "model", "count"];

/// Maximum number of servers of a fleet.
const MAX_SERVERS: f64 = 10_000.0;

/// Servers that form one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerFleet {
    pub name: String,
    pub servers: Vec<FleetServer>,
}

/// A server of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetServer {
    /// Index of the site. Pods of a pool run on one site.
    pub site: usize,
    pub model: Arc<ServerModel>,
}

impl ServerFleet {
    /// The fleets of the comparison, in the order of their file.
    pub fn all() -> Result<Vec<Self>, DataFault> {
        let power = PowerTable::parse("power.csv", &include_bytes!("../../data/power.csv")[..])?;
        Self::parse("fleets.csv", &include_bytes!("../../data/fleets.csv")[..], &power)
    }

    /// Reads fleets whose models are in this table.
    pub fn parse(file: &str, reader: impl BufRead, power: &PowerTable) -> Result<Vec<Self>, DataFault> {
        let mut fleets: Vec<Self> = Vec::new();
        let mut sites: Vec<String> = Vec::new();
        for record in CsvFile::new(file, reader, FLEETS_COLUMNS, CsvHeader::Present)? {
            let record = record?;
            let name = record.name("fleet")?;
            if fleets.last().is_none_or(|fleet| fleet.name != name) {
                if fleets.iter().any(|fleet| fleet.name == name) {
                    return Err(record.fault("fleet", format!("the lines of {name} are not together")));
                }
                fleets.push(Self { name: name.to_owned(), servers: Vec::new() });
                sites.clear();
            }
            let site = record.name("site")?;
            let known = sites.iter().position(|known| known == site);
            let site = known.unwrap_or_else(|| {
                sites.push(site.to_owned());
                sites.len() - 1
            });
            let model = power.model(&record, "model")?;
            let servers = &mut fleets.last_mut().ok_or_else(|| record.fault("fleet", "is empty"))?.servers;
            for _ in 0..count(&record)? {
                servers.push(FleetServer { site, model: Arc::clone(&model) });
            }
        }
        Ok(fleets)
    }

    /// Threads of all servers.
    pub fn threads(&self) -> f64 {
        self.servers.iter().map(|server| server.model.threads).sum()
    }

    /// Number of sites.
    pub fn sites(&self) -> usize {
        self.servers.iter().map(|server| server.site + 1).max().unwrap_or(0)
    }
}

fn count(record: &CsvRecord) -> Result<usize, DataFault> {
    let number = record.positive("count")?;
    if number.fract() != 0.0 || number > MAX_SERVERS {
        return Err(record.fault("count", format!("{number} is not a whole number up to {MAX_SERVERS}")));
    }
    Ok(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POWER: &str = "model,threads,idle_watts,full_watts,published,source\nold,16,60,250,2012-11,SPECpower\n";

    fn parse(text: &str) -> Result<Vec<ServerFleet>, String> {
        let power = PowerTable::parse("power.csv", POWER.as_bytes()).unwrap();
        ServerFleet::parse("fleets.csv", text.as_bytes(), &power).map_err(|fault| fault.to_string())
    }

    #[test]
    fn the_three_fleets_are_complete() {
        let fleets = ServerFleet::all().unwrap();
        let names: Vec<&str> = fleets.iter().map(|fleet| fleet.name.as_str()).collect();
        assert_eq!(names, ["homogeneous", "mixed", "edge"]);
        let models = |fleet: &ServerFleet| {
            fleet
                .servers
                .iter()
                .map(|server| server.model.name.clone())
                .collect::<std::collections::BTreeSet<_>>()
                .len()
        };
        assert_eq!(fleets.iter().map(models).collect::<Vec<_>>(), [1, 3, 1]);
        assert_eq!(fleets.iter().map(ServerFleet::sites).collect::<Vec<_>>(), [1, 1, 6]);
    }

    #[test]
    fn lines_of_a_fleet_add_servers() {
        let fleets = parse("fleet,site,model,count\na,x,old,2\na,y,old,1\nb,x,old,1\n").unwrap();
        assert_eq!(fleets.iter().map(|fleet| fleet.servers.len()).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(fleets[0].servers.iter().map(|server| server.site).collect::<Vec<_>>(), [0, 0, 1]);
        assert!((fleets[0].threads() - 48.0).abs() < 1e-9);
    }

    #[test]
    fn faults_name_file_line_and_field() {
        let header = "fleet,site,model,count\n";
        for (text, expected) in [
            ("a,x,new,1\n", "fleets.csv, line 2, field model: new is not in power.csv"),
            ("a,x,old,0\n", "fleets.csv, line 2, field count: 0 is not above 0"),
            ("a,x,old,1.5\n", "fleets.csv, line 2, field count: 1.5 is not a whole number"),
            ("a,x,old,1\nb,x,old,1\na,x,old,1\n", "fleets.csv, line 4, field fleet: the lines of a are not together"),
            ("a,,old,1\n", "fleets.csv, line 2, field site: is empty"),
        ] {
            let problem = parse(&format!("{header}{text}")).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
