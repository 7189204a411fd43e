/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs.h - small reads below an open /sys; links are followed inside it only. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SYSFS_PATH_BYTES = 320, SYSFS_TEXT_BYTES = 4096 };

/* The failures that callers distinguish. */
enum sysfs_failure {
    SYSFS_MISSING = -ENOENT, /* also: the device is gone */
    SYSFS_TOO_LONG = -EMSGSIZE,
    SYSFS_WRONG = -EBADMSG, /* not an attribute, or not in the expected form */
};

/* The text of one attribute without its final newline. 0, an enum sysfs_failure or another -errno;
 * then the content of ret_text is undefined. */
int sysfs_read_text(int sysfs, const char *path, char *ret_text, size_t size);
int sysfs_read_number(int sysfs, const char *path, uint64_t *ret_number);
int sysfs_read_device_number(int sysfs, const char *path, uint32_t *ret_major, uint32_t *ret_minor);

/* Finds "KEY=VALUE" in the text of a uevent file; false if it is missing or does not fit. */
bool sysfs_uevent_value(const char *text, const char *key, char *ret_value, size_t size);
