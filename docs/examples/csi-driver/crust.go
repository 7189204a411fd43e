// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"crust-csi/crustv1"
)

//go:generate crustv1/generate.sh

// crust is crustd on this node, and the record of what was handed over to it.
//
// The record is what later calls go by: a volume that a guest has must not be mounted, counted or grown
// by the node, also while crustd is down. It is written before crustd is asked, and lies beside crustd's
// own in /run: after a reboot no guest has anything.
//
// crustd's statuses are handed on as they are. Each was chosen for what the kubelet does with it.
type crust struct {
	directory string // crustd's
	records   string
	client    crustv1.RuntimeClient
}

// The kubelet waits two minutes for a driver. What crustd has begun goes on without the call.
const expandTimeout = 110 * time.Second

func newCrust(socket, records string) (*crust, error) {
	if err := os.MkdirAll(records, 0o700); err != nil {
		return nil, err
	}
	pauses := backoff.DefaultConfig
	pauses.MaxDelay = time.Second // a crustd that was restarted is found at once
	connection, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses}))
	if err != nil {
		return nil, err
	}
	return &crust{filepath.Dir(socket), records, crustv1.NewRuntimeClient(connection)}, nil
}

// installed is true while crustd is being restarted, too: its directory stays.
func (c *crust) installed() bool {
	_, err := os.Stat(c.directory)
	return err == nil
}

func (c *crust) stage(ctx context.Context, target, device string, capability *csi.VolumeCapability, readOnly bool) error {
	_, err := c.client.RuntimeStageVolume(ctx, &crustv1.RuntimeStageVolumeRequest{
		VolumeType:              &crustv1.VolumeType{Type: crustv1.VolumeType_BLOCK},
		VolumeTargetPath:        target,
		VolumeBackingPath:       device,
		FsType:                  fileSystemOf(capability),
		MountFlags:              guestOptions(capability, readOnly),
		VolumeSupplementalGroup: capability.GetMount().GetVolumeMountGroup(),
	})
	return err
}

// guestOptions leaves out what only mount(8) and the host's own services understand: the guest's agent
// hands options to the kernel, which refuses those that it does not know.
func guestOptions(capability *csi.VolumeCapability, readOnly bool) []string {
	var options []string
	for _, option := range strings.Split(strings.Join(capability.GetMount().GetMountFlags(), ","), ",") {
		switch {
		case option == "", option == "defaults", option == "_netdev", option == "nofail",
			strings.HasPrefix(option, "x-"), strings.HasPrefix(option, "context="):
		default:
			options = append(options, option)
		}
	}
	if readOnly && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	return options
}

func (c *crust) unstage(ctx context.Context, target string) error {
	_, err := c.client.RuntimeUnstageVolume(ctx, &crustv1.RuntimeUnstageVolumeRequest{VolumeTargetPath: target})
	return err
}

func (c *crust) expand(ctx context.Context, target string, wanted *csi.CapacityRange) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, expandTimeout)
	defer cancel()
	response, err := c.client.RuntimeExpandVolume(ctx, &crustv1.RuntimeExpandVolumeRequest{
		VolumeTargetPath: target,
		CapacityRange: &crustv1.CapacityRange{
			RequiredBytes: wanted.GetRequiredBytes(), LimitBytes: wanted.GetLimitBytes()},
	})
	return response.GetCapacityBytes(), err
}

func (c *crust) stats(ctx context.Context, target string) (*csi.NodeGetVolumeStatsResponse, error) {
	stats, err := c.client.RuntimeGetVolumeStats(ctx, &crustv1.RuntimeGetVolumeStatsRequest{VolumeTargetPath: target})
	if err != nil {
		return nil, err
	}
	response := &csi.NodeGetVolumeStatsResponse{VolumeCondition: &csi.VolumeCondition{
		Abnormal: stats.GetVolumeCondition().GetAbnormal(),
		Message:  stats.GetVolumeCondition().GetMessage(),
	}}
	for _, one := range stats.GetUsage() {
		response.Usage = append(response.Usage, &csi.VolumeUsage{
			Unit:      csi.VolumeUsage_Unit(one.GetUnit()), // the same numbers
			Available: one.GetAvailable(), Total: one.GetTotal(), Used: one.GetUsed(),
		})
	}
	return response, nil
}

// A raw device is no volume that was handed over: the runtime plugs what a container lists among its
// devices into the VM, and crustd sees it there. Without these two calls the VM grows all the same. With
// them, the claim has its new size only once the VM has it.

// statsOfRaw returns nil if no VM has the device: its pod is the node's, or has not started yet.
func (c *crust) statsOfRaw(ctx context.Context, path string) (*csi.NodeGetVolumeStatsResponse, error) {
	if !c.installed() {
		return nil, nil
	}
	stats, err := c.stats(ctx, path)
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	return stats, err
}

// expandRaw asks for nothing that no VM has: a pod that starts is held up until the answer, and has no VM
// before.
func (c *crust) expandRaw(ctx context.Context, path string, wanted *csi.CapacityRange) error {
	stats, err := c.statsOfRaw(ctx, path)
	if err == nil && stats != nil {
		_, err = c.expand(ctx, path, wanted)
	}
	return err
}

type record struct {
	Volume string `json:"volume"`
	Target string `json:"target"`
}

func (c *crust) recordPath(target string) string {
	return filepath.Join(c.records, fmt.Sprintf("%x.json", sha256.Sum256([]byte(target))))
}

// remember has a target on record before crustd is asked to stage it.
func (c *crust) remember(volume, target string) error {
	content, err := json.Marshal(record{volume, target})
	if err != nil {
		return err
	}
	path := c.recordPath(target)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (c *crust) forget(target string) error {
	if err := os.Remove(c.recordPath(target)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// has says whether a target was handed over to crustd.
func (c *crust) has(target string) (bool, error) {
	_, err := os.Stat(c.recordPath(target))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// targetsOf lists where a volume is handed over. A record whose target is gone was left by an unpublish that
// was cut short, or by one that a downgraded driver made.
func (c *crust) targetsOf(volume string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(c.records, "*.json"))
	if err != nil {
		return nil, err
	}
	var targets []string
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another volume's, a moment ago
		} else if err != nil {
			return nil, err
		}
		var one record
		if err := json.Unmarshal(content, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if _, err := os.Lstat(one.Target); one.Volume == volume && !errors.Is(err, fs.ErrNotExist) {
			targets = append(targets, one.Target)
		}
	}
	return targets, nil
}
