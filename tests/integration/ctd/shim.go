package ctd

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
)

// ShimClient is a connection to the shim of a task, beside containerd's.
type ShimClient struct {
	task.TTRPCTaskService
	Socket string

	conn *ttrpc.Client
}

// Shim connects to the shim of a task.
func (d *Daemon) Shim(id string) (*ShimClient, error) {
	text, err := os.ReadFile(filepath.Join(d.Bundle(id), "bootstrap.json"))
	if err != nil {
		return nil, err
	}
	var boot struct {
		Version           int
		Address, Protocol string
	}
	if err := json.Unmarshal(text, &boot); err != nil {
		return nil, fmt.Errorf("decode bootstrap.json: %w", err)
	}
	// Before 2.3 it asks for version 2.
	if boot.Version < 2 || boot.Version > 3 || boot.Protocol != "ttrpc" {
		return nil, fmt.Errorf("bootstrap.json: version %d, protocol %q; want 2 or 3, ttrpc", boot.Version, boot.Protocol)
	}
	return DialShim(boot.Address)
}

// DialShim connects to a shim at an address as bootstrap.json has it.
func DialShim(address string) (*ShimClient, error) {
	socket := strings.TrimPrefix(address, "unix://")
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := ttrpc.NewClient(conn)
	return &ShimClient{TTRPCTaskService: task.NewTTRPCTaskClient(c), Socket: socket, conn: c}, nil
}

// Close ends the connection.
func (s *ShimClient) Close() error { return s.conn.Close() }

// PID asks for the process id of the shim that has the task.
func (s *ShimClient) PID(ctx context.Context, id string) (int, error) {
	r, err := s.Connect(ctx, &task.ConnectRequest{ID: id})
	if err != nil {
		return 0, err
	}
	return int(r.ShimPid), nil
}
