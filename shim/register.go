package shim

import (
	"context"

	"github.com/ibex-run/ibex/shim/rpc"
	"github.com/ibex-run/ibex/shim/wire"
)

// server offers the Task API under both of its names. The messages of version 2
// and 3 are the same on the wire.
func (s *service) server() *rpc.Server {
	return &rpc.Server{
		Services: []string{"containerd.task.v2.Task", "containerd.task.v3.Task"},
		Methods: map[string]rpc.Handler{
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
		},
	}
}

// method adapts a call and gives its error a code.
func method[Req any, P interface {
	*Req
	wire.Message
}, Res wire.Message](call func(context.Context, P) (Res, error),
) rpc.Handler {
	return rpc.Method(func(ctx context.Context, req P) (Res, error) {
		res, err := call(ctx, req)
		return res, toStatus(err)
	})
}
