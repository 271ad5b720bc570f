package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// logger writes what other runtimes write, in the form that their callers read:
// Docker, containerd and Podman take the text of an error from the last entry of
// a JSON log.
type logger struct {
	to    io.Writer // the log; standard error if there is none
	file  bool      // to is a file
	json  bool
	debug bool
}

// open sets the logger up as the flags say.
func (l *logger) open(name, format string, debug bool) error {
	l.to, l.debug = os.Stderr, debug
	switch format {
	case "", "text":
	case "json":
		l.json = true
	default:
		return fmt.Errorf("--log-format %q: want text or json", format)
	}
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	l.to, l.file = f, true
	return nil
}

func (l *logger) entry(level, msg string) {
	if l.to == nil {
		l.to = os.Stderr
	}
	now := time.Now().Format(time.RFC3339)
	var line []byte
	if l.json {
		line, _ = json.Marshal(struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
			Time  string `json:"time"`
		}{level, msg, now})
	} else {
		line = fmt.Appendf(nil, "time=%q level=%s msg=%s", now, level, strconv.Quote(msg))
	}
	l.to.Write(append(line, '\n')) //nolint:errcheck // there is nowhere else to say so
}

// fail reports the error that ends the program: on standard error always.
func (l *logger) fail(err error) {
	if l.file || l.json {
		l.entry("error", err.Error())
	}
	if l.file || !l.json {
		fmt.Fprintln(os.Stderr, "ibex:", err)
	}
}

func (l *logger) warn(err error) { l.entry("warning", err.Error()) }

func (l *logger) debugf(format string, args ...any) {
	if l.debug {
		l.entry("debug", fmt.Sprintf(format, args...))
	}
}
