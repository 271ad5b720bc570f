// Package probe knows which features the running kernel has: each has a name,
// the version it came with, and a test that tries it. A version number is never
// believed, since distributions add features to old kernels and system call
// filters take them away.
//
// What may not be added: a decision about what to do without a feature.
package probe
