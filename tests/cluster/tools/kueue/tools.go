// Package tools names the Kueue that Muster's cluster tests run, so that go.sum pins it.

//go:build tools

package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
