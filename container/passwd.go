package container

import (
	"strconv"
	"strings"
)

// homeIn finds the home directory of uid in the text of a passwd(5) file. Lines
// that make no sense are skipped.
func homeIn(text string, uid uint32) string {
	want := strconv.FormatUint(uint64(uid), 10)
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) == 7 && f[2] == want && f[5] != "" {
			return f[5]
		}
	}
	return "/"
}
