//go:build tools

// Package peers pins prometheus-adapter for tests of the metrics of nodes. It is
// never compiled: the import keeps go.mod and go.sum complete for `go build` of
// that main package.
package peers

import (
	_ "sigs.k8s.io/prometheus-adapter/cmd/adapter"
)
