// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// loopFiles keeps volumes as files, with loop devices: for a node without LVM, and to try things out.
type loopFiles struct {
	host      host
	directory string
}

func (s loopFiles) file(name string) string {
	return filepath.Join(s.directory, name+".img")
}

func (s loopFiles) create(ctx context.Context, name string, bytes int64) error {
	if _, err := s.size(ctx, name); err == nil {
		return nil
	}
	if err := os.MkdirAll(s.directory, 0o700); err != nil {
		return err
	}
	unfinished := s.file(name) + ".new"
	if err := s.allocate(ctx, unfinished, 0, bytes); err != nil {
		os.Remove(unfinished)
		return err
	}
	return os.Rename(unfinished, s.file(name))
}

func (s loopFiles) remove(ctx context.Context, name string) error {
	if err := s.detach(ctx, name); err == errNotFound {
		return nil
	} else if err != nil {
		return err
	}
	return os.Remove(s.file(name))
}

func (s loopFiles) size(_ context.Context, name string) (int64, error) {
	info, err := os.Stat(s.file(name))
	if errors.Is(err, os.ErrNotExist) {
		return 0, errNotFound
	} else if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (s loopFiles) grow(ctx context.Context, name string, bytes int64) error {
	size, err := s.size(ctx, name)
	if err != nil {
		return err
	}
	if size < bytes {
		if err := s.allocate(ctx, s.file(name), size, bytes); err != nil {
			return err
		}
	}
	device, err := s.device(ctx, name)
	if err != nil || device == "" {
		return err
	}
	_, err = s.host.run(ctx, "losetup", "--set-capacity", device)
	return err
}

func (s loopFiles) attach(ctx context.Context, name string) (string, error) {
	device, err := s.device(ctx, name)
	if err != nil || device != "" {
		return device, err
	}
	output, err := s.host.run(ctx, "losetup", "--find", "--show", s.file(name))
	return strings.TrimSpace(output), err
}

func (s loopFiles) detach(ctx context.Context, name string) error {
	if _, err := s.size(ctx, name); err != nil {
		return err
	}
	device, err := s.device(ctx, name)
	if err != nil || device == "" {
		return err
	}
	// A device that is in use would only be detached once it is not any more.
	file, err := os.OpenFile(device, os.O_RDONLY|syscall.O_EXCL, 0)
	if errors.Is(err, syscall.EBUSY) {
		return errInUse
	} else if err != nil {
		return err
	}
	file.Close()
	_, err = s.host.run(ctx, "losetup", "--detach", device)
	return err
}

func (s loopFiles) available(context.Context) (int64, error) {
	if err := os.MkdirAll(s.directory, 0o700); err != nil {
		return 0, err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(s.directory, &stat); err != nil {
		return 0, err
	}
	return int64(stat.Bavail) * stat.Bsize, nil
}

// device is the volume's loop device, "" while it has none.
func (s loopFiles) device(ctx context.Context, name string) (string, error) {
	output, err := s.host.run(ctx, "losetup", "--associated", s.file(name), "--noheadings", "--output", "NAME")
	device, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	return device, err
}

// allocate makes a file of so many bytes as large as it shall be, all of it reserved on the disk. Without
// asking first, a file that is too large would fill the disk before it failed.
func (s loopFiles) allocate(ctx context.Context, path string, from, to int64) error {
	if free, err := s.available(ctx); err != nil {
		return err
	} else if free < to-from {
		return errNoSpace
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := syscall.Fallocate(int(file.Fd()), 0, from, to-from); err != nil {
		return err
	}
	return file.Sync()
}
