// Package wire has the messages that travel between containerd and the shim, and
// their encoding, which is that of Protocol Buffers
// (https://protobuf.dev/programming-guides/encoding/).
//
// The types that protoc generates for the same messages describe themselves to a
// registry when the program starts and build tables for each type at its first
// use: a third of the memory of an idle shim. docs/decisions has the figures. The
// tests hold every message here against the generated one.
//
// A message lists its fields once, for both directions, in Fields. Fields that
// the shim does not look at are not there; they are skipped.
package wire
