package cgroups

import (
	"errors"
	"slices"
	"testing"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/pathsafe"
)

func TestDetectFindsWhatIsMounted(t *testing.T) {
	ktest.RequireRoot(t)
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mode := V2
	for _, m := range ktest.CgroupMounts() {
		if m.V2 {
			if l.Unified == nil {
				t.Errorf("%s was not found", m.Dir)
			}
			continue
		}
		want := slices.DeleteFunc(m.Controllers, func(c string) bool { return c == "rw" || c == "ro" })
		for _, c := range want {
			h := l.Hierarchy(c)
			if h == nil {
				t.Errorf("%s with %s was not found", m.Dir, c)
			} else if !slices.Equal(h.Controllers, want) {
				t.Errorf("%s has %v, found %v", m.Dir, want, h.Controllers)
			}
			if c == "memory" {
				mode = Hybrid
			}
		}
	}
	if l.Unified == nil {
		mode = V1
	}
	if l.Mode != mode {
		t.Errorf("mode is %s, want %s", l.Mode, mode)
	}
}

func TestControllersAreToldFromOptions(t *testing.T) {
	for options, want := range map[string][]string{
		"rw,cpu,cpuacct":        {"cpu", "cpuacct"},
		"rw,xattr,name=systemd": {"name=systemd"},
		"rw,seclabel,net_cls,net_prio,release_agent=/lib/x": {"net_cls", "net_prio"},
		"rw,cpuset,noprefix,clone_children":                 {"cpuset"},
		"rw":                                                nil,
		"rw,misc,brand_new":                                 {"misc", "brand_new"},
	} {
		if got := superControllers(options); !slices.Equal(got, want) {
			t.Errorf("superControllers(%q) = %v, want %v", options, got, want)
		}
	}
}

func TestAHostWithoutCgroupsIsAnError(t *testing.T) {
	_, err := detect([]pathsafe.MountInfoEntry{{FSType: "tmpfs", Root: "/", MountPoint: "/sys/fs/cgroup"}})
	if !errors.Is(err, ErrNoController) {
		t.Errorf("detect = %v, want ErrNoController", err)
	}
}

func TestMountsOfPartsAreLeftOut(t *testing.T) {
	got := byPreference([]pathsafe.MountInfoEntry{
		{FSType: "cgroup", Root: "/", MountPoint: "/elsewhere"},
		{FSType: "cgroup", Root: "/docker/1", MountPoint: "/sys/fs/cgroup/memory"},
		{FSType: "cgroup2", Root: "/", MountPoint: "/sys/fs/cgroup"},
		{FSType: "proc", Root: "/", MountPoint: "/sys/fs/cgroup/x"},
	})
	if len(got) != 2 || got[0].FSType != "cgroup2" || got[1].MountPoint != "/elsewhere" {
		t.Errorf("byPreference = %+v", got)
	}
}

func TestASharedHierarchyHasLinks(t *testing.T) {
	h := Hierarchy{Name: "cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}}
	if m := h.MountDir(7); m.Name != "cpu,cpuacct" || !slices.Equal(m.Links, []string{"cpu", "cpuacct"}) || m.Data != "cpu,cpuacct" || m.FD != 7 {
		t.Errorf("MountDir = %+v", m)
	}
	h = Hierarchy{Name: "systemd", Controllers: []string{"name=systemd"}}
	if m := h.MountDir(7); m.Name != "systemd" || len(m.Links) != 0 || m.Data != "name=systemd" {
		t.Errorf("MountDir = %+v", m)
	}
}

func TestChecksKnowTheKernelsHabits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		w     Write
		got   string
		agree bool
	}{
		{"same", Write{Value: "100", Check: CheckSame}, "100", true},
		{"clamped", Write{Value: "1", Check: CheckSame}, "2", false},
		{"pages", Write{Value: "10000", Check: CheckPages, PageSize: 4096}, "8192", true},
		{"more than asked", Write{Value: "8192", Check: CheckPages, PageSize: 4096}, "12288", false},
		{"ignored", Write{Value: "8192", Check: CheckPages, PageSize: 4096}, "9223372036854771712", false},
		{"no limit on version 1", Write{Value: "9223372036854775807", Check: CheckPages, PageSize: 4096}, "9223372036854771712", true},
		{"no limit on version 2", Write{Value: "max", Check: CheckPages, PageSize: 4096}, "max", true},
		{"huge pages", Write{Value: "5000000", Check: CheckPages, PageSize: 2 << 20}, "4194304", true},
		{"list", Write{Value: "0,1,2", Check: CheckList}, "0-2", true},
		{"part of a list", Write{Value: "0-2", Check: CheckList}, "0-1", false},
	} {
		if tt.w.agrees(tt.got) != tt.agree {
			t.Errorf("%s: %q after %q agrees is %t", tt.name, tt.got, tt.w.Value, !tt.agree)
		}
	}
}
