/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli.h - the program that a runtime names beside a volume's metadata for stats and resize.
 *
 * KEP-2857: a file `runtime-cli` beside mountInfo.json names the command-line tool of the volume's
 * runtime, which answers `crust stats VOLUME` and `crust resize VOLUME MIN MAX` in JSON. Kata's has
 * `direct-volume stats --volume-path VOLUME` instead.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent-client/agent_messages.h"
#include "lib/child.h"
#include "lib/result.h"

struct context;

struct runtime_cli {
    char program[PATH_MAX]; /* without links, below root */
    int root;               /* what is its "/", borrowed; -1: ours, which is the node's for it */
    bool is_kata;           /* knows direct-volume, and no crust */
};

struct runtime_cli_run;

struct runtime_cli_question {
    const struct runtime_cli *cli;
    int64_t volume_id;
    const char *target_path;
    bool resizes;                         /* else it counts */
    uint64_t required_bytes, limit_bytes; /* of a resize; 0 any */
};

/* Its answer, after that was checked against the device. */
struct runtime_cli_answer {
    struct agent_stats stats;
    uint64_t capacity_bytes;
};

/* answer: NULL if it was of no help. The run may be freed. */
typedef void runtime_cli_done(const struct runtime_cli_answer *answer, void *userdata);

/* The intent is recorded before it runs, and then the result; the log says why a run was of no
 * help. Exactly one `done` from the loop, never from within. 0 or -errno; -ENOSYS: it has no such
 * command. */
int runtime_cli_ask(const struct context *context, const struct runtime_cli_question *question,
                    runtime_cli_done *done, void *userdata, struct runtime_cli_run **ret_run);
/* Finds the volume's tool, which the question lacks, and asks it. Whether it is asked: if there is
 * one that may not be run, the log says why. */
bool runtime_cli_try(const struct context *context, struct runtime_cli_question question,
                     runtime_cli_done *done, void *userdata, struct runtime_cli_run **ret_run);
/* Kills a running program, which is recorded too. Returns NULL. */
struct runtime_cli_run *runtime_cli_free(struct runtime_cli_run *run);

/* ---- understanding it (runtime_cli_answer.c) ---- */

enum { RUNTIME_CLI_OUTPUT_BYTES = 64 * 1024 };

/* Parses its output. 0, or negative: that was no answer, error says why. */
int runtime_cli_read_stats(enum child_end end, int status, const struct buffer *output,
                           struct agent_stats *ret_stats, struct error *error);
int runtime_cli_read_capacity(enum child_end end, int status, const struct buffer *output,
                              uint64_t *ret_bytes, struct error *error);

/* Whether it can be true of a volume on a device of this size. 0, or -ERANGE with a text. */
int runtime_cli_check_stats(const struct agent_stats *stats, uint64_t device_bytes,
                            struct error *error);
int runtime_cli_check_capacity(uint64_t bytes, uint64_t required_bytes, uint64_t limit_bytes,
                               uint64_t device_bytes, struct error *error);
