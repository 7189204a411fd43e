/* SPDX-License-Identifier: Apache-2.0 */
/* container_request.h - a request that owns its texts, and its check. Private to agent-client/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/container_run.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/buffer.h"

struct container_order {
    struct container_request request; /* points to what follows */
    char *address, *container_id, *directory, *program;
    char **arguments, **volume_paths; /* never NULL */
    struct container_storage storage; /* if the request has one */
    char *storage_address, *storage_type, *mount_point;
    char **storage_options;
};

/* 0, -ENOMEM; then container_order_done() is still due. */
int container_order_init(struct container_order *order, const struct container_request *request);
void container_order_done(struct container_order *order); /* fine on a zeroed one */

/* What is wrong with the request, for a person; NULL if nothing is. */
const char *container_order_fault(const struct container_order *order);

/* ---- container answer ----------------------------------------------------------------------- */

/* What an agent's status means for a container's run.
 *
 * kata-agent answers almost every failure with INTERNAL, so its text has to be parsed. The texts
 * are the same from Kata 2.5.0 to 4.1.0 unless noted.
 */

enum container_kind container_kind_of(enum container_step step, const struct ttrpc_status *status);

/* The agent did not begin to do what it was asked for. */
bool container_is_barred(enum container_kind kind);

/* It does not know this id. */
bool container_is_absent(const struct ttrpc_status *status);

/* Of ReadStdout and ReadStderr: Kata up to 3.26 answers an error instead of an empty answer. */
bool container_is_end_of_output(const struct ttrpc_status *status);

/* ---- container copy ------------------------------------------------------------------------- */

/* Copies the program into the guest, call by call.
 *
 * For guests without a shared file system. CopyFile makes the parents of a file, so the mount
 * points are made by an empty file in each of them (Kata before 3.12 does not copy a directory).
 * The agent has no call that removes a file, so a file that is not needed any more is replaced by
 * an empty one.
 *
 * The agent writes to a temporary file, and renames it as soon as that has the announced size. Kata
 * before 3.18 continues a temporary file that an earlier copy left, whatever its size. Hence the
 * sweep: one byte beyond the end of any program, with exactly that size announced, makes the agent
 * rename any leftover.
 */

struct container_copier {
    const char *directory; /* borrowed; absolute, in the guest */
    const char *program;   /* its name there; borrowed */
    int file;              /* borrowed */
    uint64_t file_bytes;
    size_t points; /* mount points that have been answered */
    bool swept;
    uint64_t bytes; /* of the program that have been answered */
};

/* NULL, or what is wrong with the file, for a person. */
const char *container_copier_open(struct container_copier *copier, const char *directory,
                                  const char *program, int file);

/* The next request is about the program itself; one of those has been answered. */
bool container_copier_writes(const struct container_copier *copier);
bool container_copier_has_written(const struct container_copier *copier);
bool container_copier_is_done(const struct container_copier *copier);

/* Appends the next request's payload. 0; -errno of reading the file; -ENODATA: it has become
 * shorter; -ENAMETOOLONG, -EMSGSIZE, -ENOMEM. */
int container_copier_append(const struct container_copier *copier, struct buffer *payload);
void container_copier_answered(struct container_copier *copier);

/* The sweep, and the request that makes the program an empty file. */
int container_append_swept(const char *directory, const char *program, struct buffer *payload);
int container_append_emptied(const char *directory, const char *program, struct buffer *payload);
