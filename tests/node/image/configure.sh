#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configure.sh ROOT - makes an unpacked Debian the node's: runs outside, by mmdebstrap, at the end.
set -eu
root=$1

echo node >"$root/etc/hostname"
printf '127.0.0.1 localhost node\n::1 localhost node\n' >"$root/etc/hosts"
chroot "$root" passwd -q -d root
mkdir "$root/exchange"

# The journal of the boot before is there after a reboot, and nothing waits to be written.
mkdir -p "$root/var/log/journal" "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nRateLimitBurst=0\n' >"$root/etc/systemd/journald.conf.d/node.conf"

# What takes time and what no test asks about: emulated processors are slow.
chroot "$root" systemctl -q mask \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer systemd-tmpfiles-clean.timer \
    systemd-binfmt.service proc-sys-fs-binfmt_misc.automount modprobe@drm.service \
    modprobe@efi_pstore.service systemd-sysusers.service \
    serial-getty@ttyS0.service getty@tty1.service systemd-update-utmp.service \
    systemd-update-utmp-runlevel.service systemd-random-seed.service systemd-boot-update.service \
    podman.service podman.socket podman-auto-update.service podman-auto-update.timer \
    podman-restart.service podman-clean-transient.service
chroot "$root" systemctl -q enable node-agent.service
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
