//go:build tools

// Package peers pins Helm for stories of GitOps. It is never compiled: the
// import keeps go.mod and go.sum complete for `go build` of that main package.
package peers

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
