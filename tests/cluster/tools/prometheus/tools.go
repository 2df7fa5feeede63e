// Package tools names the Prometheus that Muster's monitor tests run, so that go.sum pins it. Debian's knows nothing of
// Kubernetes.

//go:build tools

package tools

import _ "github.com/prometheus/prometheus/cmd/prometheus"
