package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/container"
)

func updateCmd(o *options) *cobra.Command {
	var file string
	cmd := o.verb("update [flags] ID", "Change the limits of a container", nil)
	fl := cmd.Flags()
	fl.StringVarP(&file, "resources", "r", "", "file with OCI resources; - for standard input")
	shares := fl.Uint64("cpu-share", 0, "CPU shares")
	quota := fl.Int64("cpu-quota", 0, "CPU time in a period, microseconds; -1 for no limit")
	period := fl.Uint64("cpu-period", 0, "CPU period, microseconds")
	burst := fl.Uint64("cpu-burst", 0, "CPU burst, microseconds")
	idle := fl.Int64("cpu-idle", 0, "1 to run when nothing else does")
	cpus := fl.String("cpuset-cpus", "", "CPUs to use")
	mems := fl.String("cpuset-mems", "", "memory nodes to use")
	mem := fl.String("memory", "", "memory limit, bytes or with k, m, g; -1 for none")
	reserve := fl.String("memory-reservation", "", "memory reservation")
	swap := fl.String("memory-swap", "", "memory and swap together")
	pids := fl.Int64("pids-limit", 0, "limit of processes; -1 for none")
	weight := fl.Uint16("blkio-weight", 0, "block I/O weight")
	rtPeriod := fl.Uint64("cpu-rt-period", 0, "period of real-time scheduling, microseconds")
	rtRuntime := fl.Int64("cpu-rt-runtime", 0, "time in that period, microseconds")
	kernel := fl.String("kernel-memory", "", "ignored: the kernel has no such limit any more")
	kernelTCP := fl.String("kernel-memory-tcp", "", "limit of the kernel's memory for TCP buffers (cgroup v1)")
	l3 := fl.String("l3-cache-schema", "", "refused: Intel RDT")
	mb := fl.String("mem-bw-schema", "", "refused: Intel RDT")
	cmd.Example = "  ibex update --memory 512m --cpu-quota 50000 web1\n  ibex update -r - web1 < resources.json"
	cmd.RunE = o.verb("", "", func(ctx context.Context, c *container.Container, _ []string) error {
		if *l3 != "" || *mb != "" {
			return errors.New("--l3-cache-schema, --mem-bw-schema: not supported")
		}
		if *kernel != "" {
			o.logger.warn(errors.New("--kernel-memory: ignored, the kernel has no such limit any more"))
		}
		res := specs.LinuxResources{}
		if file != "" {
			if err := readResources(file, &res); err != nil {
				return err
			}
			return c.Update(ctx, &res)
		}
		cpu, m := specs.LinuxCPU{}, specs.LinuxMemory{}
		changed := fl.Changed
		if changed("cpu-share") {
			cpu.Shares = shares
		}
		if changed("cpu-quota") {
			cpu.Quota = quota
		}
		if changed("cpu-period") {
			cpu.Period = period
		}
		if changed("cpu-rt-period") {
			cpu.RealtimePeriod = rtPeriod
		}
		if changed("cpu-rt-runtime") {
			cpu.RealtimeRuntime = rtRuntime
		}
		if changed("cpu-burst") {
			cpu.Burst = burst
		}
		if changed("cpu-idle") {
			cpu.Idle = idle
		}
		cpu.Cpus, cpu.Mems = *cpus, *mems
		for _, l := range []struct {
			flag, text string
			to         **int64
		}{{"memory", *mem, &m.Limit}, {"memory-reservation", *reserve, &m.Reservation}, {"memory-swap", *swap, &m.Swap}, {"kernel-memory-tcp", *kernelTCP, &m.KernelTCP}} {
			if changed(l.flag) {
				n, err := parseSize(l.text)
				if err != nil {
					return fmt.Errorf("--%s: %w", l.flag, err)
				}
				*l.to = &n
			}
		}
		res.CPU, res.Memory = &cpu, &m
		if changed("pids-limit") {
			res.Pids = &specs.LinuxPids{Limit: pids}
		}
		if changed("blkio-weight") {
			res.BlockIO = &specs.LinuxBlockIO{Weight: weight}
		}
		return c.Update(ctx, &res)
	}).RunE
	return cmd
}

func readResources(file string, res *specs.LinuxResources) error {
	in := io.Reader(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	if err := json.NewDecoder(in).Decode(res); err != nil {
		return fmt.Errorf("--resources: %w", err)
	}
	return nil
}

// parseSize takes bytes with an optional k, m, g or t, in powers of 1024.
func parseSize(s string) (int64, error) {
	var n int64
	var unit string
	if c, err := fmt.Sscanf(s, "%d%s", &n, &unit); c == 0 {
		return 0, err
	}
	shift, ok := map[string]uint{"": 0, "b": 0, "B": 0, "k": 10, "K": 10, "m": 20, "M": 20, "g": 30, "G": 30, "t": 40, "T": 40}[unit]
	if !ok || n > 1<<62>>shift {
		return 0, fmt.Errorf("size %q: want a number and b, k, m, g or t", s)
	}
	return n << shift, nil
}
