package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container"
)

// usage is one line of `ibex stats`: what a container uses, and how fast. Rates
// are over the time since the reading before.
type usage struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Status    string `json:"status"`

	CPUPercent       float64 `json:"cpu_percent"` // of one processor
	CPUSeconds       float64 `json:"cpu_seconds"`
	ThrottledPercent float64 `json:"throttled_percent"` // of the periods
	MemoryBytes      uint64  `json:"memory_bytes"`      // working set: usage without inactive file pages
	UsageBytes       uint64  `json:"memory_usage_bytes"`
	LimitBytes       uint64  `json:"memory_limit_bytes,omitempty"` // 0: none
	Pids             uint64  `json:"pids"`
	PidsLimit        uint64  `json:"pids_limit,omitempty"` // 0: none
	ReadRate         float64 `json:"read_bytes_per_second"`
	WriteRate        float64 `json:"write_bytes_per_second"`
	ReadBytes        uint64  `json:"read_bytes"`
	WriteBytes       uint64  `json:"write_bytes"`
	OOMKills         uint64  `json:"oom_kills"`
	// Pressure is the share of the last 10 s in which some process waited, in
	// percent; absent where the kernel does not count it.
	CPUPressure    *float64 `json:"cpu_pressure_percent,omitempty"`
	MemoryPressure *float64 `json:"memory_pressure_percent,omitempty"`
	IOPressure     *float64 `json:"io_pressure_percent,omitempty"`
}

// watched is a container of the node between two readings.
type watched struct {
	found
	view  *container.View
	stats cgroups.Stats
	at    time.Time

	cpu, periods, throttled, read, write uint64 // of the reading before
}

// noLimit: version 1 shows a number near 2^63 where there is none.
const noLimit = 1 << 62

// take reads the container. ok is false if it is gone or has ended.
func (w *watched) take(now time.Time) (u usage, ok bool, err error) {
	status, err := w.view.Status()
	if err != nil || status == container.Stopped {
		return u, false, err
	}
	if err := w.view.Stats(&w.stats); err != nil {
		return u, false, err
	}
	s := &w.stats
	u = usage{
		Namespace: w.Namespace, ID: w.ID, Name: name(w.view), Status: status.String(),
		CPUSeconds: float64(s.CPU.Usage) / 1e9, UsageBytes: s.Memory.Memory.Usage, MemoryBytes: workingSet(s),
		Pids: s.Pids.Current, OOMKills: s.OOMKills(),
		CPUPressure:    some(s, cgroups.HasCPUPressure, s.CPU.Pressure),
		MemoryPressure: some(s, cgroups.HasMemoryPressure, s.Memory.Pressure),
		IOPressure:     some(s, cgroups.HasIOPressure, s.IO.Pressure),
	}
	if l := s.Memory.Memory.Limit; l < noLimit {
		u.LimitBytes = l
	}
	if l := s.Pids.Limit; l < noLimit {
		u.PidsLimit = l
	}
	u.ReadBytes, u.WriteBytes = traffic(s)
	if seconds := now.Sub(w.at).Seconds(); !w.at.IsZero() && seconds > 0 {
		u.CPUPercent = grown(s.CPU.Usage, w.cpu) / 1e9 / seconds * 100
		u.ReadRate, u.WriteRate = grown(u.ReadBytes, w.read)/seconds, grown(u.WriteBytes, w.write)/seconds
		if periods := grown(s.CPU.Periods, w.periods); periods > 0 {
			u.ThrottledPercent = grown(s.CPU.ThrottledPeriods, w.throttled) / periods * 100
		}
	}
	w.at, w.cpu, w.periods, w.throttled = now, s.CPU.Usage, s.CPU.Periods, s.CPU.ThrottledPeriods
	w.read, w.write = u.ReadBytes, u.WriteBytes
	return u, true, nil
}

// grown is the difference of a counter, 0 if it went back: the devices of a
// container can be taken away.
func grown(now, before uint64) float64 {
	if now < before {
		return 0
	}
	return float64(now - before)
}

// workingSet is what cannot be taken back easily, as kubelet and Docker count it.
func workingSet(s *cgroups.Stats) uint64 {
	inactive := s.Memory.V1.TotalInactiveFile
	if s.Version == 2 {
		inactive = s.Memory.V2.InactiveFile
	}
	if inactive > s.Memory.Memory.Usage {
		return 0
	}
	return s.Memory.Memory.Usage - inactive
}

func some(s *cgroups.Stats, has cgroups.Has, p cgroups.Pressure) *float64 {
	if s.Has&has == 0 {
		return nil
	}
	v := float64(p.Some.Avg10) / 100
	return &v
}

// traffic sums the bytes over all devices.
func traffic(s *cgroups.Stats) (read, write uint64) {
	for _, u := range s.IO.Usage {
		read += u.ReadBytes
		write += u.WriteBytes
	}
	for _, e := range s.IO.Entries {
		switch {
		case e.Kind == cgroups.IOServiceBytes && e.Op == cgroups.OpRead:
			read += e.Value
		case e.Kind == cgroups.IOServiceBytes && e.Op == cgroups.OpWrite:
			write += e.Value
		}
	}
	return read, write
}

// orders are the values of --sort: the largest first, names from a to z.
var orders = map[string]func(a, b usage) int{
	"cpu":      func(a, b usage) int { return cmp.Compare(b.CPUPercent, a.CPUPercent) },
	"mem":      func(a, b usage) int { return cmp.Compare(b.MemoryBytes, a.MemoryBytes) },
	"mem%":     func(a, b usage) int { return cmp.Compare(b.share(), a.share()) },
	"pids":     func(a, b usage) int { return cmp.Compare(b.Pids, a.Pids) },
	"io":       func(a, b usage) int { return cmp.Compare(b.ReadRate+b.WriteRate, a.ReadRate+a.WriteRate) },
	"oom":      func(a, b usage) int { return cmp.Compare(b.OOMKills, a.OOMKills) },
	"pressure": func(a, b usage) int { return cmp.Compare(b.worst(), a.worst()) },
	"name":     func(usage, usage) int { return 0 },
}

// share is the part of its memory limit that a container uses, in percent.
func (u usage) share() float64 {
	if u.LimitBytes == 0 {
		return 0
	}
	return float64(u.MemoryBytes) / float64(u.LimitBytes) * 100
}

// worst is the highest pressure.
func (u usage) worst() (most float64) {
	for _, p := range []*float64{u.CPUPressure, u.MemoryPressure, u.IOPressure} {
		if p != nil {
			most = max(most, *p)
		}
	}
	return most
}

// sorted orders all in place. What is equal goes by its name, so that lines do not
// jump.
func sorted(all []usage, by string) {
	slices.SortFunc(all, func(a, b usage) int {
		return cmp.Or(orders[by](a, b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
}

// bytesText prints a size in three digits: 1.50M, 22.3G.
func bytesText(n float64) string {
	const units = "BKMGTPE"
	i := 0
	for ; n >= 1000 && i < len(units)-1; i++ {
		n /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%.0fB", n)
	}
	return fmt.Sprintf("%.*f%c", 2-digits(n), n, units[i])
}

// digits is the number of digits before the point, less one, at most two.
func digits(n float64) int {
	switch {
	case n < 9.995:
		return 0
	case n < 99.95:
		return 1
	}
	return 2
}
