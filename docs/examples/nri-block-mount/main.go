// SPDX-License-Identifier: Apache-2.0

// crust-block-mount is an NRI plugin: it turns the device of a raw block claim into a file system that
// the guest of a micro-VM mounts. README.md says why and how.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

func main() {
	var (
		handlers = flag.String("runtime-handlers", "kata*", "`patterns` of the runtime handlers whose pods are micro-VMs, separated by commas")
		kubelet  = flag.String("kubelet", "/var/lib/kubelet", "the kubelet's root `directory`")
		state    = flag.String("state-directory", "/run/crust-block-mount", "`directory` of records, on a tmpfs: no guest has a disk after a reboot")
		socket   = flag.String("crust-socket", "/run/crustd/crust.sock", "`path` of crustd's gRPC socket")
		nri      = flag.String("nri-socket", api.DefaultSocketPath, "`path` of the container engine's NRI socket")
	)
	flag.Parse()
	if err := run(strings.Split(*handlers, ","), *kubelet, *state, *socket, *nri); err != nil {
		fmt.Fprintf(os.Stderr, "crust-block-mount: %v\n", err)
		os.Exit(1)
	}
}

// run returns when the engine closes the connection. The service manager starts the plugin again, which
// then learns in Synchronize what the engine has.
func run(handlers []string, kubelet, state, crustSocket, nriSocket string) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	crust, err := newCrust(crustSocket)
	if err != nil {
		return err
	}
	p := &plugin{handlers: handlers, state: state, disks: disks{kubelet, map[string]chan error{}}, crust: crust}
	// Without an answer the container would be created with the raw device. The engine refuses it instead,
	// and goes on asking, if it knows these policies.
	p.stub, err = stub.New(p, stub.WithPluginName("crust-block-mount"), stub.WithPluginIdx("50"),
		stub.WithSocketPath(nriSocket),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true}))
	if err != nil {
		return err
	}
	slog.Info("connecting", "nri", nriSocket, "crustd", crustSocket, "handlers", handlers)
	if err := p.stub.Run(context.Background()); err != nil {
		return err
	}
	return fmt.Errorf("the engine closed the connection on %s", nriSocket)
}
