// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// volumeGroupStorage keeps volumes as logical volumes of one volume group.
type volumeGroupStorage struct {
	host  host
	group string
}

func (s volumeGroupStorage) create(ctx context.Context, name string, bytes int64) error {
	if _, err := s.size(ctx, name); err == nil {
		return nil
	}
	if free, err := s.available(ctx); err != nil {
		return err
	} else if free < bytes {
		return errNoSpace
	}
	_, err := s.host.run(ctx, "lvcreate", "--yes", "--wipesignatures", "y", "--name", name,
		"--size", inBytes(bytes), s.group)
	return err
}

func (s volumeGroupStorage) remove(ctx context.Context, name string) error {
	if _, err := s.size(ctx, name); err == errNotFound {
		return nil
	} else if err != nil {
		return err
	}
	if err := s.detach(ctx, name); err != nil {
		return err
	}
	_, err := s.host.run(ctx, "lvremove", "--yes", s.group+"/"+name)
	return err
}

func (s volumeGroupStorage) size(ctx context.Context, name string) (int64, error) {
	return s.report(ctx, "lvs", "lv_size", "--select", "lv_name="+name, s.group)
}

func (s volumeGroupStorage) grow(ctx context.Context, name string, bytes int64) error {
	size, err := s.size(ctx, name)
	if err != nil || size >= bytes {
		return err
	}
	if free, err := s.available(ctx); err != nil {
		return err
	} else if free < bytes-size {
		return errNoSpace
	}
	_, err = s.host.run(ctx, "lvextend", "--size", inBytes(bytes), s.group+"/"+name)
	return err
}

func (s volumeGroupStorage) attach(ctx context.Context, name string) (string, error) {
	_, err := s.host.run(ctx, "lvchange", "--activate", "y", s.group+"/"+name)
	return "/dev/" + s.group + "/" + name, err
}

func (s volumeGroupStorage) detach(ctx context.Context, name string) error {
	if _, err := s.size(ctx, name); err != nil {
		return err
	}
	// LVM refuses while anybody has the device open, a VMM included.
	if _, err := s.host.run(ctx, "lvchange", "--activate", "n", s.group+"/"+name); err != nil {
		return fmt.Errorf("%w: %w", errInUse, err)
	}
	return nil
}

func (s volumeGroupStorage) available(ctx context.Context) (int64, error) {
	return s.report(ctx, "vgs", "vg_free", s.group)
}

// report is one number of lvs or vgs; errNotFound if nothing was selected.
func (s volumeGroupStorage) report(ctx context.Context, program, column string, arguments ...string) (int64, error) {
	options := []string{"--noheadings", "--nosuffix", "--units", "b", "--options", column}
	output, err := s.host.run(ctx, program, append(options, arguments...)...)
	if err != nil {
		return 0, err
	}
	if output = strings.TrimSpace(output); output == "" {
		return 0, errNotFound
	}
	return strconv.ParseInt(output, 10, 64)
}

func inBytes(bytes int64) string {
	return strconv.FormatInt(bytes, 10) + "b"
}
