// Package tools names the Helm 4 that Muster's cluster tests run, so that go.sum pins it.

//go:build tools

package tools

import _ "helm.sh/helm/v4/cmd/helm"
