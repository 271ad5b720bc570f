//go:build !cgo

package plan

const cgo = false
