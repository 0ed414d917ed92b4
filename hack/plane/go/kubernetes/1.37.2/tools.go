//go:build tools

// Package plane pins the Kubernetes programs of the local control plane. It is
// never compiled: the imports keep go.mod and go.sum complete for `go build`
// of these main packages.
package plane

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
