//go:build tools

// Package peers pins metrics-server for tests of loops. It is never compiled: the
// import keeps go.mod and go.sum complete for `go build` of that main package.
package peers

import (
	_ "sigs.k8s.io/metrics-server/cmd/metrics-server"
)
