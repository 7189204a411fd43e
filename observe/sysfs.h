/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs.h - small reads below an open /sys; links are followed inside it only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SYSFS_PATH_BYTES = 320, SYSFS_TEXT_BYTES = 4096 };

/* The text of one attribute without its last newline. -ENOENT (also: its device has gone),
 * -EMSGSIZE, -errno; what is in ret_text then means nothing. */
int sysfs_read_text(int sysfs, const char *path, char *ret_text, size_t size);
int sysfs_read_number(int sysfs, const char *path, uint64_t *ret_number); /* and -EBADMSG */
int sysfs_read_device_number(int sysfs, const char *path, uint32_t *ret_major, uint32_t *ret_minor);

/* "KEY=VALUE" of a uevent file's text; false if there is none or it does not fit. */
bool sysfs_uevent_value(const char *text, const char *key, char *ret_value, size_t size);
