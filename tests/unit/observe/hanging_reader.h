/* SPDX-License-Identifier: Apache-2.0 */
/* hanging_reader.h - in place of lib/process_reader.c: the test says which process keeps its memory
 * locked, and which answers are slow, but come. */
#pragma once

#include "tests/unit/test.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/process.h"

static pid_t hung;               /* 0: none */
static unsigned readings_before; /* of that one, which do not hang yet */
static unsigned hangs;           /* since the test set it to 0 */
static int reader_failure;       /* -errno: there is no reader */
static pid_t slow;               /* the answers about this process alone; -1: all; 0: none */
static unsigned slow_answers;    /* since the test set it to 0 */

bool process_reader_is_used(void)
{
    return true;
}

static void read_fake(struct process_reading *reading, size_t bytes, struct buffer *text)
{
    struct buffer all = BUFFER_INIT(4 * 1024 * 1024);
    cleanup(fd_closep) int fd = -1;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)reading->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    reading->result = fd < 0 ? -errno : buffer_read_all(&all, fd);
    if (reading->result == -ESRCH)
        reading->result = PROCESS_GONE;
    reading->length = all.length < bytes ? all.length : bytes;
    if (reading->result == 0 && buffer_append(text, buffer_text(&all), reading->length) < 0)
        reading->result = buffer_error(text);
    buffer_done(&all);
}

int process_reader_read(struct process_reading *readings, unsigned count, size_t bytes,
                        struct buffer *ret_text)
{
    if (slow == -1 || (count == 1 && readings[0].pid == slow)) {
        (void)poll(NULL, 0, 20);
        slow_answers++;
    }
    for (unsigned i = 0; reader_failure == 0 && i < count; i++) {
        if (hung && readings[i].pid == hung && readings_before-- == 0) {
            readings_before = 0;
            hangs++;
            return PROCESS_HANGS;
        }
        read_fake(&readings[i], bytes, ret_text);
    }
    return reader_failure;
}
