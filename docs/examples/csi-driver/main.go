// SPDX-License-Identifier: Apache-2.0

// crust-csi is an example CSI driver: volumes on LVM or in files, mounted by the guest of a micro-VM
// where crustd runs, and by the node elsewhere. README.md says which file shows what.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const version = "0.1.0"

// driver answers all three services of CSI; identity.go, controller.go and node.go.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	name    string
	nodeID  string
	storage storage
	host    host
	crust   *crust
	pods    pods
}

func main() {
	hostname, _ := os.Hostname()
	var (
		endpoint    = flag.String("endpoint", "unix:///csi/csi.sock", "`address` to serve CSI on")
		name        = flag.String("driver-name", "volumes.crustd.example", "`name` of the driver")
		nodeID      = flag.String("node-id", hostname, "`name` of this node, as Kubernetes has it")
		volumeGroup = flag.String("volume-group", "", "LVM volume `group` for the volumes")
		directory   = flag.String("loop-directory", "/var/lib/crust-csi", "`directory` of files with loop devices, for nodes without a volume group")
		state       = flag.String("state-directory", "/run/crust-csi", "`directory` of records that a reboot may remove")
		socket      = flag.String("crust-socket", "/run/crustd/crust.sock", "`path` of crustd's gRPC socket; a node whose socket directory is missing has no crustd")
		classes     = flag.String("vm-runtime-classes", "kata*", "`patterns` of the runtime classes whose pods are micro-VMs, separated by commas")
		api         = flag.String("kubernetes-api", "", "`URL` of the API server, such as kubectl proxy; otherwise the pod's service account is used")
		onNode      = flag.Bool("run-on-node", false, "run LVM, mkfs and mount in the namespaces of process 1, for a driver in a privileged pod")
	)
	flag.Parse()

	host := host{onNode: *onNode}
	d := &driver{
		name:    *name,
		nodeID:  *nodeID,
		storage: loopFiles{host, *directory},
		host:    host,
		pods:    pods{api: *api, vmClasses: strings.Split(*classes, ",")},
	}
	if *volumeGroup != "" {
		d.storage = volumeGroupStorage{host, *volumeGroup}
	}
	if err := d.serve(*endpoint, *socket, *state); err != nil {
		fmt.Fprintf(os.Stderr, "crust-csi: %v\n", err)
		os.Exit(1)
	}
}

func (d *driver) serve(endpoint, crustSocket, stateDirectory string) error {
	if len(d.nodeID)+len("/")+maxNameLength > 128 {
		return fmt.Errorf("node id %q is too long: volume ids contain it and have at most 128 bytes", d.nodeID)
	}
	var err error
	if d.crust, err = newCrust(crustSocket, stateDirectory); err != nil {
		return err
	}
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return fmt.Errorf("endpoint %q: only unix:// is served", endpoint)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	syscall.Umask(0o077) // the socket gives root's power over the node's volumes
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(logCalls, oneCallPerVolume()))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)

	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(stopped, server.GracefulStop)
	slog.Info("serving", "driver", d.name, "node", d.nodeID, "endpoint", endpoint)
	return server.Serve(listener)
}

// logCalls never prints a message: secrets, mount flags and volume contexts are in them.
func logCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	started := time.Now()
	response, err := handler(ctx, request)
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
	}
	slog.Log(ctx, level, filepath.Base(info.FullMethod), "volume", volumeOf(request),
		"code", status.Code(err).String(), "error", status.Convert(err).Message(),
		"seconds", time.Since(started).Seconds())
	return response, err
}

// oneCallPerVolume answers ABORTED to a call that would change a volume while another one does. Callers
// are to send one at a time, and lose count when they restart.
func oneCallPerVolume() grpc.UnaryServerInterceptor {
	var busy sync.Map
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		volume := volumeOf(request)
		switch filepath.Base(info.FullMethod) {
		case "NodeGetVolumeStats", "ValidateVolumeCapabilities":
			volume = ""
		}
		if volume == "" {
			return handler(ctx, request)
		}
		if _, taken := busy.LoadOrStore(volume, nil); taken {
			return nil, status.Errorf(codes.Aborted, "another call for volume %s is in progress", volume)
		}
		defer busy.Delete(volume)
		return handler(ctx, request)
	}
}

func volumeOf(request any) string {
	switch r := request.(type) {
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	case *csi.CreateVolumeRequest:
		return r.GetName()
	}
	return ""
}
