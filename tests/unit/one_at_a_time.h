/* SPDX-License-Identifier: Apache-2.0 */
/* one_at_a_time.h - for a test that starts processes of a sandbox with a fixed id: where two of
 * them match, crustd believes neither, so a second run of the same program waits for the first. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TURN_ATTEMPTS = 2400, TURN_PAUSE_US = 50000 };

/* The name is free again when the process ends, however it does. */
__attribute__((constructor)) static void wait_for_turn(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "crust-unit-%s",
                          program_invocation_short_name);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    for (unsigned i = 0; i < TURN_ATTEMPTS; i++) {
        if (bind(fd, (struct sockaddr *)&address, size) == 0 || errno != EADDRINUSE)
            return;
        (void)usleep(TURN_PAUSE_US);
    }
}
