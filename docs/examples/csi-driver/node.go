// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.nodeID, AccessibleTopology: d.topology()}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_VOLUME_CONDITION,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}}})
	}
	return response, nil
}

// NodeStageVolume makes the device appear, with a file system on it. It mounts nothing: which pod will
// have the volume is not known here, and a guest may have it already, for the kubelet stages again
// whenever it restarts.
func (d *driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if r.GetStagingTargetPath() == "" {
		return nil, invalid("staging_target_path is missing")
	}
	if err := checkCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	name, _, err := d.find(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	device, err := d.storage.attach(ctx, name)
	if err != nil {
		return nil, toStatus(err)
	}
	if r.GetVolumeCapability().GetBlock() == nil {
		if err := d.host.makeFileSystem(ctx, device, fileSystemOf(r.GetVolumeCapability())); err != nil {
			return nil, toStatus(err)
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if r.GetStagingTargetPath() == "" {
		return nil, invalid("staging_target_path is missing")
	}
	name, _, err := d.find(ctx, r.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.NodeUnstageVolumeResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	if targets, err := d.crust.targetsOf(r.GetVolumeId()); err != nil {
		return nil, toStatus(err)
	} else if len(targets) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is published to a micro-VM at %s", r.GetVolumeId(), targets[0])
	}
	if err := d.storage.detach(ctx, name); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if r.GetTargetPath() == "" {
		return nil, invalid("target_path is missing")
	}
	if err := checkCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	name, _, err := d.find(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.FailedPrecondition, "staging_target_path is missing")
	}
	device, err := d.storage.attach(ctx, name)
	if err != nil {
		return nil, toStatus(err)
	}
	inVM, err := d.forVM(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	if err := d.isFree(r, device, inVM); err != nil {
		return nil, toStatus(err)
	}
	switch {
	case r.GetVolumeCapability().GetBlock() != nil:
		err = d.publishDevice(ctx, r, device)
	case inVM:
		err = d.publishToVM(ctx, r, device)
	default:
		err = d.publishToHost(ctx, r, device)
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// isInVM says whether a guest has what was published at a target: by the record, and by the guard where
// somebody has removed that.
func (d *driver) isInVM(target string) (bool, error) {
	if known, err := d.crust.has(target); err != nil || known {
		return known, err
	}
	at, err := d.host.mountedAt(target)
	return at != nil && at.source == guardSource, err
}

// forVM decides whether the pod's guest mounts the volume. What was decided for this target stays.
func (d *driver) forVM(ctx context.Context, r *csi.NodePublishVolumeRequest) (bool, error) {
	if r.GetVolumeCapability().GetBlock() != nil {
		return false, nil
	}
	if known, err := d.isInVM(r.GetTargetPath()); err != nil || known {
		return known, err
	}
	if at, err := d.host.mountedAt(r.GetTargetPath()); err != nil || at != nil {
		return false, err
	}
	if !d.crust.installed() {
		return false, nil
	}
	switch r.GetVolumeContext()[runtimeParameter] {
	case runtimeVM:
		return true, nil
	case runtimeHost:
		return false, nil
	default:
		return d.pods.inVM(ctx, r.GetVolumeContext())
	}
}

// isFree refuses a second user where there must be one only: beside a guest always, and otherwise as the
// access mode says.
func (d *driver) isFree(r *csi.NodePublishVolumeRequest, device string, inVM bool) error {
	inVMs, err := d.crust.targetsOf(r.GetVolumeId())
	if err != nil {
		return err
	}
	mounted, err := d.host.publishedAt(device)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(inVMs, func(target string) bool { return target == r.GetTargetPath() })
	if inVM || len(others) > 0 ||
		r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		for _, one := range mounted {
			if one.target != r.GetTargetPath() {
				others = append(others, one.target)
			}
		}
	}
	if len(others) > 0 {
		return status.Errorf(codes.FailedPrecondition, "volume %s is published at %s, and one pod at a time may have it", r.GetVolumeId(), others[0])
	}
	return nil
}

// publishToVM leaves the mount to the guest: the target stays empty, and crustd writes beside the
// runtime's other metadata which device belongs there.
func (d *driver) publishToVM(ctx context.Context, r *csi.NodePublishVolumeRequest, device string) error {
	target := r.GetTargetPath()
	if err := d.crust.remember(r.GetVolumeId(), target); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	err := d.crust.stage(ctx, target, device, r.GetVolumeCapability(), isReadOnly(r))
	if err == nil {
		err = d.host.guard(ctx, target)
	}
	if err != nil {
		// A final error ends the kubelet's interest in this target: leave nothing that counts as published.
		_ = d.takeFromVM(ctx, target)
	}
	return err
}

func (d *driver) takeFromVM(ctx context.Context, target string) error {
	if err := d.crust.unstage(ctx, target); err != nil {
		return err
	}
	if err := d.host.clear(ctx, target); err != nil {
		return err
	}
	return d.crust.forget(target)
}

func isReadOnly(r *csi.NodePublishVolumeRequest) bool {
	return r.GetReadonly() ||
		r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
}

func (d *driver) publishToHost(ctx context.Context, r *csi.NodePublishVolumeRequest, device string) error {
	target, capability := r.GetTargetPath(), r.GetVolumeCapability()
	at, err := d.host.mountedAt(target)
	if err != nil {
		return err
	}
	if at == nil {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		options := slices.Clone(capability.GetMount().GetMountFlags())
		if isReadOnly(r) {
			options = append(options, "ro")
		}
		if err := d.host.mountFileSystem(ctx, device, target, fileSystemOf(capability), options); err != nil {
			return err
		}
	}
	group := capability.GetMount().GetVolumeMountGroup()
	if group == "" || isReadOnly(r) {
		return nil
	}
	number, err := strconv.Atoi(group)
	if err != nil {
		return invalid("volume_mount_group %q is not a number", group)
	}
	return giveToGroup(target, number)
}

func (d *driver) publishDevice(ctx context.Context, r *csi.NodePublishVolumeRequest, device string) error {
	if at, err := d.host.mountedAt(r.GetTargetPath()); err != nil || at != nil {
		return err
	}
	file, err := os.OpenFile(r.GetTargetPath(), os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	file.Close()
	return d.host.bindDevice(ctx, device, r.GetTargetPath(), isReadOnly(r))
}

// NodeUnpublishVolume does not ask whether the volume exists: what was published goes away.
func (d *driver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	if r.GetTargetPath() == "" {
		return nil, invalid("target_path is missing")
	}
	inVM, err := d.isInVM(r.GetTargetPath())
	if err == nil && inVM {
		err = d.takeFromVM(ctx, r.GetTargetPath())
	} else if err == nil {
		err = d.host.clear(ctx, r.GetTargetPath())
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// publication is how a volume is published at a path: by crustd, or mounted by the node.
func (d *driver) publication(ctx context.Context, id, path string) (inVM bool, at *mount, err error) {
	if path == "" {
		return false, nil, invalid("volume_path is missing")
	}
	name, _, err := d.find(ctx, id)
	if err != nil {
		return false, nil, err
	}
	targets, err := d.crust.targetsOf(id)
	if err != nil || slices.Contains(targets, path) {
		return true, nil, err
	}
	device, err := d.storage.attach(ctx, name)
	if err != nil {
		return false, nil, err
	}
	mounted, err := d.host.publishedAt(device)
	if err != nil {
		return false, nil, err
	}
	for _, one := range mounted {
		if one.target == path {
			return false, &one, nil
		}
	}
	return false, nil, status.Errorf(codes.NotFound, "volume %s is not published at %s", id, path)
}

// isRaw tells a device that is bound to a file, for a claim of volumeMode Block.
func isRaw(at *mount) bool { return at.fsType == "devtmpfs" }

// NodeExpandVolume grows the device, if the controller of another node was asked, and the file system on
// it: by crustd in the guest, or on the node. A raw device has no file system of ours, but a VM that has it
// is told of its size.
func (d *driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	inVM, at, err := d.publication(ctx, r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, toStatus(err)
	}
	size, err := d.growDevice(ctx, r.GetVolumeId(), r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	switch {
	case inVM:
		size, err = d.crust.expand(ctx, r.GetVolumePath(), r.GetCapacityRange())
	case isRaw(at):
		err = d.crust.expandRaw(ctx, r.GetVolumePath(), r.GetCapacityRange())
	default:
		err = d.host.growFileSystem(ctx, *at)
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// NodeGetVolumeStats never counts the target of a volume that a guest has: that would be the node's own
// disk. Without an answer from the guest there is no answer.
func (d *driver) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	inVM, at, err := d.publication(ctx, r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, toStatus(err)
	}
	if inVM {
		return d.crust.stats(ctx, r.GetVolumePath())
	}
	if isRaw(at) {
		if stats, err := d.crust.statsOfRaw(ctx, r.GetVolumePath()); err != nil || stats != nil {
			return stats, err
		}
		_, size, err := d.find(ctx, r.GetVolumeId())
		return &csi.NodeGetVolumeStatsResponse{
			Usage:           []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}},
			VolumeCondition: &csi.VolumeCondition{},
		}, err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(at.target, &stat); err != nil {
		return nil, toStatus(fmt.Errorf("%s: %w", at.target, err))
	}
	return &csi.NodeGetVolumeStatsResponse{
		Usage: []*csi.VolumeUsage{{
			Unit:      csi.VolumeUsage_BYTES,
			Total:     int64(stat.Blocks) * stat.Bsize,
			Used:      int64(stat.Blocks-stat.Bfree) * stat.Bsize,
			Available: int64(stat.Bavail) * stat.Bsize,
		}, {
			Unit:      csi.VolumeUsage_INODES,
			Total:     int64(stat.Files),
			Used:      int64(stat.Files - stat.Ffree),
			Available: int64(stat.Ffree),
		}},
		VolumeCondition: &csi.VolumeCondition{},
	}, nil
}
