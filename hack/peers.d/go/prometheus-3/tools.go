//go:build tools

// Package peers pins the current Prometheus for tests of sources. It is never
// compiled: the import keeps go.mod and go.sum complete for `go build` of that main
// package.
package peers

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
