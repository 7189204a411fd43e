/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - what the benchmark's programs share. Faults of the benchmark end the program. */
#pragma once

#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

/* CLOCK_MONOTONIC, in nanoseconds. */
uint64_t now_ns(void);

/* Says what failed, and errno, and exits. */
noreturn void fail(const char *what);

/* A unix socket whose path may be longer than sun_path; descriptors are close-on-exec. */
int socket_listen(const char *path);
int socket_connect(const char *path);

/* Bytes of a block device or regular file. */
uint64_t file_bytes(const char *path);

/* Sleeps between half and one and a half times so long, because a fixed period could fall into step
 * with something else's. */
uint64_t random_around(uint64_t nanoseconds);
void sleep_ns(uint64_t nanoseconds);
