// Package tools names the Kueue that Muster's cluster tests run, and Kueue's own measure of its scheduler that the
// benchmarks run beside Muster, so that go.sum pins them.

//go:build tools

package tools

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
	_ "sigs.k8s.io/kueue/test/performance/scheduler/minimalkueue"
	_ "sigs.k8s.io/kueue/test/performance/scheduler/runner"
)
