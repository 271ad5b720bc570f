// Package oracle compares package seccomp with libseccomp, the library that
// runc compiles profiles with, and with what runc itself installs.
//
// It is a module of its own because libseccomp needs cgo and its headers
// (Debian: libseccomp-dev, gcc), which nothing that ships does:
//
//	cd tests/seccomp-oracle && CGO_ENABLED=1 go test -tags seccomp ./...
//
// Without cgo or the tag, only a test that says so is left.
package oracle
