//! Namespaces in which the operator does not act: those of Kubernetes itself.

/// Prefix of the namespaces that Kubernetes reserves.
pub const RESERVED: &str = "kube-";

/// Namespaces in which the operator acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Acts also in namespaces such as `kube-system`.
    pub allow_kube: bool,
}

impl Namespaces {
    /// Message why the operator does not act in this namespace; None if it does.
    pub fn refusal(self, namespace: &str) -> Option<String> {
        (!self.allow_kube && is_reserved(namespace)).then(|| {
            format!(
                "the operator does not act in namespace {namespace}: its setting namespaces.allowKube is false; use \
                 another namespace"
            )
        })
    }
}

/// Whether Kubernetes reserves the namespace for itself.
pub fn is_reserved(namespace: &str) -> bool {
    namespace.starts_with(RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kubernetes_own_namespaces_are_refused_and_only_unless_allowed() {
        for (namespace, refused) in [("kube-system", true), ("kube-x", true), ("kubernetes", false), ("shop", false)] {
            assert_eq!(Namespaces::default().refusal(namespace).is_some(), refused, "{namespace}");
            assert_eq!(Namespaces { allow_kube: true }.refusal(namespace), None, "{namespace}");
        }
    }
}
