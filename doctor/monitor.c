/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.c - Kata's runtimes name a monitor's socket behind -qmp, -qmp-pretty or -monitor. */
#include "doctor/monitor.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/process.h"

enum { ARGUMENTS_BYTES = 256 * 1024 };

/* crust-qemu/monitor_option.h; both of Kata's runtimes name QEMU's main monitor so. */
static const char crust_qemu[] = "/run/crustd/qemu/", main_monitor[] = "qmp.sock";

static bool mentions(const char *argument, const char *socket)
{
    const char *at = strstr(argument, socket);
    const char end = at ? at[strlen(socket)] : 'x';

    return end == '\0' || end == ',';
}

/* The option that the socket stands behind; "" none does. */
static void find_option(pid_t pid, const char *socket, char *ret_option, size_t size)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    const char *argument, *end, *previous = "";

    (void)snprintf(ret_option, size, "%s", "");
    if (process_read_arguments(pid, &arguments) < 0)
        return;
    argument = buffer_text(&arguments);
    end = argument + arguments.length;
    for (; argument < end; previous = argument, argument += strlen(argument) + 1)
        if (mentions(argument, socket))
            (void)snprintf(ret_option, size, "%s", previous);
}

const char *monitor_describe(pid_t pid, const char *socket)
{
    const char *slash = strrchr(socket, '/');
    char option[16];

    if (strncmp(socket, crust_qemu, strlen(crust_qemu)) == 0)
        return "crust-qemu's, QMP";
    if (slash && strcmp(slash + 1, main_monitor) == 0)
        return "the main one, QMP";
    find_option(pid, socket, option, sizeof(option));
    if (strcmp(option, "-qmp") == 0 || strcmp(option, "-qmp-pretty") == 0)
        return "an extra monitor, QMP";
    if (strcmp(option, "-monitor") == 0)
        return NULL;
    return "an extra monitor";
}
