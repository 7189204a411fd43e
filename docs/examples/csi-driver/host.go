// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// host runs what has to be done on the node itself.
type host struct {
	onNode bool // by the node's own programs and in its namespaces
}

// commandError says which program failed. Its arguments stay out of it: mount options may be secrets.
type commandError struct {
	program string
	exit    int
	stderr  string
}

func (e *commandError) Error() string {
	return fmt.Sprintf("%s failed with %d: %s", e.program, e.exit, e.stderr)
}

func (h host) run(ctx context.Context, program string, arguments ...string) (string, error) {
	command := append([]string{program}, arguments...)
	if h.onNode {
		command = append([]string{"nsenter", "--target=1", "--mount", "--ipc", "--"}, command...)
	}
	var stdout, stderr bytes.Buffer
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Env = append(os.Environ(), "LC_ALL=C")
	process.Stdout, process.Stderr = &stdout, &stderr
	err := process.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", &commandError{program, exit.ExitCode(), strings.TrimSpace(stderr.String())}
	}
	return stdout.String(), err
}

// makeFileSystem formats a device in which blkid finds nothing at all, and leaves any other alone.
func (h host) makeFileSystem(ctx context.Context, device, fsType string) error {
	output, err := h.run(ctx, "blkid", "--probe", "--match-tag", "TYPE", "--match-tag", "PTTYPE", "--output", "export", device)
	var failed *commandError
	switch {
	case errors.As(err, &failed) && failed.exit == 2:
		return h.mkfs(ctx, device, fsType)
	case err != nil:
		return err
	case strings.Contains(output, "TYPE="+fsType+"\n"):
		return nil
	}
	return fmt.Errorf("%s is to be %s and has other contents", device, fsType)
}

func (h host) mkfs(ctx context.Context, device, fsType string) error {
	options := map[string][]string{"ext4": {"-q", "-F", "-m", "0"}, "xfs": {"-q"}}
	_, err := h.run(ctx, "mkfs."+fsType, append(options[fsType], device)...)
	return err
}

// growFileSystem has the file system that is mounted there follow its device.
func (h host) growFileSystem(ctx context.Context, at mount) error {
	var err error
	switch at.fsType {
	case "ext4":
		_, err = h.run(ctx, "resize2fs", at.source)
	case "xfs":
		_, err = h.run(ctx, "xfs_growfs", at.target)
	}
	return err
}

// mount is a line of mountinfo.
type mount struct {
	device string // MAJOR:MINOR of what is mounted
	root   string // what of it
	target string
	fsType string
	source string
}

// mounts lists what is mounted on the node, in the order in which it was.
func (h host) mounts() ([]mount, error) {
	path := "/proc/self/mountinfo"
	if h.onNode {
		path = "/proc/1/mountinfo"
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var result []mount
	for _, line := range strings.Split(string(content), "\n") {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if ok && len(left) >= 6 && len(right) >= 2 {
			result = append(result, mount{left[2], unescape(left[3]), unescape(left[4]), right[0], unescape(right[1])})
		}
	}
	return result, nil
}

func unescape(field string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(field)
}

// mountedAt is what lies on top at a path, or nil.
func (h host) mountedAt(target string) (*mount, error) {
	all, err := h.mounts()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].target == target {
			return &all[i], nil
		}
	}
	return nil, err
}

// publishedAt lists where a device is mounted, as a file system or, bound to a file, as a device.
func (h host) publishedAt(device string) ([]mount, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(device, &stat); err != nil {
		return nil, fmt.Errorf("%s: %w", device, err)
	}
	number := fmt.Sprintf("%d:%d", major(stat.Rdev), minor(stat.Rdev))
	kernelName, err := filepath.EvalSymlinks(device)
	if err != nil {
		return nil, err
	}
	all, err := h.mounts()
	var result []mount
	for _, one := range all {
		if one.device == number || (one.fsType == "devtmpfs" && one.root == "/"+filepath.Base(kernelName)) {
			result = append(result, one)
		}
	}
	return result, err
}

func major(device uint64) uint64 { return device>>8&0xfff | device>>32&^0xfff }
func minor(device uint64) uint64 { return device&0xff | device>>12&^0xff }

func (h host) mountFileSystem(ctx context.Context, device, target, fsType string, options []string) error {
	arguments := []string{"-t", fsType}
	if len(options) > 0 {
		arguments = append(arguments, "-o", strings.Join(options, ","))
	}
	_, err := h.run(ctx, "mount", append(arguments, device, target)...)
	return err
}

func (h host) bindDevice(ctx context.Context, device, target string, readOnly bool) error {
	kernelName, err := filepath.EvalSymlinks(device)
	if err != nil {
		return err
	}
	options := "bind"
	if readOnly {
		options += ",ro"
	}
	_, err = h.run(ctx, "mount", "-o", options, kernelName, target)
	return err
}

const guardSource = "crust-csi-guard"

// guard makes a path one in which nothing can be created. A container that got the directory instead of
// the volume, which its guest was to mount, would write to the node's own disk.
func (h host) guard(ctx context.Context, target string) error {
	if at, err := h.mountedAt(target); err != nil || at != nil {
		return err
	}
	_, err := h.run(ctx, "mount", "-t", "tmpfs", "-o", "nr_inodes=1,size=4k", guardSource, target)
	return err
}

// clear unmounts all that lies at a path, and removes the path.
func (h host) clear(ctx context.Context, target string) error {
	for {
		at, err := h.mountedAt(target)
		if err != nil {
			return err
		}
		if at == nil {
			break
		}
		if _, err := h.run(ctx, "umount", target); err != nil {
			return err
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// giveToGroup does what the kubelet does for a pod's fsGroup, and leaves to a driver that declares
// VOLUME_MOUNT_GROUP. A root that belongs to the group already has been given before.
func giveToGroup(root string, group int) error {
	info, err := os.Stat(root)
	if err != nil {
		return err
	}
	if int(info.Sys().(*syscall.Stat_t).Gid) == group {
		return nil
	}
	give := func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, group); err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode() | 0o060
		if info.IsDir() {
			mode |= 0o010 | fs.ModeSetgid
		}
		return os.Chmod(path, mode)
	}
	// The root comes last, so that a walk that was cut short is not taken for done.
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if path == root {
			return err
		}
		return give(path, entry, err)
	})
	if err != nil {
		return err
	}
	return give(root, fs.FileInfoToDirEntry(info), nil)
}
