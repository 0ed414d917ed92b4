//! Temperature of the intake air: the supplied air, and warm air that recirculates from all servers of the site.
//!
//! The model is linear, as in Tang, Gupta and Varsamopoulos, "Energy-Efficient Thermal-Aware Task Scheduling for
//! Homogeneous High-Performance Computing Data Centers", IEEE TPDS 19(11), 2008: `T_in = T_sup + D P`, with the powers
//! `P` of all servers and a matrix `D` of recirculation in kelvins per watt. Their `D` is of one hall. This one is made
//! up, with the same features: air mostly stays in its rack, and more of it reaches the upper servers.

use super::ServerFleet;

/// Temperature of the supplied air in degrees Celsius.
const SUPPLY: f64 = 20.0;

/// Servers of a rack, from the bottom to the top.
const RACK: usize = 8;

/// Rise of the intake temperature in kelvins, averaged over the servers of a site, if all of them run at full power.
const MEAN_RISE: f64 = 5.0;

/// Weight of a server in another rack, relative to one in the same rack.
const OTHER_RACK: f64 = 0.25;

/// Weights of the lowest and the highest place of a rack.
const HEIGHTS: (f64, f64) = (0.5, 1.5);

/// Recirculation between the servers of a fleet.
#[derive(Clone, Debug)]
pub struct HeatModel {
    /// Kelvins per watt: for each server its row of the matrix.
    rises: Vec<Vec<f64>>,
}

impl HeatModel {
    pub fn new(fleet: &ServerFleet) -> Self {
        let places = places(fleet);
        let weight = |to: usize, from: usize| {
            let ((site, rack, height), (other_site, other_rack, _)) = (places[to], places[from]);
            match (site == other_site, rack == other_rack) {
                (true, true) => height,
                (true, false) => height * OTHER_RACK,
                (false, _) => 0.0,
            }
        };
        let servers = 0..fleet.servers.len();
        let mut rises: Vec<Vec<f64>> =
            servers.clone().map(|to| servers.clone().map(|from| weight(to, from)).collect()).collect();
        let full: Vec<f64> = fleet.servers.iter().map(|server| server.model.full_watts).collect();
        for site in 0..fleet.sites() {
            let members: Vec<usize> = servers.clone().filter(|server| places[*server].0 == site).collect();
            let total: f64 = members.iter().map(|to| sum_product(&rises[*to], &full)).sum();
            let scale = if total > 0.0 { MEAN_RISE * members.len() as f64 / total } else { 0.0 };
            for to in members {
                rises[to].iter_mut().for_each(|rise| *rise *= scale);
            }
        }
        Self { rises }
    }

    /// Intake temperature of each server in degrees Celsius, for the watts of all servers.
    pub fn inlets(&self, watts: &[f64]) -> Vec<f64> {
        self.rises.iter().map(|row| SUPPLY + sum_product(row, watts)).collect()
    }
}

fn sum_product(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Site, rack and weight of the height of each server. Racks are filled in the order of the servers.
fn places(fleet: &ServerFleet) -> Vec<(usize, usize, f64)> {
    let mut counts = vec![0; fleet.sites()];
    let (lowest, highest) = HEIGHTS;
    let place = |server: &super::FleetServer| {
        let position = counts[server.site];
        counts[server.site] += 1;
        let height = (position % RACK) as f64 / (RACK - 1) as f64;
        (server.site, position / RACK, lowest + (highest - lowest) * height)
    };
    fleet.servers.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_hall_is_at_the_supply_temperature() {
        let fleets = ServerFleet::all().unwrap();
        let model = HeatModel::new(&fleets[0]);
        let inlets = model.inlets(&vec![0.0; fleets[0].servers.len()]);
        assert!(inlets.iter().all(|inlet| (inlet - SUPPLY).abs() < 1e-9));
    }

    #[test]
    fn full_power_raises_the_mean_of_each_site() {
        for fleet in ServerFleet::all().unwrap() {
            let watts: Vec<f64> = fleet.servers.iter().map(|server| server.model.full_watts).collect();
            let inlets = HeatModel::new(&fleet).inlets(&watts);
            for site in 0..fleet.sites() {
                let of_site: Vec<f64> = inlets
                    .iter()
                    .zip(&fleet.servers)
                    .filter(|(_, s)| s.site == site)
                    .map(|(inlet, _)| *inlet)
                    .collect();
                let mean = of_site.iter().sum::<f64>() / of_site.len() as f64;
                assert!((mean - SUPPLY - MEAN_RISE).abs() < 1e-9, "{}: {mean}", fleet.name);
            }
        }
    }

    #[test]
    fn air_rises_within_its_rack_and_stays_on_its_site() {
        let fleets = ServerFleet::all().unwrap();
        let (hall, edge) = (&fleets[0], &fleets[2]);
        let mut watts = vec![0.0; hall.servers.len()];
        watts[0] = 200.0;
        let inlets = HeatModel::new(hall).inlets(&watts);
        assert!(inlets[RACK - 1] > inlets[0], "the top is warmer");
        assert!(inlets[0] > inlets[RACK] && inlets[RACK] > SUPPLY, "another rack gets less");
        let mut watts = vec![0.0; edge.servers.len()];
        watts[0] = 90.0;
        let inlets = HeatModel::new(edge).inlets(&watts);
        assert!((inlets[4] - SUPPLY).abs() < 1e-9, "another site gets nothing");
    }
}
