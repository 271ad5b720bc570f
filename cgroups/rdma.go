package cgroups

import (
	"github.com/ibex-run/ibex/internal/scan"
)

// ParseRdmaCurrent fills s.Rdma from the text of rdma.current, whose format both
// versions share:
//
//	mlx4_0 hca_handle=2 hca_object=2000
func ParseRdmaCurrent(s *Stats, text []byte) error {
	s.Rdma = s.Rdma[:0]
	return parseRdma(text, func(device, key []byte, v uint64) {
		r := s.rdma(device)
		switch string(key) {
		case "hca_handle":
			r.Handles = v
		case "hca_object":
			r.Objects = v
		}
	})
}

// ParseRdmaMax adds the limits of rdma.max to s.Rdma.
func ParseRdmaMax(s *Stats, text []byte) error {
	return parseRdma(text, func(device, key []byte, v uint64) {
		r := s.rdma(device)
		switch string(key) {
		case "hca_handle":
			r.HandleLimit = v
		case "hca_object":
			r.ObjectLimit = v
		}
	})
}

func parseRdma(text []byte, set func(device, key []byte, v uint64)) error {
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		device, more := scan.Field(line)
		for {
			var field []byte
			if field, more = scan.Field(more); field == nil {
				break
			}
			key, value, ok := scan.Pair(field)
			if !ok {
				return scan.Unexpected(line)
			}
			v, ok := scan.UintOrMax(value)
			if !ok {
				return scan.Unexpected(line)
			}
			set(device, key, v)
		}
	}
	return nil
}

// rdma finds or adds a device. Its name is kept from the reading before, if that
// had the same device in the same place, so that a warm reading makes no string.
func (s *Stats) rdma(device []byte) *RdmaStats {
	for i := range s.Rdma {
		if s.Rdma[i].Device == string(device) {
			return &s.Rdma[i]
		}
	}
	n := len(s.Rdma)
	name := ""
	if n < cap(s.Rdma) {
		name = s.Rdma[:n+1][n].Device
	}
	if name != string(device) {
		name = string(device)
	}
	s.Rdma = append(s.Rdma, RdmaStats{Device: name})
	return &s.Rdma[n]
}
