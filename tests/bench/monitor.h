/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.h - a scripted QMP monitor: answers what crustd asks at once, and notes when. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct drive {
    struct drive *next;
    char *node;
    char *file;
    uint64_t bytes;
    uint64_t resized_ns; /* when block_resize arrived, 0 not since it was last set to 0 */
    uint64_t checked_ns; /* when the size was asked for after that */
    bool hangs;          /* block_resize is never answered */
};

struct monitor;

struct monitor *monitor_new(const char *path);

/* Nobody can connect any more; who is connected stays. */
void monitor_close(struct monitor *monitor);
struct drive *monitor_add_drive(struct monitor *monitor, const char *node, const char *file);
