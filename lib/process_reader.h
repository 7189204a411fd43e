/* SPDX-License-Identifier: Apache-2.0 */
/* process_reader.h - reads the arguments of processes without waiting for what one of them does.
 *
 * Reading /proc/PID/cmdline waits for the lock of that process's memory, and the user who
 * runs the process can hold it: by a large munmap(2), many in a row, or a fork(2). So a child
 * process, the reader, does the waiting. It is killed if it waits too long; SIGKILL ends that wait.
 * The other files that crustd reads need no such lock: stat, status, cgroup, comm, the links.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "lib/buffer.h"

/* Starts the reader. From then on only the reader reads that file, and it is restarted if it
 * ends; before, and in programs that never call this, they is read directly. To be called early,
 * because the reader keeps a copy of the program's memory. 0 or -errno. */
int process_reader_start(void);

bool process_reader_is_used(void);

struct process_reading {
    pid_t pid;
    int result;    /* 0, an enum process_failure, BUFFER_FULL (of the text), another -errno */
    size_t length; /* appended for this process */
};

/* Reads the first `bytes` bytes of each process's arguments and concatenates them. 0, or the
 * reason why none of the results is valid: PROCESS_HANGS if one of the processes hung, or
 * another -errno. */
int process_reader_read(struct process_reading *readings, unsigned count, size_t bytes,
                        struct buffer *ret_text);
