package shim

import (
	"context"

	"github.com/containerd/ttrpc"
)

// register offers the Task API under both of its names. The messages of version
// 2 and 3 are the same on the wire, so one set of Go types serves both; that of
// version 3 would link gRPC and an HTTP/2 server, 7 MB of binary and a third of
// the start-up time.
func register(srv *ttrpc.Server, s *service) {
	desc := &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"State":      method(s.State),
		"Create":     method(s.Create),
		"Start":      method(s.Start),
		"Delete":     method(s.Delete),
		"Pids":       method(s.Pids),
		"Pause":      method(s.Pause),
		"Resume":     method(s.Resume),
		"Checkpoint": method(s.Checkpoint),
		"Kill":       method(s.Kill),
		"Exec":       method(s.Exec),
		"ResizePty":  method(s.ResizePty),
		"CloseIO":    method(s.CloseIO),
		"Update":     method(s.Update),
		"Wait":       method(s.Wait),
		"Stats":      method(s.Stats),
		"Connect":    method(s.Connect),
		"Shutdown":   method(s.Shutdown),
	}}
	srv.RegisterService("containerd.task.v2.Task", desc)
	srv.RegisterService("containerd.task.v3.Task", desc)
}

// method adapts a call and gives its error a code.
func method[Req, Res any](call func(context.Context, *Req) (*Res, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		req := new(Req)
		if err := unmarshal(req); err != nil {
			return nil, err
		}
		res, err := call(ctx, req)
		if err != nil {
			return nil, toStatus(err)
		}
		return res, nil
	}
}
