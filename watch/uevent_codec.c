/* SPDX-License-Identifier: Apache-2.0 */
/* uevent_codec.c - walks the strings of one datagram once.
 *
 * Every string lies inside the datagram and ends at a NUL, the last one at the byte that the
 * receiver adds. Keys come in any order (device mapper puts its own first) and unknown ones are
 * ignored, so that newer kernels do no harm. udev's re-broadcast begins with "libudev", has no '@'
 * there, and is thereby refused.
 */
#include "watch/uevent_codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *value_of(const char *assignment, const char *key)
{
    size_t length = strlen(key);

    return strncmp(assignment, key, length) == 0 && assignment[length] == '='
               ? assignment + length + 1
               : NULL;
}

static bool parse_number(const char *text, uint32_t *ret_number)
{
    uint64_t number = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
        if (number > UINT32_MAX)
            return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

/* Splits "action@devpath" in place. */
static int parse_header(char *header, struct uevent *event)
{
    char *at = strchr(header, '@');

    if (!at || at == header || at[1] != '/')
        return -EBADMSG;
    *at = '\0';
    event->action = header;
    event->devpath = at + 1;
    return 0;
}

struct number_seen {
    bool major, minor;
};

static void parse_assignment(const char *text, struct uevent *event, struct number_seen *seen)
{
    const char *value;

    if ((value = value_of(text, "SUBSYSTEM")))
        event->subsystem = value;
    else if ((value = value_of(text, "DEVNAME")))
        event->device_name = value;
    else if ((value = value_of(text, "MAJOR")))
        seen->major = parse_number(value, &event->major);
    else if ((value = value_of(text, "MINOR")))
        seen->minor = parse_number(value, &event->minor);
    else if ((value = value_of(text, "RESIZE")))
        event->resize = strcmp(value, "1") == 0;
    else if ((value = value_of(text, "SDEV_UA")))
        event->capacity_changed = strcmp(value, "CAPACITY_DATA_HAS_CHANGED") == 0;
    else if (strncmp(text, "SYNTH_", strlen("SYNTH_")) == 0)
        event->synthetic = true;
}

int uevent_parse(char *data, size_t length, struct uevent *ret_event)
{
    struct uevent event = {.subsystem = "", .device_name = ""};
    struct number_seen seen = {false, false};
    size_t header = length ? strlen(data) : 0;

    if (!header || parse_header(data, &event) < 0)
        return -EBADMSG;
    for (size_t at = header + 1; at < length; at += strlen(data + at) + 1)
        parse_assignment(data + at, &event, &seen);
    event.has_number = seen.major && seen.minor;
    *ret_event = event;
    return 0;
}
