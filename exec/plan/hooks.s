// This file makes the compiler accept the functions without a body in
// fork_unsafe.go.
