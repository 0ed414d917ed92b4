//go:build tools

// Package peers pins Prometheus 2.52 for tests of sources: this version lists notes
// on a query as warnings. It is never compiled: the import keeps go.mod and go.sum
// complete for `go build` of that main package.
package peers

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
