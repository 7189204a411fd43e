// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"
)

// disks finds the disk of a claim, and has its file system made. Its callers come one at a time.
type disks struct {
	kubelet string
	jobs    map[string]chan error // those whose result nobody has taken, by record and request
}

type disk struct {
	pv       string
	path     string // in /dev
	number   uint64
	sequence string // MAJOR:MINOR/DISKSEQ: no other disk has it until the next boot
}

var podUID = regexp.MustCompile(`^[0-9A-Za-z-]+$`)

// find returns the disk that a CSI driver has published for this pod and that the container's device is. A
// device that the kubelet has no record of is somebody else's disk.
func (d *disks) find(uid string, device *api.LinuxDevice) (disk, error) {
	if !podUID.MatchString(uid) || device.GetType() != "b" {
		return disk{}, fmt.Errorf("pod uid %q or device type %q is not one of a raw block claim", uid, device.GetType())
	}
	number := unix.Mkdev(uint32(device.GetMajor()), uint32(device.GetMinor()))
	claims := filepath.Join(d.kubelet, "plugins/kubernetes.io/csi/volumeDevices")
	published, err := filepath.Glob(filepath.Join(claims, "publish/*", uid))
	if err != nil {
		return disk{}, err
	}
	for _, path := range published {
		if is, err := numberOf(path); err == nil && is == number {
			return identify(claims, filepath.Base(filepath.Dir(path)), number)
		}
	}
	return disk{}, fmt.Errorf("device %d:%d is no raw block claim that the kubelet has published for this pod",
		device.GetMajor(), device.GetMinor())
}

// identify gives the disk the kernel's name, because the kubelet's path may end before the VM does. A loop
// device of the kubelet's own keeps the size that the disk had at first.
func identify(claims, pv string, number uint64) (disk, error) {
	numbers := fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
	directory, err := filepath.EvalSymlinks("/sys/dev/block/" + numbers)
	if err != nil {
		return disk{}, err
	}
	backing, _ := os.ReadFile(directory + "/loop/backing_file")
	if strings.HasPrefix(string(backing), claims+"/") {
		return disk{}, fmt.Errorf("device %s is the kubelet's loop device and not the disk", numbers)
	}
	sequence, err := os.ReadFile(directory + "/diskseq")
	if err != nil {
		return disk{}, fmt.Errorf("not a whole disk, or Linux before 5.15: %w", err)
	}
	path := "/dev/" + strings.ReplaceAll(filepath.Base(directory), "!", "/")
	if is, err := numberOf(path); err != nil || is != number {
		return disk{}, fmt.Errorf("%s is not device %s (%v)", path, numbers, err)
	}
	return disk{pv, path, number, numbers + "/" + strings.TrimSpace(string(sequence))}, nil
}

func numberOf(path string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, unix.ENOTBLK
	}
	return stat.Rdev, nil
}

// prepare waits for the disk until the context ends. What was begun goes on, and the next request gets its
// result.
func (d *disks) prepare(ctx context.Context, disk disk, wanted request, record record) error {
	key := fmt.Sprint(record, disk.sequence, wanted)
	result := d.jobs[key]
	if result == nil {
		result = make(chan error, 1)
		d.jobs[key] = result
		go func() { result <- makeFileSystem(disk, wanted, record) }()
	}
	select {
	case err := <-result:
		delete(d.jobs, key)
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s is still being examined or formatted; the kubelet asks again", disk.path)
	}
}

// makeFileSystem leaves a disk as it is that has the wanted file system, and formats one that is blank, or on
// which mkfs was interrupted for the same sandbox: no guest has had it since.
func makeFileSystem(disk disk, wanted request, record record) error {
	mkfs := "mkfs " + disk.sequence
	before, err := record.read()
	if err != nil {
		return err
	}
	found, err := examine(disk)
	switch {
	case err != nil:
		return err
	case before == mkfs:
	case found == wanted.fsType:
		return nil
	case found != blank:
		return fmt.Errorf("%s has %s on it and is to be %s: it stays as it is", disk.path, found, wanted.fsType)
	}
	if wanted.readOnly {
		return fmt.Errorf("%s has no file system, and is to be read-only: it is not formatted", disk.path)
	}
	if err := record.write(mkfs); err != nil {
		return err
	}
	slog.Info("formatting", "device", disk.path, "pv", disk.pv, "type", wanted.fsType)
	options := map[string][]string{"ext4": {"-q", "-F", "-m", "0", "-E", "nodiscard"}, "xfs": {"-q", "-f", "-K"}}
	// It opens the disk exclusively itself, and goes on if the plugin ends.
	_, err = output("mkfs."+wanted.fsType, append(options[wanted.fsType], disk.path)...)
	return err
}

const blank = "nothing"

// examine says what is on a disk that nobody on the node uses.
func examine(disk disk) (string, error) {
	file, err := os.OpenFile(disk.path, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return "", fmt.Errorf("%s is in use on the node, or still being formatted", disk.path)
	} else if err != nil {
		return "", err
	}
	defer file.Close()
	if is, err := numberOf(fmt.Sprintf("/proc/self/fd/%d", file.Fd())); err != nil || is != disk.number {
		return "", fmt.Errorf("%s is another disk by now (%v)", disk.path, err)
	}
	// What the node has cached may be older than what another node has written.
	if err := unix.IoctlSetInt(int(file.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return "", fmt.Errorf("BLKFLSBUF of %s: %w", disk.path, err)
	}
	kind, err := output("blkid", "--probe", "--match-tag", "TYPE", "--match-tag", "PTTYPE", "--output", "value", disk.path)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 { // 2: nothing that blkid knows
		return strings.TrimSpace(kind), err
	}
	const part = 1 << 20
	size, err := file.Seek(0, io.SeekEnd)
	for _, offset := range []int64{0, max(0, size-part)} {
		var content []byte
		if err == nil {
			content, err = io.ReadAll(io.NewSectionReader(file, offset, part))
		}
		if err == nil && len(bytes.Trim(content, "\x00")) > 0 {
			return "something that blkid does not know", nil
		}
	}
	return blank, err
}

func output(program string, arguments ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "LC_ALL=C")
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
