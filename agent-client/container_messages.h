/* SPDX-License-Identifier: Apache-2.0 */
/* container_messages.h - the payloads of the calls that run a container. Private to agent-client/.
 *
 * Answers that are empty messages are not parsed. Source: kata-containers
 * src/libs/protocols/protos/{agent,oci}.proto.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/container_run.h"
#include "lib/buffer.h"

#define CONTAINER_METHOD_CREATE      "CreateContainer"
#define CONTAINER_METHOD_START       "StartContainer"
#define CONTAINER_METHOD_READ_STDOUT "ReadStdout"
#define CONTAINER_METHOD_READ_STDERR "ReadStderr"
#define CONTAINER_METHOD_WAIT        "WaitProcess"
#define CONTAINER_METHOD_SIGNAL      "SignalProcess"
#define CONTAINER_METHOD_REMOVE      "RemoveContainer"
#define CONTAINER_METHOD_COPY        "CopyFile"

/* What is created; as in container_run.h. */
struct container_spec {
    const char *container_id;
    const char *directory;
    const char *program;
    const char *const *arguments;    /* NULL at the end; NULL: none */
    const char *const *volume_paths; /* NULL at the end; NULL: none. At most CONTAINER_VOLUMES */
    const struct container_storage *storage; /* NULL: none */
    bool files_of_others;
    bool in_mounts_of_agent;
};

enum { CONTAINER_PIECE_BYTES = 256 * 1024 }; /* the agent takes up to 4 MiB in one request */

/* A piece of a file that is to be `file_bytes` long. */
struct container_copy {
    const char *path; /* in the guest */
    uint32_t mode;    /* of the file, without its type */
    uint64_t file_bytes;
    uint64_t offset;
    const void *data;
    size_t length;
};

/* Of a list that ends with NULL; NULL: none. */
size_t container_count_texts(const char *const *texts);

/* Append to the buffer. 0, -EMSGSIZE (also for an address of another kind), -ENOMEM. */
int container_append_create(struct buffer *payload, const struct container_spec *spec);
int container_append_start(struct buffer *payload, const char *container_id);
int container_append_remove(struct buffer *payload, const char *container_id);
int container_append_signal(struct buffer *payload, const char *container_id, unsigned number);
int container_append_wait(struct buffer *payload, const char *container_id);
int container_append_read(struct buffer *payload, const char *container_id, uint32_t bytes);
int container_append_copy(struct buffer *payload, const struct container_copy *copy);

/* 0; -EBADMSG: not such a message. container_parse_read() appends what was read, and also returns
 * -EMSGSIZE and -ENOMEM. */
int container_parse_wait(const void *payload, size_t length, int *ret_status);
int container_parse_read(const void *payload, size_t length, struct buffer *bytes);
