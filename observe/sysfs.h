/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs.h - small reads below an open /sys; links are followed inside it only. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SYSFS_PATH_BYTES = 320, SYSFS_TEXT_BYTES = 4096 };

/* What the functions here fail with and is told apart. */
enum sysfs_failure {
    SYSFS_MISSING = -ENOENT, /* also: its device has gone */
    SYSFS_TOO_LONG = -EMSGSIZE,
    SYSFS_WRONG = -EBADMSG, /* no attribute, or not of that form */
};

/* The text of one attribute without its last newline. 0, an enum sysfs_failure or another -errno;
 * what is in ret_text then means nothing. */
int sysfs_read_text(int sysfs, const char *path, char *ret_text, size_t size);
int sysfs_read_number(int sysfs, const char *path, uint64_t *ret_number);
int sysfs_read_device_number(int sysfs, const char *path, uint32_t *ret_major, uint32_t *ret_minor);

/* "KEY=VALUE" of a uevent file's text; false if there is none or it does not fit. */
bool sysfs_uevent_value(const char *text, const char *key, char *ret_value, size_t size);
