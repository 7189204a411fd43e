// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"crust-csi/crustv1"
)

// crust is crustd on this node. Its refusals name the holder of a device, so they are passed on.
type crust struct {
	socket string
	client crustv1.RuntimeClient
}

func newCrust(socket string) (*crust, error) {
	pauses := backoff.DefaultConfig
	pauses.MaxDelay = time.Second // a crustd that was restarted is found at once
	connection, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses}))
	if err != nil {
		return nil, err
	}
	return &crust{socket, crustv1.NewRuntimeClient(connection)}, nil
}

func (c *crust) stage(ctx context.Context, target, device string, wanted request) error {
	var flags []string
	if wanted.readOnly {
		flags = []string{"ro"}
	}
	_, err := c.client.RuntimeStageVolume(ctx, &crustv1.RuntimeStageVolumeRequest{
		VolumeType:              &crustv1.VolumeType{Type: crustv1.VolumeType_BLOCK},
		VolumeTargetPath:        target,
		VolumeBackingPath:       device,
		FsType:                  wanted.fsType,
		MountFlags:              flags,
		VolumeSupplementalGroup: wanted.group,
	})
	return c.explained(err)
}

func (c *crust) unstage(ctx context.Context, target string) error {
	_, err := c.client.RuntimeUnstageVolume(ctx, &crustv1.RuntimeUnstageVolumeRequest{VolumeTargetPath: target})
	return c.explained(err)
}

func (c *crust) explained(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("crustd on %s: %s", c.socket, status.Convert(err).Message())
}
