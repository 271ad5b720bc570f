// Package seccomptest holds what the tests of package seccomp are measured
// with: an interpreter of filters, an evaluator that reads a profile rule by
// rule as the specification has it, and a source of random profiles. It is
// imported by tests only.
package seccomptest
