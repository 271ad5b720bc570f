package shim

import (
	"reflect"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/shim/wire"
)

// fill gives every number of a reading a value of its own, a multiple of 1000.
func fill(v reflect.Value, next *uint64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Uint64:
		*next += 1000
		v.SetUint(*next)
	case reflect.String:
		v.SetString("dev")
	}
}

func fullStats(version int) *cgroups.Stats {
	s := &cgroups.Stats{
		Hugetlb: make([]cgroups.HugetlbStats, 1), Rdma: make([]cgroups.RdmaStats, 1),
	}
	s.IO.Usage = make([]cgroups.IOUsage, 1)
	var n uint64
	fill(reflect.ValueOf(s).Elem(), &n)
	fill(reflect.ValueOf(&s.Hugetlb[0]).Elem(), &n)
	fill(reflect.ValueOf(&s.Rdma[0]).Elem(), &n)
	fill(reflect.ValueOf(&s.IO.Usage[0]).Elem(), &n)
	for k := cgroups.IOServiceBytes; k <= cgroups.IOSectors; k++ {
		s.IO.Entries = append(s.IO.Entries, cgroups.IOEntry{Kind: k, Op: cgroups.OpRead, Major: 8, Minor: 1, Value: 7})
	}
	s.CPU.PerCPU = []uint64{1, 2}
	s.Version, s.Has = version, ^cgroups.Has(0)
	s.Hugetlb[0].PageSize = 2 << 20
	return s
}

// zeroFields lists the fields of a message, and of those below it, that were
// not set.
func zeroFields(m protoreflect.Message, prefix string) (names []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := prefix + string(f.Name())
		switch {
		case !m.Has(f):
			names = append(names, name)
		case f.IsList() && f.Message() != nil:
			names = append(names, zeroFields(m.Get(f).List().Get(0).Message(), name+".")...)
		case f.Message() != nil && !f.IsList():
			names = append(names, zeroFields(m.Get(f).Message(), name+".")...)
		}
	}
	return names
}

// decoded is what containerd makes of a reading.
func decoded(t testing.TB, s *cgroups.Stats) proto.Message {
	t.Helper()
	r := &reading{stats: *s}
	r.wrap()
	var res taskv3.StatsResponse
	if err := proto.Unmarshal(wire.Marshal(r), &res); err != nil {
		t.Fatal(err)
	}
	a := res.Stats
	m, err := anypb.UnmarshalNew(&anypb.Any{TypeUrl: "/" + a.TypeUrl, Value: a.Value}, proto.UnmarshalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMetricsCarryEveryFieldThatAReadingHas(t *testing.T) {
	for _, tt := range []struct {
		version int
		absent  map[string]bool // what a cgroup does not tell
	}{
		{1, map[string]bool{"network": true, "cgroup_stats": true}},
		{2, map[string]bool{"network": true}},
	} {
		s := fullStats(tt.version)
		m := decoded(t, s)
		if want := metricsOf(s); !proto.Equal(m, want) {
			t.Errorf("version %d:\n%v\nwant\n%v", tt.version, m, want)
		}
		for _, name := range zeroFields(m.ProtoReflect(), "") {
			last := name[len(name)-6:]
			if !tt.absent[name] && last != "device" { // blkio entries name numbers only
				t.Errorf("version %d: %s is not set", tt.version, name)
			}
		}
	}
}

func TestMetricsHaveTheUnitsOfTheirVersion(t *testing.T) {
	s := fullStats(1)
	m1 := decoded(t, s).(*v1.Metrics)
	if m1.CPU.Usage.Total != s.CPU.Usage || m1.Hugetlb[0].Pagesize != "2MB" {
		t.Errorf("v1: cpu %d, page size %s; want %d ns, 2MB", m1.CPU.Usage.Total, m1.Hugetlb[0].Pagesize, s.CPU.Usage)
	}
	s.Version = 2
	s.Memory.Pressure.Some.Avg10 = 1234
	m2 := decoded(t, s).(*v2.Metrics)
	if m2.CPU.UsageUsec != s.CPU.Usage/1000 || m2.Memory.PSI.Some.Avg10 != 12.34 {
		t.Errorf("v2: cpu %d, pressure %v; want %d µs, 12.34 %%", m2.CPU.UsageUsec, m2.Memory.PSI.Some.Avg10, s.CPU.Usage/1000)
	}
}

func TestAbsentPartsStayAbsent(t *testing.T) {
	for _, version := range []int{1, 2} {
		m := decoded(t, &cgroups.Stats{Version: version})
		if b, err := proto.Marshal(m); err != nil || len(b) != 0 {
			t.Errorf("version %d: an empty reading became %v, %v", version, m, err)
		}
	}
}
