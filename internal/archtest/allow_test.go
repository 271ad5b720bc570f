package archtest

// exception allows one thing in one file.
type exception struct {
	file string
	what string // an import path, PACKAGE.FUNCTION, a string literal, go:linkname or init
	why  string
}

// exceptions is the only list of them. One that is not needed any more fails.
var exceptions = []exception{
	{"exec/plan/fork_unsafe.go", "go:linkname", "the three fork hooks that the Go runtime keeps for such users"},
	{"shim/bootstrap.go", "os/exec", "start spawns the server, once for each pod"},
}

// used notes which exceptions were needed.
var used = map[exception]bool{}

func allowed(s *source, what string) bool {
	for _, e := range exceptions {
		if e.file == s.name && e.what == what {
			used[e] = true
			return true
		}
	}
	return false
}
