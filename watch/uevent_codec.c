/* SPDX-License-Identifier: Apache-2.0 */
/* uevent_codec.c - one kernel uevent datagram, read string by string; no I/O.
 *
 * Layout (lib/kobject_uevent.c of Linux): "action@devpath" NUL, then "KEY=VALUE" NUL …, in any
 * order (device mapper puts its own keys first). Unknown keys are ignored, so that newer kernels do
 * no harm. udev's re-broadcast begins with "libudev", has no '@' there, and is thereby refused.
 */
#include <errno.h>
#include <string.h>

#include "lib/quantity.h"
#include "watch/watch_internal.h"

static const char *value_of(const char *assignment, const char *key)
{
    size_t length = strlen(key);

    return strncmp(assignment, key, length) == 0 && assignment[length] == '='
               ? assignment + length + 1
               : NULL;
}

static bool read_number(const char *text, uint32_t *ret_number)
{
    const char *end = numbers_read(text, "", 10, ret_number);

    return end && !*end;
}

int uevent_parse(const char *data, size_t length, struct uevent *ret_event)
{
    struct uevent event = {.subsystem = ""};
    const char *at = strchr(data, '@'), *text, *value;
    bool has_major = false, has_minor = false;

    if (!length || !at || at == data || at[1] != '/')
        return -EBADMSG;
    event.devpath = at + 1;
    for (text = data + strlen(data) + 1; text < data + length; text += strlen(text) + 1)
        if ((value = value_of(text, "SUBSYSTEM")))
            event.subsystem = value;
        else if ((value = value_of(text, "MAJOR")))
            has_major = read_number(value, &event.major);
        else if ((value = value_of(text, "MINOR")))
            has_minor = read_number(value, &event.minor);
        else if ((value = value_of(text, "SDEV_UA")))
            event.capacity_changed = strcmp(value, "CAPACITY_DATA_HAS_CHANGED") == 0;
    event.has_number = has_major && has_minor;
    *ret_event = event;
    return 0;
}
