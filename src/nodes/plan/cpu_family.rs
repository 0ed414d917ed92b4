//! Power of processor families, for nodes whose watts nobody has measured.

use ganglion_api::node_config::source::CpuFamily;
use ganglion_core::power_curve::PowerLine;

/// Watts of one hardware thread, idle and fully used: from cloud-carbon-footprint/ccf-coefficients (Apache-2.0) at
/// b0032d9, file `coefficients-aws-use.csv`, from results of SPECpower_ssj2008.
fn per_thread(family: CpuFamily) -> PowerLine {
    let (idle, full) = match family {
        CpuFamily::CascadeLake => (0.69, 4.06),
        CpuFamily::IceLake => (0.77, 3.76),
        CpuFamily::SapphireRapids => (1.04, 4.16),
        CpuFamily::EpycGen2 => (0.47, 1.69),
        CpuFamily::EpycGen3 => (0.46, 1.96),
        CpuFamily::EpycGen4 => (0.74, 2.28),
    };
    PowerLine { idle, full }
}

/// Power of a node of this family with this number of CPUs. None if the number is unknown.
pub fn line(family: CpuFamily, cpus: f64) -> Option<PowerLine> {
    let PowerLine { idle, full } = per_thread(family);
    (cpus.is_finite() && cpus > 0.0).then_some(PowerLine { idle: idle * cpus, full: full * cpus })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::cascade_lake(CpuFamily::CascadeLake, 69.0, 406.0)]
    #[case::ice_lake(CpuFamily::IceLake, 77.0, 376.0)]
    #[case::sapphire_rapids(CpuFamily::SapphireRapids, 104.0, 416.0)]
    #[case::epyc_2(CpuFamily::EpycGen2, 47.0, 169.0)]
    #[case::epyc_3(CpuFamily::EpycGen3, 46.0, 196.0)]
    #[case::epyc_4(CpuFamily::EpycGen4, 74.0, 228.0)]
    fn watts_grow_with_the_number_of_cpus(#[case] family: CpuFamily, #[case] idle: f64, #[case] full: f64) {
        let line = line(family, 100.0).unwrap();
        assert!((line.idle - idle).abs() < 1e-9 && (line.full - full).abs() < 1e-9, "{} {}", line.idle, line.full);
    }

    #[rstest]
    #[case(0.0)]
    #[case(-1.0)]
    #[case(f64::NAN)]
    #[case(f64::INFINITY)]
    fn a_node_without_capacity_has_no_line(#[case] cpus: f64) {
        assert!(line(CpuFamily::IceLake, cpus).is_none());
    }
}
