// Package rpc is ttrpc: the calls between containerd and the shim
// (PROTOCOL.md of github.com/containerd/ttrpc, version 1.2). Requests with one
// answer only: there are no streams in the task API, nor in that of events.
//
// A connection of containerd's own server keeps two goroutines and 8 KiB of
// buffers; this one keeps one and 512 bytes.
package rpc
