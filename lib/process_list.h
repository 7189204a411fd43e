/* SPDX-License-Identifier: Apache-2.0 */
/* process_list.h - iterates over all processes and reads their arguments.
 *
 * If a reader runs (process_reader.h), it is asked for the arguments of several processes at once,
 * because each request costs two context switches.
 */
#pragma once

#include <sys/types.h>

#include "lib/buffer.h"

struct process_list;

int process_list_new(struct process_list **ret_list); /* 0 or -errno */
struct process_list *process_list_free(struct process_list *list);

/* The next process listed in /proc; 0: none is left. 0 or -errno. */
int process_list_next(struct process_list *list, pid_t *ret_pid);

/* Appends at most `bytes` bytes of the arguments of the process that `next` returned last. Returns
 * as process_read_first_arguments(). */
int process_list_read_arguments(const struct process_list *list, size_t bytes,
                                struct buffer *ret_arguments);
