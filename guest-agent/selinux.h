/* SPDX-License-Identifier: Apache-2.0 */
/* selinux.h - whether this guest enforces SELinux, without libselinux. */
#pragma once

#include <stdbool.h>

/* What the kernel's own file system says of it, if that is mounted. */
bool selinux_is_enforced(void);

/* The same of another directory than /sys/fs/selinux. */
bool selinux_is_enforced_at(const char *directory, unsigned long type);
