//go:build tools

// Package plane pins etcd for the local control plane. It is never compiled: the
// import keeps go.mod and go.sum complete for `go build` of that main package.
package plane

import (
	_ "go.etcd.io/etcd/server/v3"
)
