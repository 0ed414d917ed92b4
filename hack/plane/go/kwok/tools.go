//go:build tools

// Package plane pins kwok for the local control plane. It is never compiled: the
// import keeps go.mod and go.sum complete for `go build` of that main package.
package plane

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
