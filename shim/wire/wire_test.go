package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// pairs has each message here beside those generated ones that it stands for.
var pairs = []struct {
	ours   func() Message
	theirs proto.Message
}{
	{func() Message { return &ContainerRequest{} }, &task.PidsRequest{}},
	{func() Message { return &ContainerRequest{} }, &task.PauseRequest{}},
	{func() Message { return &ContainerRequest{} }, &task.ResumeRequest{}},
	{func() Message { return &ContainerRequest{} }, &task.StatsRequest{}},
	{func() Message { return &ContainerRequest{} }, &task.ConnectRequest{}},
	{func() Message { return &ProcessRequest{} }, &task.StateRequest{}},
	{func() Message { return &ProcessRequest{} }, &task.StartRequest{}},
	{func() Message { return &ProcessRequest{} }, &task.DeleteRequest{}},
	{func() Message { return &ProcessRequest{} }, &task.WaitRequest{}},
	{func() Message { return &CreateRequest{} }, &task.CreateTaskRequest{}},
	{func() Message { return &PidResponse{} }, &task.CreateTaskResponse{}},
	{func() Message { return &PidResponse{} }, &task.StartResponse{}},
	{func() Message { return &DeleteResponse{} }, &task.DeleteResponse{}},
	{func() Message { return &ExecRequest{} }, &task.ExecProcessRequest{}},
	{func() Message { return &ResizeRequest{} }, &task.ResizePtyRequest{}},
	{func() Message { return &StateResponse{} }, &task.StateResponse{}},
	{func() Message { return &KillRequest{} }, &task.KillRequest{}},
	{func() Message { return &CloseIORequest{} }, &task.CloseIORequest{}},
	{func() Message { return &PidsResponse{} }, &task.PidsResponse{}},
	{func() Message { return &ProcessDetails{} }, &runcoptions.ProcessDetails{}},
	{func() Message { return &UpdateRequest{} }, &task.UpdateTaskRequest{}},
	{func() Message { return &WaitResponse{} }, &task.WaitResponse{}},
	{func() Message { return &StatsResponse{} }, &task.StatsResponse{}},
	{func() Message { return &ConnectResponse{} }, &task.ConnectResponse{}},
	{func() Message { return &Empty{} }, &emptypb.Empty{}},
	{func() Message { return &Status{} }, &statuspb.Status{}},
	{func() Message { return &Timestamp{} }, &timestamppb.Timestamp{}},
	{func() Message { return &Any{} }, &anypb.Any{}},
	{func() Message { return &Mount{} }, &types.Mount{}},
	{func() Message { return &TaskCreate{} }, &events.TaskCreate{}},
	{func() Message { return &TaskStart{} }, &events.TaskStart{}},
	{func() Message { return &TaskDelete{} }, &events.TaskDelete{}},
	{func() Message { return &TaskExit{} }, &events.TaskExit{}},
	{func() Message { return &TaskOOM{} }, &events.TaskOOM{}},
	{func() Message { return &TaskExecAdded{} }, &events.TaskExecAdded{}},
	{func() Message { return &TaskExecStarted{} }, &events.TaskExecStarted{}},
	{func() Message { return &TaskPaused{} }, &events.TaskPaused{}},
	{func() Message { return &TaskResumed{} }, &events.TaskResumed{}},
	{func() Message { return &ForwardRequest{} }, &eventsapi.ForwardRequest{}},
	{func() Message { return &Params{} }, &bootapi.BootstrapParams{}},
	{func() Message { return &Result{} }, &bootapi.BootstrapResult{}},
	{func() Message { return &RuntimeInfo{} }, &types.RuntimeInfo{}},
	{func() Message { return &RuncOptions{} }, &runcoptions.Options{}},
	{func() Message { return &RuntimeOptions{} }, &runtimeoptions.Options{}},
}

// left are the fields that the shim does not look at.
var left = map[protoreflect.FullName]bool{
	"containerd.task.v3.CreateTaskRequest.parent_checkpoint":             true,
	"containerd.task.v3.UpdateTaskRequest.annotations":                   true,
	"containerd.runc.v1.Options.task_api_address":                        true,
	"containerd.runc.v1.Options.task_api_version":                        true,
	"containerd.types.RuntimeInfo.annotations":                           true,
	"containerd.events.TaskDelete.id":                                    true,
	"containerd.runtime.bootstrap.v1.BootstrapParams.containerd_version": true,
	"containerd.runtime.bootstrap.v1.BootstrapParams.containerd_binary":  true,
	"containerd.runtime.bootstrap.v1.BootstrapResult.capabilities":       true,
	"containerd.runtime.bootstrap.v1.BootstrapResult.metadata":           true,
	"google.rpc.Status.details":                                          true,
}

// strip removes them from a message and from those below it.
func strip(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case left[f.FullName()]:
			m.Clear(f)
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				strip(v.List().Get(i).Message())
			}
		default:
			strip(v.Message())
		}
		return true
	})
}

// fill gives every field a value of its own.
func fill(m protoreflect.Message, next *int64) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case f.IsList():
			l := m.Mutable(f).List()
			for range 2 {
				if f.Message() != nil {
					fill(l.AppendMutable().Message(), next)
				} else {
					l.Append(scalar(f, next))
				}
			}
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), next)
		default:
			m.Set(f, scalar(f, next))
		}
	}
}

func scalar(f protoreflect.FieldDescriptor, next *int64) protoreflect.Value {
	*next += 77
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(f.Name()) + "é")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(bytes.Repeat([]byte{0xff}, int(*next)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(*next) << 12)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-int32(*next))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-*next << 40)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(3)
	}
	panic(f.Kind().String())
}

func TestMessagesAreThoseOfContainerd(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	for _, p := range pairs {
		t.Run(string(p.theirs.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			want := p.theirs.ProtoReflect().New().Interface()
			var next int64
			fill(want.ProtoReflect(), &next)
			text, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			ours := p.ours()
			if err := Unmarshal(text, ours); err != nil {
				t.Fatal(err)
			}
			got := p.theirs.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(Marshal(ours), got); err != nil {
				t.Fatal(err)
			}
			strip(want.ProtoReflect())
			if !proto.Equal(got, want) {
				t.Errorf("there and back:\n%v\nwant\n%v", got, want)
			}
			if b := Marshal(p.ours()); len(b) != 0 {
				t.Errorf("an empty message is %x", b)
			}
		})
		seen[p.theirs.ProtoReflect().Descriptor().FullName()] = true
	}
	for name := range left {
		if !seen[name.Parent()] {
			t.Errorf("%s: no such message here", name)
		}
	}
}

func TestEventsHaveTheNamesOfTheirTypes(t *testing.T) {
	n := 0
	for _, p := range pairs {
		e, ok := p.ours().(Event)
		if !ok {
			continue
		}
		n++
		if got, want := e.Name(), string(p.theirs.ProtoReflect().Descriptor().FullName()); got != want {
			t.Errorf("Name() = %s; want %s", got, want)
		}
		env := Pack(e, "ns", NewTimestamp(time.Unix(1, 2)))
		var got types.Envelope
		if err := proto.Unmarshal(Marshal(env), &got); err != nil {
			t.Fatal(err)
		}
		if got.Topic != e.Topic() || got.Namespace != "ns" || got.Event.TypeUrl != e.Name() || !got.Timestamp.AsTime().Equal(time.Unix(1, 2)) {
			t.Errorf("envelope = %v", &got)
		}
	}
	if n != 9 {
		t.Errorf("%d events", n)
	}
}

func TestLongMessagesHaveLongLengths(t *testing.T) {
	for _, size := range []int{0, 1, 125, 126, 127, 128, 129, 16383, 16384, 1 << 21} {
		in := &types.Mount{Source: string(bytes.Repeat([]byte("x"), size))}
		out := Marshal(&TaskCreate{Rootfs: []*Mount{{Source: in.Source}, {Type: "t"}}, Pid: 7})
		var got events.TaskCreate
		if err := proto.Unmarshal(out, &got); err != nil || len(got.Rootfs) != 2 || got.Rootfs[0].Source != in.Source || got.Pid != 7 {
			t.Errorf("%d bytes: %d mounts, %v", size, len(got.Rootfs), err)
		}
	}
}

func TestBrokenMessagesAreRefused(t *testing.T) {
	for name, b := range map[string]string{
		"a tag that does not end":     "\x80",
		"a number that does not end":  "\x18\x80",
		"a number of 70 bits":         "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"field number 0":              "\x00\x01",
		"a field number of 30 bits":   "\x80\x80\x80\x80\x10\x01",
		"a length that does not end":  "\x0a\x80",
		"a length beyond the message": "\x0a\x05ab",
		"a length of 64 bits":         "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01ab",
		"eight bytes cut short":       "\x79\x00\x00",
		"four bytes cut short":        "\x7d\x00\x00",
		"a group":                     "\x0b\x0c",
		"a string that is not UTF-8":  "\x0a\x01\xff",
		"a broken message below":      "\x3a\x03\x0a\x05a",
	} {
		if err := Unmarshal([]byte(b), &ExecRequest{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// FuzzUnmarshal holds the decoder against the generated one: what both accept
// must mean the same to them, and only what has groups may be refused alone.
func FuzzUnmarshal(f *testing.F) {
	for i, p := range pairs {
		m := p.theirs.ProtoReflect().New()
		var next int64
		fill(m, &next)
		text, err := proto.Marshal(m.Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), text)
		f.Add(byte(i), append(text, text...)) // what comes twice is merged
	}
	f.Add(byte(9), []byte("\x1a\x03\x0a\x01a\x18\x01\x0a\x01b\x7d0000\x7900000000"))
	f.Fuzz(func(t *testing.T, kind byte, text []byte) {
		p := pairs[int(kind)%len(pairs)]
		ours := p.ours()
		err := Unmarshal(text, ours)
		want := p.theirs.ProtoReflect().New().Interface()
		if theirs := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, want); theirs != nil {
			return // it may have found fault with a field that is skipped here
		} else if err != nil {
			if bytes.Contains([]byte(err.Error()), []byte("wire type 3")) {
				return
			}
			t.Fatalf("refused: %v", err)
		}
		got := p.theirs.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(Marshal(ours), got); err != nil {
			t.Fatal(err)
		}
		strip(want.ProtoReflect())
		if !proto.Equal(got, want) {
			t.Errorf("decoded:\n%v\nwant\n%v", got, want)
		}
	})
}
