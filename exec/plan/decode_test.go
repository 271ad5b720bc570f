package plan

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sameSteps compares what two plans do, wherever their memory lies.
func sameSteps(t *testing.T, a, b *Plan) {
	t.Helper()
	if len(a.steps) != len(b.steps) || len(a.arena) != len(b.arena) {
		t.Fatalf("%d steps and %d words; want %d and %d", len(b.steps), len(b.arena), len(a.steps), len(a.arena))
	}
	for i := range a.steps {
		if x, y := relative(a, i), relative(b, i); !reflect.DeepEqual(x, y) {
			t.Errorf("step %d (%s):\n got %+v\nwant %+v", i, a.stepText(i), y, x)
		}
	}
	for i := range a.arena {
		if x, y := relocate(a, a.arena[i]), relocate(b, b.arena[i]); x != y {
			t.Fatalf("arena word %d = %#x; want %#x", i, y, x)
		}
	}
}

func relative(p *Plan, i int) step {
	s := p.steps[i]
	for j := range s.args {
		s.args[j] = uintptr(relocate(p, uint64(s.args[j])))
	}
	s.want = uintptr(relocate(p, uint64(s.want)))
	return s
}

// relocate replaces an address in the arena by a number that does not depend
// on where the arena is.
func relocate(p *Plan, v uint64) uint64 {
	base := uint64(arenaAddr(p.arena))
	if v >= base && v < base+uint64(len(p.arena))*8 {
		return v - base + 0xabad1dea00000000
	}
	return v
}

func TestParseOfTextMakesTheSamePlan(t *testing.T) {
	p := everyStep(t)
	q, err := Parse(p.Text())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := q.Text(), p.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	sameSteps(t, p, q)
	if q.withheld != "" {
		t.Errorf("withheld = %q", q.withheld)
	}
}

func TestParseOfStringPrintsTheSameButDoesNotRun(t *testing.T) {
	p := everyStep(t)
	q, err := Parse(p.String())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := q.String(), p.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r, err := Parse(q.Text())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Text(), q.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, q := range []*Plan{q, r} {
		if _, _, err := q.Fork(ForkOptions{CgroupFD: -1, Sock: -1}); err == nil || !strings.Contains(err.Error(), "parsed from text without") {
			t.Errorf("Fork = %v; want a refusal", err)
		}
	}
}

func TestParseRefusesWithTheLine(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "line 1"},
		{"no header", "0 exit 0\n", "line 1"},
		{"no steps", "plan 0 steps\n", "there are no steps"},
		{"wrong count", "plan 2 steps\n  0 exit 0\n", "announces 2 steps"},
		{"many slots", "plan 1 step, 99999999 slots\n", "exceeds the limit"},
		{"huge buffers", "plan 1 step, buffers 16000000 16000000\n  0 exit 0\n", "NewBuf"},
		{"no end of line", "plan 1 step\n  0 exit 0", "line 2: the line has no end"},
		{"unknown step", "plan 1 step\n  0 reboot\n", `unknown step "reboot"`},
		{"wrong number", "plan 1 step\n  1 exit 0\n", "step number 0"},
		{"missing operand", "plan 1 step\n  0 exit\n", "operand 0 is missing"},
		{"extra operand", "plan 1 step\n  0 exit 0 1\n", "unexpected"},
		{"unknown flag", "plan 2 steps\n  0 unshare NEWX\n  1 exit 0\n", `unknown flag "NEWX"`},
		{"backward jump", "plan 2 steps\n  0 setsid\n  1 exit 0 ? EPERM>0\n", "not placed"},
		{"jump to itself", "plan 2 steps\n  0 setsid ok>0\n  1 exit 0\n", "not placed"},
		{"jump past the end", "plan 2 steps\n  0 setsid ok>2\n  1 exit 0\n", "not placed"},
		{"unfilled slot", "plan 2 steps, 1 slot\n  0 close s0\n  1 exit 0\n", "before a step fills it"},
		{"no such slot", "plan 2 steps\n  0 getpid -> s0\n  1 exit 0\n", "slot 0"},
		{"no such buffer", "plan 2 steps\n  0 getcwd b0 8\n  1 exit 0\n", "buffer 0"},
		{"read past a buffer", "plan 2 steps, buffers 8\n  0 read fd=a(1) b0 9\n  1 exit 0\n", "outside buffer"},
		{"statx past a buffer", "plan 2 steps, buffers 264\n  0 statx cwd \"\" 0 0 b0+16\n  1 exit 0\n", "outside buffer"},
		{"shared memory", "plan 2 steps, 1 slot\n  0 clone SIGCHLD|0x100 -> s0\n  1 exit 0\n", "not possible"},
		{"number that is a hidden one", "plan 2 steps\n  0 close fd=a(-2147483648)\n  1 exit 0\n", "no good number"},
		{"NUL in a path", "plan 2 steps\n  0 chdir \"a\\x00\"\n  1 exit 0\n", "NUL"},
		{"value after a withheld name", "plan 1 step\n  0 execve \"a\" [] env(1)[\"A=b\"…]\n", "has a value"},
		{"some values withheld", "plan 1 step\n  0 execve \"a\" [] env(2)[\"A=\"… \"B=\"]\n", "some variables"},
		{"nine rules", "plan 2 steps\n  0 setsid ? 1 2 3 4 5 6 7 8 9\n  1 exit 0\n", "more than 8"},
		{"does not end", "plan 1 step\n  0 setsid\n", "neither execve nor exit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Parse(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse = %v, %v; want an error with %q", p, err, tt.want)
			}
		})
	}
}

// randomizer makes plans with random operands, straight from the table.
type randomizer struct {
	*rand.Rand
	b       *Builder
	slots   []Slot
	bufs    []Buf
	pending map[Label]bool // not placed yet
}

func randomPlan(r *rand.Rand) (*Plan, error) {
	x := randomizer{Rand: r, b: NewBuilder(), pending: map[Label]bool{}}
	x.bufs = []Buf{x.b.NewBuf(4096), x.b.NewBuf(300)}
	for range 1 + r.IntN(20) {
		x.step()
	}
	for l := range x.pending {
		x.b.Place(l)
	}
	x.b.Exit(0)
	return x.b.Plan()
}

func (x *randomizer) step() {
	k := kind(x.IntN(int(numKinds)))
	if k == opClone || k == opStatx || k == opMountSetattr || k == opWriteSlot && len(x.slots) == 0 {
		k = opSetsid // random operands do not pass their checks
	}
	for l := range x.pending {
		if x.IntN(3) == 0 {
			x.b.Place(l)
			delete(x.pending, l)
		}
	}
	var args []arg
	for _, f := range specs[k].forms {
		args = append(args, x.operand(f))
	}
	x.b.add(k, args...)
	if !specs[k].pseudo && x.IntN(3) == 0 {
		x.slots = append(x.slots, x.b.Result())
	}
	if x.IntN(3) == 0 {
		x.b.Tolerate(unix.EIO, unix.ENXIO)
	}
	if x.IntN(3) == 0 {
		x.b.Want(uintptr(x.IntN(9)))
	}
	if x.IntN(2) == 0 {
		l := x.b.NewLabel()
		x.pending[l] = true
		switch x.IntN(3) {
		case 0:
			x.b.OnError(l, unix.ENOENT)
		case 1:
			x.b.OnSuccess(l)
		case 2:
			x.b.OnZero(l)
		}
	}
}

func (x *randomizer) operand(f operand) arg {
	switch f.form() {
	case fFD:
		if len(x.slots) > 0 && x.IntN(2) == 0 {
			return x.b.fd(x.slots[x.IntN(len(x.slots))].FD())
		}
		return x.b.fd([]FD{
			Cwd, Num(x.IntN(100), "a"),
			Num(x.IntN(100), fmt.Sprintf("x%d", x.IntN(5))), Num(x.IntN(100), "n"+randomString(x.Rand)),
		}[x.IntN(4)])
	case fSlot:
		return x.b.fd(x.slots[x.IntN(len(x.slots))].FD())
	case fStr:
		return x.b.str(strings.ReplaceAll(randomString(x.Rand), "\x00", ""))
	case fBytes:
		s := []byte(randomString(x.Rand) + "12345678")
		return x.b.bytes(s[:len(s)&^7])
	case fFlags:
		return num(x.Uint64() & x.Uint64())
	case fEnum:
		if n := f.names(); n != nil && x.IntN(2) == 0 {
			return num((*n)[x.IntN(len(*n))].val)
		}
		return num(x.Uint64N(64) + 1)
	case fBuf:
		return x.b.buf(x.bufs[x.IntN(2)], x.IntN(4)*8)
	case fIDs:
		return x.b.ids([]uint32{x.Uint32(), 0}[:x.IntN(3)])
	case fArgv, fEnv:
		var list []string
		for range x.IntN(4) {
			list = append(list, strings.ReplaceAll(randomString(x.Rand), "\x00", "="))
		}
		return x.b.vec("list", list)
	case fFilter:
		return x.b.filter([]unix.SockFilter{{Code: uint16(x.Uint32()), Jt: 1, Jf: 2, K: x.Uint32()}, {}}[:1+x.IntN(2)])
	case fHex:
		return num(x.Uint64N(256))
	case fInt:
		return num(x.IntN(100) - 50)
	}
	return num(x.Uint64N(40))
}

func randomString(r *rand.Rand) string {
	alphabet := []string{"a", " ", "\"", "\\", "\n", "\x00", "\xff", "é", "…", "=", "]", "\ufffd", "\u2028", "`"}
	var s strings.Builder
	for range r.IntN(12) {
		s.WriteString(alphabet[r.IntN(len(alphabet))])
	}
	return s.String()
}

func TestRandomPlansSurviveTextAndParse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		p, err := randomPlan(r)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Parse(p.Text())
		if err != nil {
			t.Fatalf("%v in\n%s", err, p.Text())
		}
		if p.Text() != q.Text() {
			t.Fatalf("got\n%s\nwant\n%s", q.Text(), p.Text())
		}
		sameSteps(t, p, q)
		if q, err = Parse(p.String()); err != nil || q.String() != p.String() {
			t.Fatalf("short form: %v\n got\n%s\nwant\n%s", err, q, p)
		}
		if t.Failed() {
			t.Fatalf("plan:\n%s", p.Text())
		}
	}
}

func FuzzParse(f *testing.F) {
	p := everyStep(f)
	f.Add(p.Text())
	f.Add(p.String())
	for line := range strings.Lines(p.Text()) {
		f.Add("plan 1 step, 9 slots, buffers 4096 16 256\n  0 " + strings.TrimLeft(line, " 0123456789"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		q, err := Parse(p.Text())
		if err != nil {
			t.Fatalf("%v in\n%s", err, p.Text())
		}
		if p.Text() != q.Text() || p.String() != q.String() {
			t.Fatalf("got\n%s\nwant\n%s", q.Text(), p.Text())
		}
		sameSteps(t, p, q)
	})
}

func TestTheExampleInTheDocumentationParses(t *testing.T) {
	text, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```\nplan ")
	example, _, ok := strings.Cut("plan "+rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	p, err := Parse(example)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != example {
		t.Errorf("got\n%s\nwant\n%s", got, example)
	}
}
