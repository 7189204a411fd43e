// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// plugin answers the engine. A file STATE/SANDBOX_PV is the record of a volume: it exists before crustd is
// asked to stage the volume and until crustd has unstaged it. Whatever belongs to a sandbox that the engine
// does not have any more is taken back, so it does not matter where the plugin was killed.
type plugin struct {
	handlers []string
	state    string
	disks    disks
	crust    *crust
	stub     stub.Stub

	live  sync.Map   // ids of the engine's sandboxes
	mutex sync.Mutex // one volume is staged or unstaged at a time
}

// Half of the engine's limit by default, so that a container's request can wait for it.
const unstageLimit = time.Second

// request is the value of an annotation: TYPE[,ro][,fsgroup=GID].
type request struct {
	fsType   string
	readOnly bool
	group    string
}

var groupOption = regexp.MustCompile(`^fsgroup=([0-9]{1,10})$`)

func parseRequest(value string) (request, error) {
	words := strings.Split(value, ",")
	wanted := request{fsType: words[0]}
	if wanted.fsType != "ext4" && wanted.fsType != "xfs" {
		return wanted, fmt.Errorf("file system %q: only ext4 and xfs are supported", wanted.fsType)
	}
	for _, word := range words[1:] {
		if found := groupOption.FindStringSubmatch(word); found != nil {
			wanted.group = found[1]
		} else if word == "ro" {
			wanted.readOnly = true
		} else {
			return wanted, fmt.Errorf("option %q: only ro and fsgroup=GID are supported", word)
		}
	}
	return wanted, nil
}

// A device at /dev/crust/data/db is to be mounted at /data/db, as crustd.dev/mount.data.db says.
const devicePrefix, annotationPrefix = "/dev/crust/", "crustd.dev/mount."

func (p *plugin) isVM(handler string) bool {
	for _, pattern := range p.handlers {
		if matched, err := path.Match(pattern, handler); err == nil && matched {
			return true
		}
	}
	return false
}

// Synchronize is the engine's first call. Before it, nobody knows which sandboxes are gone.
func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	for _, pod := range pods {
		p.live.Store(pod.GetId(), nil)
	}
	go p.sweep()
	return nil, nil
}

// CreateContainer takes less time than the engine's limit, because a late answer is lost. An error fails the
// container, with its text in the pod's events, and the kubelet asks again.
func (p *plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if !p.isVM(pod.GetRuntimeHandler()) {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.stub.RequestTimeout()*3/4)
	defer cancel()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("crust-block-mount is busy with another volume: %w", err)
	}
	p.live.Store(pod.GetId(), nil)
	adjustment := &api.ContainerAdjustment{}
	for _, device := range container.GetLinux().GetDevices() {
		name, ours := strings.CutPrefix(path.Clean(device.GetPath()), devicePrefix)
		if !ours {
			continue
		}
		mount, err := p.mount(ctx, pod, container, device, name)
		if err != nil {
			slog.Warn("refused", "namespace", pod.GetNamespace(), "pod", pod.GetName(), "container",
				container.GetName(), "path", device.GetPath(), "error", err)
			return nil, nil, fmt.Errorf("%s: %w", device.GetPath(), err)
		}
		adjustment.AddDevice(&api.LinuxDevice{Path: device.GetPath(), Type: "c", Major: devFullMajor, Minor: devFullMinor})
		adjustment.AddMount(mount)
	}
	return adjustment, nil, nil
}

// NRI does not pass a device's removal on to the engine, only its replacement: /dev/full is never plugged into
// the VM, and no write to it succeeds.
const devFullMajor, devFullMinor = 1, 7

// mount prepares the disk and returns the mount of it, which replaces one that the pod has there: without the
// plugin nothing can be written to that. The runtime finds crustd's metadata by the mount's source, which
// never exists: a runtime that ignores the metadata fails the container, because there is no directory of
// the node that it could share instead.
func (p *plugin) mount(ctx context.Context, pod *api.PodSandbox, container *api.Container, device *api.LinuxDevice, name string) (*api.Mount, error) {
	destination := "/" + name
	key := annotationPrefix + strings.ReplaceAll(name, "/", ".")
	value, found := pod.GetAnnotations()[key]
	if !found {
		return nil, fmt.Errorf("the pod has no annotation %s", key)
	}
	wanted, err := parseRequest(value)
	if err != nil {
		return nil, err
	}
	for _, other := range container.GetLinux().GetDevices() {
		if other.GetPath() != device.GetPath() && other.GetType() == "b" &&
			other.GetMajor() == device.GetMajor() && other.GetMinor() == device.GetMinor() {
			return nil, fmt.Errorf("the container has the same disk as %s: the guest would get it twice", other.GetPath())
		}
	}
	if !slices.ContainsFunc(container.GetMounts(), func(mount *api.Mount) bool {
		return mount.GetDestination() == destination && slices.Contains(mount.GetOptions(), "ro")
	}) {
		return nil, fmt.Errorf("the container needs a read-only volumeMount at %s, such as an emptyDir: without "+
			"the plugin it would write to its own disk", destination)
	}
	disk, err := p.disks.find(pod.GetUid(), device)
	if err != nil {
		return nil, err
	}
	wanted.readOnly = wanted.readOnly || isReadOnly(container, device)
	record := record(filepath.Join(p.state, pod.GetId()+"_"+disk.pv))
	before, err := record.read()
	if err == nil && before == "" {
		err = record.write("asked")
	}
	if err != nil {
		return nil, err
	}
	// crustd refuses a disk that has another user, so it is asked before anything is written to the disk.
	if err := p.crust.stage(ctx, record.target(), disk.path, wanted); err != nil {
		return nil, err
	}
	// Once a container may have the volume, the disk is the guest's, and is not examined again.
	ready := fmt.Sprintf("ready %s %+v", disk.sequence, wanted)
	if before != ready {
		if strings.HasPrefix(before, "ready "+disk.sequence+" ") {
			return nil, fmt.Errorf("another container of the pod has it otherwise: %s", before)
		}
		if err := p.disks.prepare(ctx, disk, wanted, record); err != nil {
			return nil, err
		}
		if err := record.write(ready); err != nil {
			return nil, err
		}
	}
	option := "rw"
	if wanted.readOnly {
		option = "ro"
	}
	return &api.Mount{Destination: destination, Source: record.target(), Type: "bind",
		Options: []string{"rbind", "rprivate", option}}, nil
}

// isReadOnly looks at what the container is allowed: the kubelet asks for "r" where a pod uses a claim
// read-only.
func isReadOnly(container *api.Container, device *api.LinuxDevice) bool {
	found := false
	for _, rule := range container.GetLinux().GetResources().GetDevices() {
		if rule.GetAllow() && rule.GetType() == "b" && rule.GetMajor().GetValue() == device.GetMajor() &&
			rule.GetMinor().GetValue() == device.GetMinor() {
			if strings.Contains(rule.GetAccess(), "w") {
				return false
			}
			found = true
		}
	}
	return found
}

// StopPodSandbox leaves the rest to sweep: crustd may be away. A container's removal ends nothing, because
// the kubelet removes the old container after it has created the next.
func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.live.Delete(pod.GetId())
	return nil
}

// RemovePodSandbox is also for a sandbox that had stopped before the plugin started.
func (p *plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return p.StopPodSandbox(ctx, pod)
}

// sweep takes back what no sandbox has any more, one volume after another: crustd may refuse one of them.
func (p *plugin) sweep() {
	reported := ""
	for range time.Tick(time.Second) {
		paths, err := filepath.Glob(filepath.Join(p.state, "*_*"))
		for _, path := range paths {
			err = errors.Join(err, p.takeBack(record(path)))
		}
		if text := fmt.Sprint(err); text != reported {
			reported = text
			slog.Info("sandboxes that ended", "not taken back yet", err)
		}
	}
}

func (p *plugin) takeBack(record record) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	sandbox, _, _ := strings.Cut(filepath.Base(string(record)), "_")
	if _, live := p.live.Load(sandbox); live {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), unstageLimit)
	defer cancel()
	if err := p.crust.unstage(ctx, record.target()); err != nil {
		return fmt.Errorf("%s: %w", record.target(), err)
	}
	slog.Info("taken back", "volume", record.target())
	return os.Remove(string(record))
}

// record is the path of a volume's record. Its content is "asked", "mkfs DISK" while a file system is being
// made, or "ready DISK REQUEST" once a container may have the volume.
type record string

// target is the volume's path for crustd and the runtime. Nothing can be made there, below a file.
func (r record) target() string {
	return string(r) + "/mount"
}

// read returns "" if there is no record.
func (r record) read() (string, error) {
	content, err := os.ReadFile(string(r))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(content), err
}

// write is atomic for a plugin that is killed, which is enough on a tmpfs.
func (r record) write(content string) error {
	beside := string(r) + ".new"
	if err := os.WriteFile(beside, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(beside, string(r))
}
