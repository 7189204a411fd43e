/* SPDX-License-Identifier: Apache-2.0 */
/* container_request.c - the container's configuration, and the small requests around it. */
#include "agent-client/container_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/agent_messages.h"
#include "lib/cleanup.h"
#include "lib/proto.h"

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
    "CAP_SYS_RESOURCE", "CAP_SYS_ADMIN", "CAP_CHOWN",      "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",       "CAP_FSETID",    "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
};

static const struct {
    const char *type, *path; /* "": a new one */
} namespaces[] = {{"ipc", ""}, {"uts", ""}, {"pid", "/proc/1/ns/pid"}};

/* Borrows the texts, at most `room`; returns how many there are. */
static size_t borrow_texts(const char *const *texts, ProtobufCBinaryData *array, size_t room)
{
    size_t count = 0;

    for (; count < room && texts[count]; count++)
        array[count] = proto_borrow_text(texts[count]);
    return count;
}

int container_append_create(struct buffer *payload, const struct container_request *from)
{
    Agent__CreateContainerRequest message = AGENT__CREATE_CONTAINER_REQUEST__INIT;
    Agent__Spec spec = AGENT__SPEC__INIT;
    Agent__Process process = AGENT__PROCESS__INIT;
    Agent__User user = AGENT__USER__INIT;
    Agent__Capabilities capabilities = AGENT__CAPABILITIES__INIT;
    Agent__Root root = AGENT__ROOT__INIT;
    Agent__Linux platform = AGENT__LINUX__INIT;
    Agent__Namespace spaces[array_length(namespaces)], *space_pointers[array_length(namespaces)];
    ProtobufCBinaryData arguments[CONTAINER_ARGUMENTS + 1], names[array_length(capability_names)];
    char program[2 * AGENT_PATH_BYTES], cgroup[CONTAINER_ID_BYTES + 1];

    (void)snprintf(program, sizeof(program), "%s/%s", from->directory, from->program);
    arguments[0] = proto_borrow_text(program);
    process.args = arguments;
    process.n_args = 1 + borrow_texts(from->arguments, arguments + 1, CONTAINER_ARGUMENTS);
    process.user = &user;
    process.cwd = proto_borrow_text("/");
    process.no_new_privileges = true;
    process.capabilities = &capabilities;
    capabilities.bounding = capabilities.effective = names;
    capabilities.inheritable = capabilities.permitted = names;
    capabilities.n_bounding = capabilities.n_effective = capabilities.n_inheritable =
        capabilities.n_permitted =
            borrow_texts(capability_names, names,
                         from->for_drives ? array_length(names) : ORDINARY_CAPABILITIES);
    root.path = proto_borrow_text(from->directory);
    root.readonly = true;
    (void)snprintf(cgroup, sizeof(cgroup), "/%s", from->container_id);
    platform.cgroups_path = proto_borrow_text(cgroup);
    for (size_t i = 0; i < array_length(namespaces); i++) {
        agent__namespace__init(&spaces[i]);
        spaces[i].type = proto_borrow_text(namespaces[i].type);
        spaces[i].path = proto_borrow_text(namespaces[i].path);
        space_pointers[i] = &spaces[i];
    }
    platform.namespaces = space_pointers;
    platform.n_namespaces = array_length(namespaces);
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

int container_append_copy(struct buffer *payload, const struct container_request *request,
                          const struct container_copy *copy)
{
    Agent__CopyFileRequest message = AGENT__COPY_FILE_REQUEST__INIT;
    char path[AGENT_PATH_BYTES];

    if (snprintf(path, sizeof(path), "%s/%s", request->directory, request->program) >=
        (int)sizeof(path))
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

int container_parse_read(const void *payload, size_t length, bool cuts, struct buffer *bytes,
                         bool *ret_end)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&agent__read_stream_response__descriptor, payload, length, &unpacked);
    const Agent__ReadStreamResponse *message = (const void *)unpacked;
    const size_t room = bytes->limit - bytes->length;

    if (r < 0)
        return r;
    *ret_end = message->data.len == 0;
    return buffer_append(bytes, message->data.data,
                         cuts && message->data.len > room ? room : message->data.len);
}
