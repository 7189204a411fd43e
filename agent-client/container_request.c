/* SPDX-License-Identifier: Apache-2.0 */
/* container_request.c - copies all texts, and checks the bounds that container_run.h promises. */
#include "agent-client/container_request.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "agent-client/container_messages.h"
#include "agent-client/container_run.h"
#include "lib/cleanup.h"

static void free_texts(char **texts)
{
    for (size_t i = 0; texts && texts[i]; i++)
        free(texts[i]);
    free(texts);
}

static char *copy_text(const char *text, bool *failed)
{
    char *copy = text ? strdup(text) : NULL;

    if (text && !copy)
        *failed = true;
    return copy;
}

static char **copy_texts(const char *const *texts, bool *failed)
{
    size_t count = container_count_texts(texts);
    char **copies = calloc(count + 1, sizeof(*copies));

    if (!copies)
        *failed = true;
    for (size_t i = 0; i < count && !*failed; i++)
        copies[i] = copy_text(texts[i], failed);
    return copies;
}

static void copy_storage(struct container_order *order, const struct container_storage *storage,
                         bool *failed)
{
    order->storage = *storage;
    order->storage_address = copy_text(storage->address, failed);
    order->storage_type = copy_text(storage->filesystem_type, failed);
    order->mount_point = copy_text(storage->mount_point, failed);
    order->storage_options = copy_texts(storage->options, failed);
    order->storage.address = order->storage_address;
    order->storage.filesystem_type = order->storage_type;
    order->storage.mount_point = order->mount_point;
    order->storage.options = (const char *const *)order->storage_options;
    order->request.storage = &order->storage;
}

int container_order_init(struct container_order *order, const struct container_request *request)
{
    bool failed = false;

    *order = (struct container_order){
        .request = *request,
        .address = copy_text(request->address, &failed),
        .container_id = copy_text(request->container_id, &failed),
        .directory = copy_text(request->directory, &failed),
        .program = copy_text(request->program, &failed),
        .arguments = copy_texts(request->arguments, &failed),
        .volume_paths = copy_texts(request->volume_paths, &failed),
    };
    order->request.address = order->address;
    order->request.container_id = order->container_id;
    order->request.directory = order->directory;
    order->request.program = order->program;
    order->request.arguments = (const char *const *)order->arguments;
    order->request.volume_paths = (const char *const *)order->volume_paths;
    if (request->storage)
        copy_storage(order, request->storage, &failed);
    return failed ? -ENOMEM : 0;
}

void container_order_done(struct container_order *order)
{
    free(order->address);
    free(order->container_id);
    free(order->directory);
    free(order->program);
    free_texts(order->arguments);
    free_texts(order->volume_paths);
    free(order->storage_address);
    free(order->storage_type);
    free(order->mount_point);
    free_texts(order->storage_options);
    *order = (struct container_order){0};
}

static bool is_id(const char *id)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    size_t length = id ? strlen(id) : 0;

    return length > 1 && length < CONTAINER_ID_BYTES && id[0] != '-' &&
           strspn(id, letters) == length;
}

static bool is_path(const char *path)
{
    return path && path[0] == '/' && strlen(path) < AGENT_PATH_BYTES;
}

static bool is_name(const char *name)
{
    return name && name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           !strchr(name, '/') && strlen(name) < AGENT_PATH_BYTES - 1;
}

static bool are_volumes(const char *const *paths)
{
    size_t count = 0;

    for (; paths && paths[count]; count++)
        if (count == CONTAINER_VOLUMES || !is_path(paths[count]))
            return false;
    return true;
}

const char *container_order_fault(const struct container_order *order)
{
    const struct container_request *request = &order->request;
    bool needs_program = request->act != CONTAINER_CLEAN_UP || request->copied;

    if (!request->address)
        return "there is no address";
    if (!is_id(request->container_id))
        return "the container's id is not one";
    if ((needs_program || request->directory) && !is_path(request->directory))
        return "the program's directory is no absolute path";
    if ((needs_program || request->program) && !is_name(request->program))
        return "the program's name is no file name";
    if (container_count_texts(request->arguments) > CONTAINER_ARGUMENTS)
        return "the program has too many arguments";
    if (!are_volumes(request->volume_paths))
        return "a volume's path is not absolute or too long, or there are too many of them";
    if (request->storage &&
        (!is_path(request->storage->mount_point) || !is_name(request->storage->filesystem_type)))
        return "the storage's mount point is no absolute path, or its type is none";
    if (!request->step_ns)
        return "there is no time for a call";
    return NULL;
}

/* ---- container copy ------------------------------------------------------------------------- */

/* Finds the next piece to copy. */

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
