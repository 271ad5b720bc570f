package rpc

// Code says what kind of error an answer is. The numbers are gRPC's.
type Code int32

// Those that are used here.
const (
	OK                 Code = 0
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
)

// Error is an answer that is an error.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }
