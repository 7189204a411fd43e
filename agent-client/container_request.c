/* SPDX-License-Identifier: Apache-2.0 */
/* container_request.c - the container's configuration, and the small requests around it. */
#include "agent-client/container_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/agent_messages.h"
#include "lib/cleanup.h"
#include "lib/proto.h"

/* Of a list that ends with NULL; NULL: none. */
static size_t count_texts(const char *const *texts)
{
    size_t count = 0;

    while (texts && texts[count])
        count++;
    return count;
}

/* The configuration was found to work with Kata 4.1.0 under both runtimes:
 *
 *   - process capabilities must be there, or the agent refuses;
 *   - a pid namespace must be there, or the agent refuses: that of process 1 is joined;
 *   - masked paths, read-only paths and a hostname are left out: the agent takes them only with
 *     namespaces for them;
 *   - the cgroup has no parent. Below a parent the agent would first adjust the device rules of the
 *     whole pod;
 *   - the exec_id of a container's first process is the container's id.
 */

enum { ORDINARY_CAPABILITIES = 2 };

/* The first ones are every container's, the others for_drives. */
static const char *const capability_names[] = {
    "CAP_SYS_RESOURCE", "CAP_SYS_ADMIN",  "CAP_CHOWN",
    "CAP_DAC_OVERRIDE", "CAP_FOWNER",     "CAP_FSETID",
    "CAP_SYS_CHROOT",   "CAP_SYS_PTRACE", NULL,
};

static const struct {
    const char *type, *path; /* "": a new one */
} namespaces[] = {{"ipc", ""}, {"uts", ""}, {"pid", "/proc/1/ns/pid"}};

/* Everything that the message borrows. */
struct create_parts {
    char program[2 * AGENT_PATH_BYTES];
    char cgroup[CONTAINER_ID_BYTES + 1];
    ProtobufCBinaryData arguments[CONTAINER_ARGUMENTS + 1];
    ProtobufCBinaryData capabilities[array_length(capability_names)];
    Agent__Namespace namespaces[array_length(namespaces)];
    Agent__Namespace *namespace_pointers[array_length(namespaces)];
};

/* How many of `texts` were borrowed into the array, at most `room`. */
static size_t borrow_texts(const char *const *texts, ProtobufCBinaryData *array, size_t room)
{
    size_t count = 0;

    while (texts && texts[count] && count < room) {
        array[count] = proto_borrow_text(texts[count]);
        count++;
    }
    return count;
}

static void fill_process(struct create_parts *parts, const struct container_request *from,
                         Agent__Process *process, Agent__Capabilities *capabilities)
{
    size_t count = borrow_texts(capability_names, parts->capabilities,
                                from->for_drives ? SIZE_MAX : ORDINARY_CAPABILITIES);

    (void)snprintf(parts->program, sizeof(parts->program), "%s/%s", from->directory, from->program);
    parts->arguments[0] = proto_borrow_text(parts->program);
    process->args = parts->arguments;
    process->n_args = 1 + borrow_texts(from->arguments, parts->arguments + 1, CONTAINER_ARGUMENTS);
    process->cwd = proto_borrow_text("/");
    process->no_new_privileges = true;
    process->capabilities = capabilities;
    capabilities->bounding = capabilities->effective = parts->capabilities;
    capabilities->inheritable = capabilities->permitted = parts->capabilities;
    capabilities->n_bounding = capabilities->n_effective = count;
    capabilities->n_inheritable = capabilities->n_permitted = count;
}

static void fill_linux(struct create_parts *parts, const struct container_request *from,
                       Agent__Linux *platform)
{
    (void)snprintf(parts->cgroup, sizeof(parts->cgroup), "/%s", from->container_id);
    platform->cgroups_path = proto_borrow_text(parts->cgroup);
    for (size_t i = 0; i < array_length(namespaces); i++) {
        agent__namespace__init(&parts->namespaces[i]);
        parts->namespaces[i].type = proto_borrow_text(namespaces[i].type);
        parts->namespaces[i].path = proto_borrow_text(namespaces[i].path);
        parts->namespace_pointers[i] = &parts->namespaces[i];
    }
    platform->namespaces = parts->namespace_pointers;
    platform->n_namespaces = array_length(namespaces);
}

int container_append_create(struct buffer *payload, const struct container_request *from)
{
    cleanup(freep) struct create_parts *parts = calloc(1, sizeof(*parts));
    Agent__CreateContainerRequest message = AGENT__CREATE_CONTAINER_REQUEST__INIT;
    Agent__Spec spec = AGENT__SPEC__INIT;
    Agent__Process process = AGENT__PROCESS__INIT;
    Agent__User user = AGENT__USER__INIT;
    Agent__Capabilities capabilities = AGENT__CAPABILITIES__INIT;
    Agent__Root root = AGENT__ROOT__INIT;
    Agent__Linux platform = AGENT__LINUX__INIT;

    if (!parts)
        return -ENOMEM;
    if (count_texts(from->arguments) > CONTAINER_ARGUMENTS)
        return -EMSGSIZE;
    fill_process(parts, from, &process, &capabilities);
    process.user = &user;
    root.path = proto_borrow_text(from->directory);
    root.readonly = true;
    fill_linux(parts, from, &platform);
    spec.version = proto_borrow_text("1.0.2");
    spec.process = &process;
    spec.root = &root;
    spec.platform = &platform;
    message.container_id = message.exec_id = proto_borrow_text(from->container_id);
    message.spec = &spec;
    return proto_append(payload, &message.base);
}

int container_append_call(struct buffer *payload, enum container_step step,
                          const char *container_id, uint32_t number)
{
    Agent__ProcessRequest message = AGENT__PROCESS_REQUEST__INIT;

    message.container_id = proto_borrow_text(container_id);
    if (step != CONTAINER_START && step != CONTAINER_REMOVE)
        message.exec_id = message.container_id;
    message.number = number;
    return proto_append(payload, &message.base);
}

int container_append_copy(struct buffer *payload, const struct container_copy *copy)
{
    Agent__CopyFileRequest message = AGENT__COPY_FILE_REQUEST__INIT;
    char path[AGENT_PATH_BYTES];

    if (snprintf(path, sizeof(path), "%s/%s", copy->directory, copy->name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    message.path = proto_borrow_text(path);
    message.file_size = (int64_t)copy->file_bytes;
    message.file_mode = S_IFREG | copy->mode;
    message.dir_mode = S_IFDIR | 0755;
    message.offset = (int64_t)copy->offset;
    message.data = proto_borrow(copy->data, copy->length);
    return proto_append(payload, &message.base);
}

int container_parse_wait(const void *payload, size_t length, int *ret_status)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&agent__wait_process_response__descriptor, payload, length, &unpacked);

    if (r == 0)
        *ret_status = ((const Agent__WaitProcessResponse *)(const void *)unpacked)->status;
    return r;
}

int container_parse_read(const void *payload, size_t length, struct buffer *bytes)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&agent__read_stream_response__descriptor, payload, length, &unpacked);
    const Agent__ReadStreamResponse *message = (const void *)unpacked;

    return r < 0 ? r : buffer_append(bytes, message->data.data, message->data.len);
}
