package cgroup2

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
)

// capture splits a text of testdata/capture.sh.
func capture(t testing.TB, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for part := range strings.SplitSeq(string(text), "== ") {
		if file, content, ok := strings.Cut(part, "\n"); ok {
			files[file] = content
		}
	}
	return files
}

// read fills s as Stat does, from captured files.
func read(t testing.TB, s *cgroups.Stats, files map[string]string) {
	t.Helper()
	s.Reset(2)
	for _, f := range statTable() {
		content, ok := files[f.Name]
		if !ok {
			continue
		}
		if f.Parse != nil {
			if err := f.Parse(s, []byte(content)); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		} else if v, ok := scan.UintOrMax(scan.Trim([]byte(content))); ok {
			*f.Number(s) = v
		} else {
			t.Errorf("%s: %q is no number", f.Name, content)
		}
		s.Has |= f.Has
	}
	if content, ok := files["hugetlb.2MB.events"]; ok {
		s.Hugetlb = append(s.Hugetlb, cgroups.HugetlbStats{PageSize: 2 << 20})
		if err := parseHugetlbEvents(&s.Hugetlb[0], []byte(content)); err != nil {
			t.Error(err)
		}
	}
}

func TestCapturedFilesGiveTheseStatistics(t *testing.T) {
	names, err := filepath.Glob("testdata/captured-*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var s cgroups.Stats
			read(t, &s, capture(t, name))
			got, err := json.MarshalIndent(&s, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(name, ".txt") + ".json"
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(want)) != string(got) {
				t.Errorf("statistics are\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestUnitsAndWordsAreRight(t *testing.T) {
	var s cgroups.Stats
	read(t, &s, capture(t, "testdata/captured-5.4-by-hand.txt"))
	for _, tt := range []struct {
		what      string
		got, want uint64
	}{
		{"usage in ns", s.CPU.Usage, 100000},
		{"avg10 in hundredths of a percent", s.CPU.Pressure.Some.Avg10, 150},
		{"avg300 in hundredths of a percent", s.CPU.Pressure.Some.Avg300, 10000},
		{"refaults of an old kernel", s.Memory.V2.WorkingsetRefault, 5},
		{"limit", s.Memory.Memory.Limit, 1 << 30},
		{"no limit of objects", s.Rdma[0].ObjectLimit, cgroups.NoLimit},
		{"a device without fields", s.IO.Usage[0].ReadBytes, 0},
		{"discards", s.IO.Usage[1].DiscardIOs, 6},
		{"failures of huge pages", s.Hugetlb[0].Failcnt, 3},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, tt.got, tt.want)
		}
	}
	if s.Has&(cgroups.HasThrottling|cgroups.HasBursts|cgroups.HasPids|cgroups.HasMemoryEvents) != 0 {
		t.Errorf("Has is %b: something is in it that was not read", s.Has)
	}
	// The second reading reuses what the first made.
	device := &s.Rdma[0]
	read(t, &s, capture(t, "testdata/captured-5.4-by-hand.txt"))
	if &s.Rdma[0] != device || len(s.Rdma) != 2 || len(s.IO.Usage) != 3 {
		t.Errorf("a second reading is not like the first: %+v %+v", s.Rdma, s.IO.Usage)
	}
}

func TestNonsenseIsAnError(t *testing.T) {
	var s cgroups.Stats
	for name, err := range map[string]error{
		"cpu.stat":        parseCPUStat(&s, []byte("usage_usec\n")),
		"memory.stat":     parseMemoryStat(&s, []byte("anon -1\n")),
		"memory.events":   parseMemoryEvents(&s.Memory.Events, []byte("oom_kill 1 2\n")),
		"io.stat device":  parseIOStat(&s, []byte("sda rbytes=1\n")),
		"io.stat number":  parseIOStat(&s, []byte("8:0 rbytes=x\n")),
		"pressure line":   parsePressure(&s.CPU.Pressure, []byte("most avg10=0.00\n")),
		"pressure number": parsePressure(&s.CPU.Pressure, []byte("some avg10=-1\n")),
		"hugetlb":         parseHugetlbEvents(&cgroups.HugetlbStats{}, []byte("max\n")),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzParsers(f *testing.F) {
	names, _ := filepath.Glob("testdata/captured-*.txt")
	for _, name := range names {
		for _, content := range capture(f, name) {
			f.Add([]byte(content))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s cgroups.Stats
		s.Reset(2)
		for _, file := range statTable() {
			if file.Parse != nil {
				_ = file.Parse(&s, text)
			}
		}
		_ = parseHugetlbEvents(&cgroups.HugetlbStats{}, text)
	})
}
