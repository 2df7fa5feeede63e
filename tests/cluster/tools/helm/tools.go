// Package tools names the Helm 3 that Muster's cluster tests run, so that go.sum pins it.

//go:build tools

package tools

import _ "helm.sh/helm/v3/cmd/helm"
