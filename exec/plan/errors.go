package plan

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// What a child does when a step fails: it sends failureSize bytes, three
// 32-bit words in native order (magic, step, errno), and exits with failureCode.
const (
	failureMagic = 0x4c494146 // "FAIL" in memory
	failureSize  = 12
	failureCode  = 127
)

// FailureSize is the length in bytes of a failure message. No other message
// that a step can write with WriteSlot has it.
const FailureSize = failureSize

// Failure is what a child reports when a step fails.
type Failure struct {
	Step  uint32 // index of the step
	Errno uint32
}

// ParseFailure reads a message from the child's socket. It returns false if
// the message is something else.
func ParseFailure(msg []byte) (Failure, bool) {
	if len(msg) != failureSize || binary.NativeEndian.Uint32(msg) != failureMagic {
		return Failure{}, false
	}
	return Failure{Step: binary.NativeEndian.Uint32(msg[4:]), Errno: binary.NativeEndian.Uint32(msg[8:])}, true
}

// StepError reports the step that stopped a child before execve.
type StepError struct {
	Index int        // position in the plan
	Step  string     // as String prints it, shortened, such as "setns fd=net NEWNET"
	Errno unix.Errno // never 0
	About string     // what the step was for, see Builder.About
}

func (e *StepError) Error() string {
	if e.About != "" {
		return fmt.Sprintf("%s: plan step %d %s: %v", e.About, e.Index, e.Step, e.Errno)
	}
	return fmt.Sprintf("plan step %d %s: %v", e.Index, e.Step, e.Errno)
}

// Unwrap lets errors.Is(err, unix.EPERM) work.
func (e *StepError) Unwrap() error { return e.Errno }

// Error turns what a child reported into text.
func (p *Plan) Error(word Failure) *StepError {
	e := &StepError{Index: int(word.Step), Errno: unix.Errno(word.Errno), Step: "end of plan"}
	if e.Index < len(p.ops) {
		e.Step = p.stepText(e.Index)
	}
	e.About = p.aboutStep(e.Index)
	return e
}

// aboutStep says what step i is for, "" if nobody said.
func (p *Plan) aboutStep(i int) (text string) {
	for _, s := range p.about {
		if s.first <= i {
			text = s.text
		}
	}
	return text
}
