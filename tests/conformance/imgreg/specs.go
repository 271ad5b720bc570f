package main

import (
	"bytes"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A spec is one stand-in image: layers over busybox (or over nothing), the
// config of its container, and the names it answers to.
type spec struct {
	names   []string
	layers  [][]file
	scratch bool
	os      string
	config  v1.Config
}

const (
	e2e     = "registry.k8s.io/e2e-test-images/"
	staging = "gcr.io/k8s-staging-cri-tools/"
	ctrd    = "ghcr.io/containerd/"
	bench   = "public.ecr.aws/docker/library/"
)

var etc = []file{
	{path: "etc/passwd", data: []byte("root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n" +
		"bin:x:2:2:bin:/bin:/bin/false\nsys:x:3:3:sys:/dev:/bin/false\n" +
		"www-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n")},
	{path: "etc/group", data: []byte("root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nwheel:x:10:root\nwww-data:x:33:\nnogroup:x:65534:\n")},
}

// specs lists the stand-ins for every image that the suites name.
func specs(pause, standin []byte) []spec {
	server := func(name string) [][]file {
		return [][]file{{{path: "usr/sbin/" + name, data: standin, mode: 0o755}}}
	}
	pauseSpec := func(marker string, names ...string) spec {
		return spec{
			names: names, scratch: true,
			layers: [][]file{{{path: "pause", data: pause, mode: 0o755}, {path: marker}}},
			config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"},
		}
	}
	return append(variants(), []spec{
		pauseSpec("3.9", "registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"),
		pauseSpec("3.10", "registry.k8s.io/pause:3.10.2"), // the sandbox image: no other name of its own
		pauseSpec("3.6", "registry.k8s.io/pause:3.6"),
		{names: []string{e2e + "busybox:1.29-2", ctrd + "busybox:1.36", bench + "busybox:1"}},
		{names: []string{ctrd + "alpine:3.14.0"}, layers: [][]file{{
			{path: "etc/os-release", data: []byte("NAME=\"Alpine Linux\"\n")}, {path: "bin/sh", link: "/bin/busybox"},
		}}},
		{
			names: []string{e2e + "nginx:1.14-2", ctrd + "nginx:1.27.0"}, layers: server("nginx"),
			config: v1.Config{Entrypoint: []string{"/usr/sbin/nginx"}},
		},
		{
			names: []string{e2e + "httpd:2.4.39-4"}, layers: server("httpd"),
			config: v1.Config{Entrypoint: []string{"/usr/sbin/httpd"}},
		},
		{
			names: []string{staging + "hostnet-nginx-amd64:latest"}, layers: server("nginx"),
			config: v1.Config{Entrypoint: []string{"/usr/sbin/nginx"}, Env: []string{"PORT=12003"}},
		},
		{
			names: []string{e2e + "nonewprivs:1.3"}, config: v1.Config{Entrypoint: []string{"/nnp"}},
			layers: [][]file{{{path: "nnp", data: standin, mode: 0o4755}}},
		},
		{
			names: []string{e2e + "resource-consumer:1.10"}, config: v1.Config{Entrypoint: []string{"/resource-consumer"}},
			layers: [][]file{{
				{path: "resource-consumer", data: standin, mode: 0o755},
				{path: "bin/stress", link: "resource-consumer"},
			}},
		},
		{
			names: []string{ctrd + "volume-copy-up:2.2", ctrd + "volume-copy-up:2.1"},
			layers: [][]file{
				{{path: "test_dir/"}, {path: "test_dir/test_file", data: []byte("test_content\n")}},
				{{path: "C:/"}, {path: "C:/weird_test_dir/"}, {path: "C:/weird_test_dir/weird_test_file", data: []byte("test_content\n")}},
				{{path: ":colon_prefixed/"}, {path: ":colon_prefixed/colon_prefixed_file", data: []byte("test_content\n")}},
			},
			config: v1.Config{Volumes: map[string]struct{}{"/test_dir": {}, "C:/weird_test_dir": {}, "/:colon_prefixed": {}}},
		},
		{
			names: []string{ctrd + "volume-ownership:2.1"}, layers: [][]file{{{path: "test_dir/", uid: 65534}}},
			config: v1.Config{Volumes: map[string]struct{}{"/test_dir": {}}},
		},
		{names: []string{ctrd + "windows/nanoserver:1809"}, scratch: true, os: "windows", layers: marker("win")},
		{
			names: []string{staging + "test-image-predefined-group:latest"}, config: v1.Config{User: "1000"},
			layers: [][]file{{
				{path: "etc/passwd", data: append(bytes.Clone(etc[0].data), "default-user:x:1000:1000::/home:/bin/sh\n"...)},
				{path: "etc/group", data: append(bytes.Clone(etc[1].data), "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"...)},
			}},
		},
		{
			names:  []string{staging + "test-image-tags:1", staging + "test-image-tags:2", staging + "test-image-tags:3"},
			layers: marker("same-image"),
		},
	}...)
}

// marker is a layer that tells an image from others.
func marker(name string) [][]file { return [][]file{{{path: name}}} }

// variants lists the images that differ in little.
func variants() (list []spec) {
	for name, user := range map[string]string{
		"uid": "1002", "username": "www-data", "uid-group": "1003:1004", "username-group": "www-data:1004",
	} {
		list = append(list, spec{names: []string{staging + "test-image-user-" + name + ":latest"}, config: v1.Config{User: user}})
	}
	for _, n := range []string{
		"test-image-1:latest", "test-image-2:latest", "test-image-3:latest", "test-image-latest:latest",
		"test-image-digest:latest", "test-image-tag:test", "test-image-tag:all",
	} {
		list = append(list, spec{names: []string{staging + n}, layers: marker(strings.ReplaceAll(n, ":", "-"))})
	}
	for _, t := range []string{"1.35.0-glibc", "1-uclibc", "1-glibc", "1-musl"} {
		list = append(list, spec{names: []string{bench + "busybox:" + t}, layers: marker(t)})
	}
	return list
}
