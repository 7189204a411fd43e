/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs.c - reads attributes whole and bounded; a vanished device is reported as "no such file".
 *
 * The kernel returns an attribute in one read(2) (Documentation/filesystems/sysfs.rst), and a disk
 * is read before each command to its VMM. So an attribute is read right after it is opened, without
 * the checks that files of other writers need.
 */
#include "observe/sysfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/quantity.h"

static int read_attribute(int fd, char *text, size_t size, size_t *ret_length)
{
    ssize_t length;

    do
        length = read(fd, text, size);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return -errno;
    *ret_length = (size_t)length;
    return 0;
}

/* The errors of reading an attribute while its device goes away. */
enum { ITS_DEVICE_GOES = -ENODEV, ITS_DEVICE_WENT = -ENXIO };

static int error_of_attribute(int r)
{
    switch (r) {
    case ITS_DEVICE_GOES:
    case ITS_DEVICE_WENT:
        return SYSFS_MISSING;
    case PATH_BEHIND_A_LINK:
    case PATH_LEADS_OUT:
    case PATH_BELOW_A_FILE:
    case PATH_IS_A_DIRECTORY:
        return SYSFS_WRONG;
    default:
        return r;
    }
}

int sysfs_read_text(int sysfs, const char *path, char *ret_text, size_t size)
{
    cleanup(fd_closep) int fd = -1;
    size_t length = 0;
    int r = path_open_file_in_root(sysfs, path, &fd);

    if (r == 0)
        r = read_attribute(fd, ret_text, size, &length);
    if (r < 0)
        return error_of_attribute(r);
    if (length == size)
        return SYSFS_TOO_LONG;
    if (length && ret_text[length - 1] == '\n')
        length--;
    ret_text[length] = '\0';
    return 0;
}

/* Reads decimal digits up to `end`, and moves the cursor behind them. */
static bool take_number(const char **cursor, uint64_t *ret_number)
{
    const char *start = *cursor;
    uint64_t number = 0;

    for (; **cursor >= '0' && **cursor <= '9'; (*cursor)++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(**cursor - '0'), &number))
            return false;
    *ret_number = number;
    return *cursor > start;
}

int sysfs_read_number(int sysfs, const char *path, uint64_t *ret_number)
{
    char text[32];
    const char *cursor = text;
    uint64_t number;
    int r = sysfs_read_text(sysfs, path, text, sizeof(text));

    if (r < 0)
        return r;
    if (!take_number(&cursor, &number) || *cursor)
        return SYSFS_WRONG;
    *ret_number = number;
    return 0;
}

int sysfs_read_device_number(int sysfs, const char *path, uint32_t *ret_major, uint32_t *ret_minor)
{
    char text[32];
    uint32_t numbers[2];
    const char *end;
    int r = sysfs_read_text(sysfs, path, text, sizeof(text));

    if (r < 0)
        return r;
    end = numbers_read(text, ":", 10, numbers);
    if (!end || *end)
        return SYSFS_WRONG;
    *ret_major = numbers[0];
    *ret_minor = numbers[1];
    return 0;
}

bool sysfs_uevent_value(const char *text, const char *key, char *ret_value, size_t size)
{
    size_t length = strlen(key);

    while (*text) {
        size_t line = strcspn(text, "\n");

        if (line > length && strncmp(text, key, length) == 0 && text[length] == '=') {
            int written =
                snprintf(ret_value, size, "%.*s", (int)(line - length - 1), text + length + 1);

            return written > 0 && (size_t)written < size;
        }
        text += line + (text[line] == '\n');
    }
    return false;
}
