//go:build tools

// Package peers pins KEDA for the stories of imported ScaledObjects. It is
// never compiled: the imports keep go.mod and go.sum complete for `go build` of
// these main packages.
package peers

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
)
