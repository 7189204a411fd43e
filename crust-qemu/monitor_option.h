/* SPDX-License-Identifier: Apache-2.0 */
/* monitor_option.h - the option that gives a Kata sandbox's QEMU one more monitor.
 *
 * Kata names each QEMU `-name sandbox-ID[,debug-threads=on]` (Kata Containers 4.1.0, both
 * runtimes). The monitor is a QMP server of its own, beside the one that the shim holds, and does
 * not wait for a client:
 *
 *     -qmp unix:DIRECTORY/ID.sock,server=on,wait=off
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define MONITOR_PARENT    "/run/crustd"
#define MONITOR_DIRECTORY MONITOR_PARENT "/qemu"

enum {
    MONITOR_PATH_BYTES = 108, /* sun_path of struct sockaddr_un */
    MONITOR_OPTION_BYTES = MONITOR_PATH_BYTES + 32,
};

struct monitor_option {
    char path[MONITOR_PATH_BYTES];
    char value[MONITOR_OPTION_BYTES]; /* what follows -qmp */
};

/* false: the arguments name no sandbox, name several, name one whose socket cannot have its path,
 * or mention that socket already. */
bool monitor_option(const char *const *arguments, const char *directory,
                    struct monitor_option *ret);
