/* runtime_cli.h - the program that a runtime has left with a volume's metadata to be asked by.
 *
 * KEP-2857: a file `runtime-cli` beside mountInfo.json names the command-line tool of the volume's
 * runtime, which answers `crust stats VOLUME` and `crust resize VOLUME MIN MAX` in JSON. Kata's has
 * `direct-volume stats --volume-path VOLUME` instead.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/child.h"
#include "lib/result.h"

struct agent_stats;
struct reconciler;

struct runtime_cli {
    char program[PATH_MAX]; /* as this process reaches it */
    bool is_kata;           /* knows direct-volume, and no crust */
};

/* Outcomes. */
enum {
    RUNTIME_CLI_FOUND,
    RUNTIME_CLI_NONE,   /* none is named, or crustctl, which would only ask crustd again */
    RUNTIME_CLI_UNSAFE, /* it is not to be run here: error says why */
};

int runtime_cli_find(const struct reconciler *reconciler, const char *target_path,
                     struct runtime_cli *ret_cli, struct error *error);

/* Ask it; `done` as of child_new(). 0 or -errno; -ENOSYS: it has no such command. */
int runtime_cli_stats(struct loop *loop, const struct runtime_cli *cli, const char *target_path,
                      uint64_t deadline_ns, child_done *done, void *userdata,
                      struct child **ret_child);
int runtime_cli_resize(struct loop *loop, const struct runtime_cli *cli, const char *target_path,
                       uint64_t least, uint64_t most, uint64_t deadline_ns, child_done *done,
                       void *userdata, struct child **ret_child);

/* What it said. 0, or negative: that was no answer, error says how. */
int runtime_cli_read_stats(enum child_end end, int status, const struct buffer *output,
                           struct agent_stats *ret_stats, struct error *error);
int runtime_cli_read_capacity(enum child_end end, int status, const struct buffer *output,
                              uint64_t *ret_bytes, struct error *error);

/* How long it may take, so that crustd's own ways have their time too. */
uint64_t runtime_cli_time(const struct reconciler *reconciler);

/* The log says why it was of no help. */
void runtime_cli_pass_over(int64_t volume_id, const struct error *error);
