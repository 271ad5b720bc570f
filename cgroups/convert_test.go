package cgroups

import (
	"errors"
	"slices"
	"strings"
	"testing"

	ocicgroups "github.com/opencontainers/cgroups"
)

func TestSharesBecomeWeights(t *testing.T) {
	for shares, want := range map[uint64]uint64{
		0: 0, 1: 1, 2: 1, 512: 59, 1024: 100, 262144: 10000, 1 << 40: 10000,
	} {
		if got := Weight(shares); got != want {
			t.Errorf("Weight(%d) = %d, want %d", shares, got, want)
		}
	}
	for shares := uint64(0); shares <= 262145; shares++ {
		if ours, theirs := Weight(shares), ocicgroups.ConvertCPUSharesToCgroupV2Value(shares); ours != theirs {
			t.Fatalf("Weight(%d) = %d, opencontainers/cgroups says %d", shares, ours, theirs)
		}
	}
}

func TestBlockWeightsBecomeIOWeights(t *testing.T) {
	for weight, want := range map[uint16]uint64{0: 0, 10: 1, 500: 4950, 1000: 10000} {
		if got := IOWeight(weight); got != want {
			t.Errorf("IOWeight(%d) = %d, want %d", weight, got, want)
		}
	}
	for w := uint16(10); w <= 1000; w++ {
		if ours, theirs := IOWeight(w), ocicgroups.ConvertBlkIOToIOWeightValue(w); ours != theirs {
			t.Fatalf("IOWeight(%d) = %d, opencontainers/cgroups says %d", w, ours, theirs)
		}
	}
}

func TestSwapAgreesWithThePeer(t *testing.T) {
	values := []int64{-1, 0, 10 << 20, 20 << 20, 30 << 20, 50 << 20}
	for _, limit := range values {
		for _, swap := range values {
			ours, set, err := SwapMax(limit, swap)
			theirs, theirErr := ocicgroups.ConvertMemorySwapToCgroupV2Value(swap, limit)
			if (err == nil) != (theirErr == nil) {
				t.Errorf("SwapMax(%d, %d) = %v, opencontainers/cgroups says %v", limit, swap, err, theirErr)
			}
			if set && ours != theirs {
				t.Errorf("SwapMax(%d, %d) = %d, opencontainers/cgroups says %d", limit, swap, ours, theirs)
			}
			if err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("SwapMax(%d, %d) = %v, want ErrInvalid", limit, swap, err)
			}
		}
	}
}

func TestListsOfCPUs(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []int
		ok   bool
	}{
		{"", nil, true},
		{"\n", nil, true},
		{"0", []int{0}, true},
		{"0-3,8\n", []int{0, 1, 2, 3, 8}, true},
		{"8,0-1,1-2", []int{0, 1, 2, 8}, true},
		{"63-65", []int{63, 64, 65}, true},
		{"3-1", nil, false},
		{"0-", nil, false},
		{"-1", nil, false},
		{"0,,1", nil, false},
		{"0-10:2/4", nil, false},
		{"99999999999", nil, false},
		{"0 1", nil, false},
	} {
		l, ok := ParseList(tt.text)
		if ok != tt.ok || ok && l.Len() != len(tt.want) {
			t.Errorf("ParseList(%q) has %d, %t; want %v, %t", tt.text, l.Len(), ok, tt.want, tt.ok)
		}
		if slices.ContainsFunc(tt.want, func(i int) bool { return !l.Has(i) }) {
			t.Errorf("ParseList(%q) lacks some of %v", tt.text, tt.want)
		}
	}
	a, _ := ParseList("0-2")
	b, _ := ParseList("2,0,1")
	c, _ := ParseList("0-2,200")
	if !a.Equal(b) || a.Equal(c) || c.Equal(a) || !c.Equal(c) {
		t.Error("Equal does not compare the numbers")
	}
}

func FuzzListsReadBack(f *testing.F) {
	f.Add("0-3,8")
	f.Add("1,1,1")
	f.Fuzz(func(t *testing.T, s string) {
		l, ok := ParseList(s)
		if !ok {
			return
		}
		again, ok := ParseList(strings.TrimSpace(s))
		if !ok || !l.Equal(again) {
			t.Errorf("%q reads differently without blanks", s)
		}
	})
}

func TestSizesOfHugePages(t *testing.T) {
	for name, want := range map[string]uint64{"64KB": 64 << 10, "2MB": 2 << 20, "1GB": 1 << 30, "16GB": 16 << 30} {
		if got, ok := PageSize(name); got != want || !ok {
			t.Errorf("PageSize(%q) = %d, %t; want %d", name, got, ok, want)
		}
		if got := PageSizeName(want); got != name {
			t.Errorf("PageSizeName(%d) = %q, want %q", want, got, name)
		}
	}
	for _, name := range []string{"", "MB", "2", "2mb", "02MB", "-2MB", "+2MB", "../../other/x", "2MB/x", "99999999999GB"} {
		if _, ok := PageSize(name); ok {
			t.Errorf("PageSize(%q) is taken", name)
		}
	}
}
