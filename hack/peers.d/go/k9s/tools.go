//go:build tools

// Package peers pins k9s for the story of config/k9s. It is never compiled:
// the import keeps go.mod and go.sum complete for `go build` of that main
// package.
package peers

import (
	_ "github.com/derailed/k9s"
)
