/* SPDX-License-Identifier: Apache-2.0 */
/* container_copy.c - finds the next piece to copy. */
#include "agent-client/container_copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "agent-client/container_messages.h"
#include "agent-client/container_run.h"
#include "lib/cleanup.h"

static const char *const mount_points[] = {"proc", "sys", "dev", "vol"};

const char *container_copier_open(struct container_copier *copier, const char *directory,
                                  const char *program, int file)
{
    struct stat status;

    if (fstat(file, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
        return "the program to be copied cannot be read or is empty";
    if (status.st_size > CONTAINER_PROGRAM_BYTES)
        return "the program to be copied is too large";
    *copier = (struct container_copier){
        .directory = directory,
        .program = program,
        .file = file,
        .file_bytes = (uint64_t)status.st_size,
    };
    return NULL;
}

bool container_copier_writes(const struct container_copier *copier)
{
    return copier->points == array_length(mount_points);
}

bool container_copier_has_written(const struct container_copier *copier)
{
    return copier->swept;
}

bool container_copier_is_done(const struct container_copier *copier)
{
    return copier->swept && copier->bytes == copier->file_bytes;
}

static int make_path(const char *directory, const char *name, const char *below,
                     char ret_path[static AGENT_PATH_BYTES])
{
    int length = snprintf(ret_path, AGENT_PATH_BYTES, "%s/%s%s", directory, name, below);

    return length < AGENT_PATH_BYTES ? 0 : -ENAMETOOLONG;
}

static int append_empty_file(const char *directory, const char *name, const char *below,
                             struct buffer *payload)
{
    char path[AGENT_PATH_BYTES];
    struct container_copy copy = {.path = path, .mode = 0644};
    int r = make_path(directory, name, below, path);

    return r < 0 ? r : container_append_copy(payload, &copy);
}

int container_append_swept(const char *directory, const char *program, struct buffer *payload)
{
    char path[AGENT_PATH_BYTES];
    struct container_copy copy = {
        .path = path,
        .mode = 0644,
        .file_bytes = CONTAINER_PROGRAM_BYTES + 1,
        .offset = CONTAINER_PROGRAM_BYTES,
        .data = "",
        .length = 1,
    };
    int r = make_path(directory, program, "", path);

    return r < 0 ? r : container_append_copy(payload, &copy);
}

static size_t piece_length(const struct container_copier *copier)
{
    uint64_t left = copier->file_bytes - copier->bytes;

    return left < CONTAINER_PIECE_BYTES ? (size_t)left : CONTAINER_PIECE_BYTES;
}

static int append_piece(const struct container_copier *copier, struct buffer *payload)
{
    char path[AGENT_PATH_BYTES];
    cleanup(freep) void *piece = malloc(CONTAINER_PIECE_BYTES);
    struct container_copy copy = {
        .path = path,
        .mode = 0755,
        .file_bytes = copier->file_bytes,
        .offset = copier->bytes,
        .data = piece,
        .length = piece_length(copier),
    };
    ssize_t count;
    int r;

    if (!piece)
        return -ENOMEM;
    r = make_path(copier->directory, copier->program, "", path);
    if (r < 0)
        return r;
    count = pread(copier->file, piece, copy.length, (off_t)copy.offset);
    if (count < 0)
        return -errno;
    if ((size_t)count != copy.length)
        return -ENODATA;
    return container_append_copy(payload, &copy);
}

int container_copier_append(const struct container_copier *copier, struct buffer *payload)
{
    if (copier->swept)
        return append_piece(copier, payload);
    if (container_copier_writes(copier))
        return container_append_swept(copier->directory, copier->program, payload);
    return append_empty_file(copier->directory, mount_points[copier->points], "/empty", payload);
}

void container_copier_answered(struct container_copier *copier)
{
    if (copier->swept)
        copier->bytes += piece_length(copier);
    else if (container_copier_writes(copier))
        copier->swept = true;
    else
        copier->points++;
}

int container_append_emptied(const char *directory, const char *program, struct buffer *payload)
{
    return append_empty_file(directory, program, "", payload);
}
