// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	defaultBytes = 1 << 30
	minimumBytes = 16 << 20 // what mkfs.ext4 and a journal need; mkfs.xfs says itself what it needs
	roundBytes   = 4 << 20  // LVM's extent by default
)

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{
				Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}}})
	}
	return response, nil
}

func (d *driver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if r.GetName() == "" {
		return nil, invalid("name is missing")
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume_capabilities are missing")
	}
	for _, capability := range r.GetVolumeCapabilities() {
		if err := checkCapability(capability); err != nil {
			return nil, err
		}
	}
	if r.GetVolumeContentSource() != nil {
		return nil, invalid("volumes are not made from others here")
	}
	volumeContext, err := contextOf(r.GetParameters())
	if err != nil {
		return nil, err
	}
	if !d.reaches(r.GetAccessibilityRequirements()) {
		return nil, status.Errorf(codes.ResourceExhausted, "none of the nodes asked for is %s", d.nodeID)
	}
	wanted, err := sizeFor(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}

	name := nameFor(r.GetName())
	if err := d.storage.create(ctx, name, wanted); err != nil {
		return nil, toStatus(err)
	}
	size, err := d.storage.size(ctx, name)
	if err != nil {
		return nil, toStatus(err)
	}
	if limit := r.GetCapacityRange().GetLimitBytes(); size < r.GetCapacityRange().GetRequiredBytes() ||
		(limit > 0 && size > limit) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is there, with %d bytes", name, size)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           d.id(name),
		CapacityBytes:      size,
		VolumeContext:      volumeContext,
		AccessibleTopology: []*csi.Topology{d.topology()},
	}}, nil
}

// contextOf takes over the parameters that the node needs, and refuses those that nobody knows.
func contextOf(parameters map[string]string) (map[string]string, error) {
	result := map[string]string{}
	for key, value := range parameters {
		switch {
		case key == runtimeParameter:
			if value != runtimeByPod && value != runtimeVM && value != runtimeHost {
				return nil, invalid("parameter %s must be %s, %s or %s", key, runtimeByPod, runtimeVM, runtimeHost)
			}
			result[key] = value
		case strings.HasPrefix(key, "csi.storage.k8s.io/"):
		default:
			return nil, invalid("parameter %q is not known", key)
		}
	}
	return result, nil
}

// sizeFor is a size that storage can have, within the range.
func sizeFor(wanted *csi.CapacityRange) (int64, error) {
	required, limit := wanted.GetRequiredBytes(), wanted.GetLimitBytes()
	if required < 0 || limit < 0 || (limit > 0 && limit < required) {
		return 0, invalid("capacity_range is not possible")
	}
	size := required
	if size == 0 {
		size = defaultBytes
		if limit > 0 {
			size = min(size, limit/roundBytes*roundBytes)
		}
	}
	size = (max(size, minimumBytes) + roundBytes - 1) / roundBytes * roundBytes
	if limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "the smallest possible volume has %d bytes", size)
	}
	return size, nil
}

func (d *driver) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	node, name, ok := parse(r.GetVolumeId())
	if !ok {
		return &csi.DeleteVolumeResponse{}, nil // never one of ours
	}
	if node != d.nodeID {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is on another node", r.GetVolumeId())
	}
	if targets, err := d.crust.targetsOf(r.GetVolumeId()); err != nil {
		return nil, toStatus(err)
	} else if len(targets) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is published to a micro-VM at %s", r.GetVolumeId(), targets[0])
	}
	if err := d.storage.remove(ctx, name); err != nil {
		return nil, toStatus(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *driver) ValidateVolumeCapabilities(ctx context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume_capabilities are missing")
	}
	if _, _, err := d.find(ctx, r.GetVolumeId()); err != nil {
		return nil, err
	}
	for _, capability := range r.GetVolumeCapabilities() {
		if err := checkCapability(capability); err != nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext:      r.GetVolumeContext(),
			VolumeCapabilities: r.GetVolumeCapabilities(),
			Parameters:         r.GetParameters(),
		}}, nil
}

// ControllerPublishVolume has nothing to attach: a volume is on its node. It says so, or that it is not.
func (d *driver) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if r.GetNodeId() == "" {
		return nil, invalid("node_id is missing")
	}
	if r.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	if err := checkCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if _, _, err := d.find(ctx, r.GetVolumeId()); err != nil {
		return nil, err
	}
	if r.GetNodeId() != d.nodeID {
		return nil, status.Errorf(codes.NotFound, "node %q does not reach volume %s", r.GetNodeId(), r.GetVolumeId())
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (d *driver) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ControllerExpandVolume grows the device if it is on this node. external-resizer has one leader in the
// cluster, so most volumes are not: then NodeExpandVolume does all of it.
func (d *driver) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	if r.GetCapacityRange() == nil {
		return nil, invalid("capacity_range is missing")
	}
	node, _, ok := parse(r.GetVolumeId())
	if ok && node != d.nodeID {
		size, err := sizeFor(r.GetCapacityRange())
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, err
	}
	size, err := d.growDevice(ctx, r.GetVolumeId(), r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	// Of a raw device, too: a VM may have it.
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}

// growDevice makes a volume of this node as large as the range asks for; returns its size.
func (d *driver) growDevice(ctx context.Context, id string, wanted *csi.CapacityRange) (int64, error) {
	name, size, err := d.find(ctx, id)
	if err != nil {
		return 0, err
	}
	if wanted.GetRequiredBytes() > size {
		bytes, err := sizeFor(wanted)
		if err != nil {
			return 0, err
		}
		if err := d.storage.grow(ctx, name, bytes); errors.Is(err, errNoSpace) {
			// The claim becomes infeasible, so that its owner can ask for less.
			return 0, status.Error(codes.OutOfRange, fmt.Sprintf("volume %s: %v", id, err))
		} else if err != nil {
			return 0, toStatus(err)
		}
		if size, err = d.storage.size(ctx, name); err != nil {
			return 0, toStatus(err)
		}
	}
	if limit := wanted.GetLimitBytes(); limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "volume %s has %d bytes", id, size)
	}
	return size, nil
}

func (d *driver) GetCapacity(ctx context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if topology := r.GetAccessibleTopology(); topology != nil && !d.isHere(topology) {
		return &csi.GetCapacityResponse{}, nil
	}
	free, err := d.storage.available(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.GetCapacityResponse{AvailableCapacity: free}, nil
}

// topology has one segment, the node: its volumes are reached from nowhere else.
func (d *driver) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{"topology." + d.name + "/node": d.nodeID}}
}

func (d *driver) isHere(topology *csi.Topology) bool {
	for key, value := range d.topology().GetSegments() {
		if topology.GetSegments()[key] != value {
			return false
		}
	}
	return true
}

func (d *driver) reaches(wanted *csi.TopologyRequirement) bool {
	candidates := append(wanted.GetPreferred(), wanted.GetRequisite()...)
	for _, topology := range candidates {
		if d.isHere(topology) {
			return true
		}
	}
	return len(candidates) == 0
}
