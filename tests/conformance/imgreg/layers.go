package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A file is one entry of a layer; link makes it a hard link (an absolute one: a
// symbolic link), a trailing slash in the path a directory.
type file struct {
	path string
	data []byte
	link string
	mode int64
	uid  int
}

// busyboxLayer lays a static busybox out as the usual image does: one file,
// its applets hard links to it (a mount over one must not cover the others).
// The files under extra replace or join them.
func busyboxLayer(bin, extra string) ([]file, error) {
	data, err := os.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(bin, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", bin, err)
	}
	var fs []file
	have := map[string]bool{"bin/busybox": true}
	err = filepath.WalkDir(extra, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(extra, p)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			fs = append(fs, file{path: rel + "/"})
			return nil
		}
		have[rel] = true
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		mode := int64(0o755)
		if fi, err := d.Info(); err == nil && fi.Mode()&os.ModeSetuid != 0 {
			mode = 0o4755
		}
		fs = append(fs, file{path: rel, data: data, mode: mode})
		return nil
	})
	if err != nil {
		return nil, err
	}
	fs = append(fs, file{path: "bin/busybox", data: data, mode: 0o755})
	for _, a := range strings.Fields(string(out)) {
		if p := "bin/" + a; !have[p] {
			fs = append(fs, file{path: p, link: "bin/busybox"})
		}
	}
	for _, d := range []string{"dev/", "etc/", "home/", "proc/", "root/", "run/", "sys/", "usr/", "usr/sbin/", "var/", "var/run/", "var/www/"} {
		fs = append(fs, file{path: d})
	}
	return append(append(fs, file{path: "tmp/", mode: 0o1777}), etc...), nil
}

func archive(fs []file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range fs {
		h := &tar.Header{Name: f.path, Mode: f.mode, Uid: f.uid, Gid: f.uid, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Size: int64(len(f.data))}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeLink, f.link, 0o755
			if f.link[0] == '/' {
				h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
			}
		case strings.HasSuffix(f.path, "/"):
			h.Typeflag = tar.TypeDir
			if h.Mode == 0 {
				h.Mode = 0o755
			}
		case h.Mode == 0:
			h.Mode = 0o644
		}
		check(w.WriteHeader(h))
		_, err := w.Write(f.data)
		check(err)
	}
	check(w.Close())
	return b.Bytes()
}

func layer(fs []file) (v1.Layer, error) {
	b := archive(fs)
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b)), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// build makes an OCI index: the image for this machine's architecture, and for
// the others, which nothing runs, a layer that tells them apart.
func build(s spec, base v1.Layer) (v1.ImageIndex, error) {
	var layers []v1.Layer
	if !s.scratch {
		layers = append(layers, base)
	}
	for _, fs := range s.layers {
		l, err := layer(fs)
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	goos := s.os
	if goos == "" {
		goos = "linux"
	}
	if len(s.config.Env) == 0 || !strings.HasPrefix(s.config.Env[0], "PATH=") {
		s.config.Env = append(s.config.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	if len(s.config.Entrypoint) == 0 {
		s.config.Cmd = []string{"sh"}
	}
	idx := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	native := layers
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		layers = native
		if arch != runtime.GOARCH {
			l, err := layer([]file{{path: "image", data: []byte(s.names[0] + arch)}})
			if err != nil {
				return nil, err
			}
			layers = []v1.Layer{l}
		}
		img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		img, err := mutate.AppendLayers(img, layers...)
		if err != nil {
			return nil, err
		}
		cf, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		cf = cf.DeepCopy()
		cf.OS, cf.Architecture, cf.Config = goos, arch, s.config
		if img, err = mutate.ConfigFile(img, cf); err != nil {
			return nil, err
		}
		p := v1.Platform{OS: goos, Architecture: arch}
		if arch == "arm64" {
			p.Variant = "v8"
		}
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	return idx, nil
}
