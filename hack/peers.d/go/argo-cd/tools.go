//go:build tools

// Package peers pins Argo CD for stories of GitOps. It is never compiled: the
// import keeps go.mod and go.sum complete for `go build` of that main package.
package peers

import (
	_ "github.com/argoproj/argo-cd/v3/cmd"
)
