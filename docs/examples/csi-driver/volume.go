// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// storage is where the volumes of this node are. All calls may be repeated.
type storage interface {
	// create makes a volume of at least so many bytes, unless there is one of that name.
	create(ctx context.Context, name string, bytes int64) error
	// remove fails with errInUse while the volume is in use.
	remove(ctx context.Context, name string) error
	// size fails with errNotFound.
	size(ctx context.Context, name string) (int64, error)
	// grow never shrinks a volume. Fails with errNoSpace.
	grow(ctx context.Context, name string, bytes int64) error
	// attach makes the block device appear, and returns its path.
	attach(ctx context.Context, name string) (string, error)
	// detach fails with errInUse while the device is in use.
	detach(ctx context.Context, name string) error
	// available is what could be created, in bytes.
	available(ctx context.Context) (int64, error)
}

var (
	errNotFound = errors.New("no such volume")
	errNoSpace  = errors.New("not enough free space")
	errInUse    = errors.New("the volume is in use")
)

// toStatus chooses the code of an error of storage and host; one that is a status already stays it.
func toStatus(err error) error {
	code := codes.Internal
	switch {
	case errors.Is(err, errNotFound):
		code = codes.NotFound
	case errors.Is(err, errNoSpace):
		code = codes.ResourceExhausted
	case errors.Is(err, errInUse):
		code = codes.FailedPrecondition
	default:
		if _, ok := status.FromError(err); ok {
			return err
		}
	}
	return status.Error(code, err.Error())
}

func invalid(format string, arguments ...any) error {
	return status.Errorf(codes.InvalidArgument, format, arguments...)
}

// A volume's name is that of its logical volume or file. Its id is NODE/NAME, because an expansion may
// reach the controller of another node, which must be able to tell that from a volume that is gone.
const (
	namePrefix    = "csi-"
	maxNameLength = len(namePrefix) + 63
)

var (
	plainName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	ownName   = regexp.MustCompile(`^` + namePrefix + `[a-z0-9][a-z0-9-]{0,62}$`)
)

// nameFor gives a volume its name. Kubernetes asks for "pvc-UID", which is kept as it is.
func nameFor(requested string) string {
	if plainName.MatchString(requested) {
		return namePrefix + requested
	}
	return namePrefix + fmt.Sprintf("%x", sha256.Sum256([]byte(requested)))[:32]
}

func (d *driver) id(name string) string {
	return d.nodeID + "/" + name
}

// parse splits an id. The name is checked, for it becomes an argument of lvremove and a part of a path.
func parse(id string) (node, name string, ok bool) {
	i := strings.LastIndexByte(id, '/')
	if i < 0 || !ownName.MatchString(id[i+1:]) {
		return "", "", false
	}
	return id[:i], id[i+1:], true
}

// find returns the name and the size of a volume of this node.
func (d *driver) find(ctx context.Context, id string) (string, int64, error) {
	if id == "" {
		return "", 0, invalid("volume_id is missing")
	}
	node, name, ok := parse(id)
	if !ok || node != d.nodeID {
		return "", 0, status.Errorf(codes.NotFound, "node %s has no volume %q", d.nodeID, id)
	}
	size, err := d.storage.size(ctx, name)
	if err != nil {
		return "", 0, toStatus(fmt.Errorf("volume %s: %w", id, err))
	}
	return name, size, nil
}

// What StorageClass.parameters may say, and is handed to the node as volume context.
const (
	runtimeParameter = "runtime"
	runtimeByPod     = "auto" // by the pod's runtime class
	runtimeVM        = "vm"
	runtimeHost      = "host"
)

const defaultFileSystem = "ext4"

// checkCapability refuses what the driver cannot serve: volumes belong to one node.
func checkCapability(capability *csi.VolumeCapability) error {
	if capability == nil {
		return invalid("volume_capability is missing")
	}
	switch capability.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	default:
		return invalid("access mode %s: volumes belong to one node", capability.GetAccessMode().GetMode())
	}
	if capability.GetBlock() != nil {
		return nil
	}
	if capability.GetMount() == nil {
		return invalid("volume_capability has no access type")
	}
	switch fsType := capability.GetMount().GetFsType(); fsType {
	case "", "ext4", "xfs":
		return nil
	default:
		return invalid("file system %q: ext4 and xfs are supported", fsType)
	}
}

func fileSystemOf(capability *csi.VolumeCapability) string {
	if fsType := capability.GetMount().GetFsType(); fsType != "" {
		return fsType
	}
	return defaultFileSystem
}
