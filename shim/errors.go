package shim

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ibex-run/ibex/container"
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
	code codes.Code
}{
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{container.ErrNotFound, codes.NotFound},
	{errNotFound, codes.NotFound},
	{container.ErrExists, codes.AlreadyExists},
	{errExists, codes.AlreadyExists},
	{errPrecondition, codes.FailedPrecondition},
	{container.ErrInvalid, codes.InvalidArgument},
	{container.ErrUnsupported, codes.InvalidArgument},
	{errInvalid, codes.InvalidArgument},
	{errUnimplemented, codes.Unimplemented},
}

// toStatus gives an error its code and keeps its text: callers read exit codes
// out of it ("executable file not found in $PATH").
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Unknown
	var state *container.StateError
	if errors.As(err, &state) {
		code = codes.FailedPrecondition
	}
	for _, row := range codeTable {
		if errors.Is(err, row.err) {
			code = row.code
			break
		}
	}
	return status.Error(code, err.Error())
}
