package shim

import (
	"context"
	"errors"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/shim/rpc"
)

// Errors of the protocol layer itself. The text of the whole error is what the
// caller sees; these say which code goes with it.
var (
	errInvalid       = errors.New("invalid argument")
	errNotFound      = errors.New("not found")
	errExists        = errors.New("already exists")
	errPrecondition  = errors.New("failed precondition")
	errUnimplemented = errors.New("not implemented")
)

// codeTable maps sentinels to the codes that containerd turns back into errdefs
// classes. The first match counts.
//
// container.ErrUnsupported is InvalidArgument, not Unimplemented: containerd
// takes Unimplemented from Create for an old shim and asks again with an older
// protocol, which would start the same refused container twice.
var codeTable = []struct {
	err  error
	code rpc.Code
}{
	{context.Canceled, rpc.Canceled},
	{context.DeadlineExceeded, rpc.DeadlineExceeded},
	{container.ErrNotFound, rpc.NotFound},
	{errNotFound, rpc.NotFound},
	{container.ErrExists, rpc.AlreadyExists},
	{errExists, rpc.AlreadyExists},
	{errPrecondition, rpc.FailedPrecondition},
	{container.ErrInvalid, rpc.InvalidArgument},
	{container.ErrUnsupported, rpc.InvalidArgument},
	{errInvalid, rpc.InvalidArgument},
	{errUnimplemented, rpc.Unimplemented},
}

// toStatus gives an error its code and keeps its text: callers read exit codes
// out of it ("executable file not found in $PATH").
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	code := rpc.Unknown
	var state *container.StateError
	if errors.As(err, &state) {
		code = rpc.FailedPrecondition
	}
	for _, row := range codeTable {
		if errors.Is(err, row.err) {
			code = row.code
			break
		}
	}
	return &rpc.Error{Code: code, Text: err.Error()}
}
