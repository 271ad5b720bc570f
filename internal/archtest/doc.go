// Package archtest holds the architecture of this module as tests: which way
// imports point, where unsafe code and raw opens may stand, how long a file may
// get. It has no code of its own to import.
//
// table_test.go is the import table, allow_test.go the list of exceptions with
// a reason for each; the other files are the rules. Every rule has a test that
// shows it fires.
package archtest
