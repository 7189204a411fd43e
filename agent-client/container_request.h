/* SPDX-License-Identifier: Apache-2.0 */
/* container_request.h - the payloads of the calls that run a container. Pure. Private to
 * agent-client/.
 *
 * Answers that are empty messages are not parsed. Source: kata-containers
 * src/libs/protocols/protos/{agent,oci}.proto.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "agent-client/container_run.h"
#include "lib/buffer.h"

enum { CONTAINER_PIECE_BYTES = 256 * 1024 }; /* the agent takes up to 4 MiB in one request */

/* A piece of a file that is to be `file_bytes` long. */
struct container_copy {
    const char *directory, *name; /* in the guest */
    uint32_t mode;                /* of the file, without its type */
    uint64_t file_bytes;
    uint64_t offset;
    const void *data;
    size_t length;
};

/* Append to the buffer. 0, -EMSGSIZE, -ENOMEM; of a copy, -ENAMETOOLONG. number: the signal of
 * KILL, the most bytes of READ, else 0. */
int container_append_create(struct buffer *payload, const struct container_request *request);
int container_append_call(struct buffer *payload, enum container_step step,
                          const char *container_id, uint32_t number);
int container_append_copy(struct buffer *payload, const struct container_copy *copy);

/* 0; -EBADMSG: not such a message. container_parse_read() appends what was read, and also returns
 * -EMSGSIZE and -ENOMEM. */
int container_parse_wait(const void *payload, size_t length, int *ret_status);
int container_parse_read(const void *payload, size_t length, struct buffer *bytes);
