// Pins the modules whose CRDs the tests install. Nothing in them is compiled.
module ganglion.dev/hack/crds

go 1.26.0

require (
	github.com/argoproj/argo-rollouts v1.8.3
	github.com/fluxcd/source-controller v1.9.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
	k8s.io/autoscaler/vertical-pod-autoscaler v1.4.1
)
