/* SPDX-License-Identifier: Apache-2.0 */
/* monitor_arguments_fuzz.c - arguments of processes against the sockets that crust-qemu made: a
 * socket that an argument names is somebody's, and is not removed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/process_scan.c" /* its reader is nobody else's */

#define ID "0123456789abcdef"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct monitor *add_monitor(struct added_monitors *monitors, const char *name)
{
    struct monitor *monitor = calloc(1, sizeof(*monitor) + strlen(name) + 1);

    if (!monitor)
        abort();
    memcpy(monitor->name, name, strlen(name) + 1);
    if (!find_key(name))
        abort();
    HASH_ADD_KEYPTR(hh, monitors->monitors, monitor->name, find_key(name), monitor);
    return monitor;
}

static bool is_whole(const char *argument, const char *text)
{
    size_t length = strlen(text);

    return strncmp(argument, text, length) == 0 && (argument[length] == ',' || !argument[length]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char socket[] = "unix:" ADDED_MONITORS "/" ID ".sock";
    char *argument = strndup((const char *)data, size);
    struct added_monitors *monitors = calloc(1, sizeof(*monitors));
    const struct monitor *monitor;

    if (!argument || !monitors)
        abort();
    monitors->directory = -1;
    monitor = add_monitor(monitors, ID ".sock");
    check_argument(monitors, argument);
    if ((is_whole(argument, "sandbox-" ID) || is_whole(argument, socket)) && !monitor->served)
        abort();
    if (monitor->served && !strstr(argument, ID))
        abort();
    (void)find_key(argument);
    added_monitors_free(monitors);
    free(argument);
    return 0;
}
