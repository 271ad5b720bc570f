package ctd

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ImageName is the name of the image that every daemon gets.
const ImageName = "ibex.test/box:latest"

// file is an entry of the image's only layer.
type file struct {
	name string
	mode int64
	text string // contents, or the target of a link
	kind byte   // tar type; 0 is a regular file
	uid  int
}

// odd are the files that tests of failing commands need, and accounts.
var odd = []file{
	{name: "etc/passwd", mode: 0o644, text: "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n"},
	{name: "etc/group", mode: 0o644, text: "root:x:0:\nuser:x:1000:\nextra:x:2000:user\n"},
	{name: "home/user", mode: 0o755, kind: tar.TypeDir, uid: 1000},
	{name: "tmp", mode: 0o1777, kind: tar.TypeDir},
	{name: "proc", mode: 0o555, kind: tar.TypeDir},
	{name: "sys", mode: 0o555, kind: tar.TypeDir},
	{name: "dev", mode: 0o755, kind: tar.TypeDir},
	{name: "run", mode: 0o755, kind: tar.TypeDir},
	{name: "root", mode: 0o700, kind: tar.TypeDir},
	{name: "odd/dir", mode: 0o755, kind: tar.TypeDir},
	{name: "odd/plain", mode: 0o644, text: "#!/bin/sh\nexit 0\n"},
	{name: "odd/nomode", mode: 0, text: "#!/bin/sh\nexit 0\n"},
	{name: "odd/script", mode: 0o755, text: "#!/bin/sh\necho script\n"},
	{name: "odd/nointerp", mode: 0o755, text: "#!/mmnnttbb\nexit 0\n"},
	{name: "odd/crlf", mode: 0o755, text: "#!/bin/sh\r\nexit 0\r\n"},
	{name: "odd/noshebang", mode: 0o755, text: "no program at all\n"},
	{name: "odd/empty", mode: 0o755},
	{name: "odd/dangling", kind: tar.TypeSymlink, text: "/nowhere"},
	{name: "odd/loop", kind: tar.TypeSymlink, text: "/odd/loop"},
	{name: "odd/abs", kind: tar.TypeSymlink, text: "/bin/busybox"},
}

// WriteImage writes an OCI image as a tar file: busybox with links for its
// applets, the programs in binDir (as /bin/NAME), and some odd files below
// /odd.
func WriteImage(w io.Writer, binDir string, programs ...string) error {
	layer, err := makeLayer(binDir, programs)
	if err != nil {
		return err
	}
	blobs := map[digest.Digest][]byte{}
	put := func(mediaType string, data []byte) ocispec.Descriptor {
		d := digest.FromBytes(data)
		blobs[d] = data
		return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
	}
	layerDesc := put(ocispec.MediaTypeImageLayer, layer)
	epoch := time.Unix(0, 0).UTC()
	config, err := json.Marshal(ocispec.Image{
		Created:  &epoch,
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Config:   ocispec.ImageConfig{Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Cmd: []string{"/bin/sh"}},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerDesc.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    put(ocispec.MediaTypeImageConfig, config),
		Layers:    []ocispec.Descriptor{layerDesc},
	})
	if err != nil {
		return err
	}
	top := put(ocispec.MediaTypeImageManifest, manifest)
	top.Annotations = map[string]string{
		"io.containerd.image.name": ImageName,
		ocispec.AnnotationRefName:  "latest",
	}
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		Manifests: []ocispec.Descriptor{top},
	})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	files := []file{
		{name: ocispec.ImageLayoutFile, mode: 0o644, text: `{"imageLayoutVersion":"1.0.0"}`},
		{name: ocispec.ImageIndexFile, mode: 0o644, text: string(index)},
	}
	for d, data := range blobs {
		files = append(files, file{name: "blobs/sha256/" + d.Encoded(), mode: 0o644, text: string(data)})
	}
	if err := writeFiles(tw, files); err != nil {
		return err
	}
	return tw.Close()
}

func makeLayer(binDir string, programs []string) ([]byte, error) {
	path, err := busybox()
	if err != nil {
		return nil, err
	}
	box, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, err
	}
	files := []file{{name: "bin/busybox", mode: 0o755, text: string(box)}}
	for _, name := range strings.Fields(string(applets)) {
		if name != "busybox" {
			files = append(files, file{name: "bin/" + name, kind: tar.TypeSymlink, text: "busybox"})
		}
	}
	for _, name := range programs {
		text, err := os.ReadFile(binDir + "/" + name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "bin/" + name, mode: 0o755, text: string(text)})
	}
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	if err := writeFiles(tw, append(files, odd...)); err != nil {
		return nil, err
	}
	err = tw.Close()
	return layer.Bytes(), err
}

// writeFiles adds the files with the directories that they need.
func writeFiles(tw *tar.Writer, files []file) error {
	made := map[string]bool{}
	for _, f := range files {
		parts := strings.Split(f.name, "/")
		for i := 1; i < len(parts); i++ {
			dir := strings.Join(parts[:i], "/")
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := tw.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
				return err
			}
		}
		h := tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Uid: f.uid, Gid: f.uid}
		switch f.kind {
		case 0:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.text))
		case tar.TypeSymlink:
			h.Linkname, h.Mode = f.text, 0o777
		case tar.TypeDir:
			made[f.name] = true
			h.Name += "/"
		}
		if err := tw.WriteHeader(&h); err != nil {
			return err
		}
		if h.Size > 0 {
			if _, err := io.WriteString(tw, f.text); err != nil {
				return err
			}
		}
	}
	return nil
}
