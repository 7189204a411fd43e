/* SPDX-License-Identifier: Apache-2.0 */
/* container_request.c - copies all texts, and checks the bounds that container_run.h promises. */
#include "agent-client/container_request.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_messages.h"
#include "agent-client/container_messages.h"

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
