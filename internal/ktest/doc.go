// Package ktest helps tests that talk to the real kernel: what they need, how
// they wait, the trees they work in, and what they must not leave behind.
//
// Only tests import it. It knows no package of this module, so that every one
// of them can use it.
package ktest
