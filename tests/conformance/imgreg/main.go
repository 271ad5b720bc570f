// Command imgreg builds stand-ins for the public images that the conformance
// suites name and serves them over TLS as every registry those names point to.
// It is meant for a private network namespace whose hosts file sends the
// registries' names to 127.0.0.1.
//
//	imgreg -bin DIR -busybox FILE -extra DIR -ca ca.pem -hosts hosts -digests images.toml
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// inProcess answers requests with a handler, without a network.
type inProcess struct{ h http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	t.h.ServeHTTP(w, r)
	res := w.Result()
	res.Request = r
	return res, nil
}

func main() {
	listen := flag.String("listen", "127.0.0.1:443", "address to serve on")
	bin := flag.String("bin", ".", "directory with the built pause and standin")
	busybox := flag.String("busybox", "/bin/busybox", "static busybox")
	extra := flag.String("extra", "", "directory whose files join the busybox images")
	ca := flag.String("ca", "", "write the certificate authority here (PEM)")
	hosts := flag.String("hosts", "", "write a hosts file here")
	digests := flag.String("digests", "", "write the image list for containerd's suites here (TOML)")
	flag.Parse()

	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	fs, err := busyboxLayer(*busybox, *extra)
	check(err)
	base, err := layer(fs)
	check(err)
	names := map[string]bool{"localhost": true}
	for _, s := range specs(read(*bin, "pause"), read(*bin, "standin")) {
		idx, err := build(s, base)
		check(err)
		for _, n := range s.names {
			ref, err := name.ParseReference(n)
			check(err)
			names[ref.Context().RegistryStr()] = true
			check(remote.WriteIndex(ref, idx, remote.WithTransport(inProcess{h})))
			if n == ctrd+"busybox:1.36" && *digests != "" {
				d, err := idx.Digest()
				check(err)
				check(os.WriteFile(*digests, fmt.Appendf(nil, "BusyBoxByDigest = %q\n", ctrd+"busybox@"+d.String()), 0o644))
			}
		}
	}
	var all []string
	for n := range names {
		all = append(all, n)
	}
	sort.Strings(all)
	if *hosts != "" {
		check(os.WriteFile(*hosts, fmt.Appendf(nil, "127.0.0.1 %s\n::1 localhost\n", strings.Join(all, " ")), 0o644))
	}
	cert, pemCA := certificate(all)
	ln, err := tls.Listen("tcp", *listen, &tls.Config{Certificates: []tls.Certificate{cert}})
	check(err)
	if *ca != "" { // last: its presence says that the registry is up
		check(os.WriteFile(*ca+".tmp", pemCA, 0o644))
		check(os.Rename(*ca+".tmp", *ca))
	}
	check(http.Serve(ln, h))
}

func read(dir, name string) []byte {
	b, err := os.ReadFile(filepath.Join(dir, name))
	check(err)
	return b
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
