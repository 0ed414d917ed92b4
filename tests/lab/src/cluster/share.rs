//! How a node divides its CPU among its pods.

/// CPU that a pod wants, and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WantedCpu {
    /// Cores that the pod would use.
    pub cores: f64,
    /// Request of the pod in cores, above 0: the Linux scheduler divides a busy node's CPU in proportion to it.
    pub weight: f64,
}

/// Cores that each pod gets of this many: all that it wants if there is enough; otherwise CPU is divided by weight, and
/// what a pod does not want goes to the others.
pub fn divide(wanted: &[WantedCpu], cores: f64) -> Vec<f64> {
    let mut got: Vec<f64> = wanted.iter().map(|wanted| wanted.cores).collect();
    if got.iter().sum::<f64>() <= cores {
        return got;
    }
    // Pods with the least demand per weight are satisfied first.
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let level = |index: &usize| wanted[*index].cores / wanted[*index].weight;
    order.sort_by(|one, other| level(one).total_cmp(&level(other)));
    let (mut left, mut weight) = (cores, wanted.iter().map(|wanted| wanted.weight).sum::<f64>());
    for index in order {
        let share = left * wanted[index].weight / weight;
        got[index] = wanted[index].cores.min(share);
        left -= got[index];
        weight -= wanted[index].weight;
    }
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(wanted: &[(f64, f64)], cores: f64) -> Vec<f64> {
        let wanted: Vec<WantedCpu> = wanted.iter().map(|&(cores, weight)| WantedCpu { cores, weight }).collect();
        divide(&wanted, cores)
    }

    #[test]
    fn each_pod_gets_what_it_wants_if_there_is_enough() {
        assert_eq!(divided(&[(3.0, 1.0), (1.0, 4.0)], 4.0), [3.0, 1.0]);
    }

    #[test]
    fn a_busy_node_divides_by_requests() {
        assert_eq!(divided(&[(9.0, 1.0), (9.0, 3.0)], 8.0), [2.0, 6.0]);
    }

    #[test]
    fn unused_shares_go_to_the_others() {
        assert_eq!(divided(&[(1.0, 2.0), (9.0, 1.0), (9.0, 1.0)], 8.0), [1.0, 3.5, 3.5]);
        let got = divided(&[(5.0, 2.0), (4.0, 1.0), (0.0, 1.0)], 6.0);
        assert!((got.iter().sum::<f64>() - 6.0).abs() < 1e-9, "{got:?}");
    }
}
