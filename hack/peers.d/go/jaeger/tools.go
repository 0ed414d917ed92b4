//go:build tools

// Package peers pins Jaeger for the story of traces. It is never compiled: the
// import keeps go.mod and go.sum complete for `go build` of that main package.
package peers

import (
	_ "github.com/jaegertracing/jaeger/cmd/all-in-one"
)
