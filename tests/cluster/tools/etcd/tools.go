// Package tools names the etcd that Muster's cluster tests run, so that go.sum pins it.

//go:build tools

package tools

import _ "go.etcd.io/etcd/server/v3"
