/* SPDX-License-Identifier: Apache-2.0 */
/* container_messages.c - the container's configuration, and the small requests around it.
 *
 * The configuration was found to work with Kata 4.1.0 under both runtimes:
 *
 *   - process capabilities must be there, or the agent refuses;
 *   - without /sys the program does not learn a device's size;
 *   - the root is a read-only share, on which the agent cannot make mount points: those of the
 *     volumes are made on the tmpfs at /vol, so mounts are listed in this order;
 *   - the cgroup has no parent. Below a parent the agent would first adjust the device rules of the
 *     whole pod;
 *   - the exec_id of a container's first process is the container's id.
 */
#include "agent-client/container_messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/agent_messages.h"
#include "agent-client/container_run.h"
#include "lib/cleanup.h"
#include "lib/proto.h"

enum { MOUNT_OPTIONS = 5, ORDINARY_CAPABILITIES = 2 };

static const struct own_mount {
    const char *destination, *type;
    const char *options[MOUNT_OPTIONS + 1];
} own_mounts[] = {
    {"/proc", "proc", {"nosuid", "noexec", "nodev"}},
    {"/sys", "sysfs", {"nosuid", "noexec", "nodev", "ro"}},
    {"/dev", "tmpfs", {"nosuid", "noexec", "mode=755", "size=65536k"}},
    {"/vol", "tmpfs", {"nosuid", "noexec", "nodev", "mode=755", "size=64k"}},
};

static const char *const bind_options[] = {"bind", "rw", NULL};

/* The first ones are every container's, the others for files_of_others. */
static const char *const capability_names[] = {
    "CAP_SYS_RESOURCE", "CAP_SYS_ADMIN",       "CAP_CHOWN", "CAP_FOWNER",
    "CAP_FSETID",       "CAP_DAC_READ_SEARCH", NULL,
};

static const char *const namespace_types[] = {"mount", "ipc", "uts", "pid"};

enum { MOUNTS = CONTAINER_VOLUMES + array_length(own_mounts) };

/* One mount and what it points to. */
struct mount_parts {
    Agent__Mount message;
    char destination[sizeof("/vol/") + 3];
    ProtobufCBinaryData options[MOUNT_OPTIONS];
};

/* The storage and what it points to. */
struct storage_parts {
    Agent__Storage message;
    Agent__Storage *pointer;
    ProtobufCBinaryData options[CONTAINER_STORAGE_OPTIONS];
};

/* Everything that the message borrows. */
struct create_parts {
    struct storage_parts storage;
    struct mount_parts mounts[MOUNTS];
    Agent__Mount *mount_pointers[MOUNTS];
    char program[2 * AGENT_PATH_BYTES];
    char cgroup[CONTAINER_ID_BYTES + 1];
    ProtobufCBinaryData arguments[CONTAINER_ARGUMENTS + 1];
    ProtobufCBinaryData capabilities[array_length(capability_names)];
    Agent__Namespace namespaces[array_length(namespace_types)];
    Agent__Namespace *namespace_pointers[array_length(namespace_types)];
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

size_t container_count_texts(const char *const *texts)
{
    size_t count = 0;

    while (texts && texts[count])
        count++;
    return count;
}

static void fill_mount(struct mount_parts *parts, const char *destination, const char *source,
                       const char *type, const char *const *options)
{
    agent__mount__init(&parts->message);
    parts->message.destination = proto_borrow_text(destination);
    parts->message.source = proto_borrow_text(source);
    parts->message.type = proto_borrow_text(type);
    parts->message.options = parts->options;
    parts->message.n_options = borrow_texts(options, parts->options, MOUNT_OPTIONS);
}

/* Without a mount namespace, kata-agent makes none of a container's mounts. */
static void fill_mounts(struct create_parts *parts, const char *const *volume_paths,
                        Agent__Spec *spec)
{
    size_t count = 0;

    for (; count < array_length(own_mounts); count++) {
        const struct own_mount *own = &own_mounts[count];

        fill_mount(&parts->mounts[count], own->destination, own->type, own->type, own->options);
    }
    for (size_t i = 0; volume_paths && volume_paths[i]; i++, count++) {
        struct mount_parts *mount = &parts->mounts[count];

        (void)snprintf(mount->destination, sizeof(mount->destination), "/vol/%zu", i);
        fill_mount(mount, mount->destination, volume_paths[i], "bind", bind_options);
    }
    for (size_t i = 0; i < count; i++)
        parts->mount_pointers[i] = &parts->mounts[i].message;
    spec->mounts = parts->mount_pointers;
    spec->n_mounts = count;
}

static void fill_process(struct create_parts *parts, const struct container_spec *from,
                         Agent__Process *process, Agent__Capabilities *capabilities)
{
    size_t count = borrow_texts(capability_names, parts->capabilities,
                                from->files_of_others ? SIZE_MAX : ORDINARY_CAPABILITIES);

    (void)snprintf(parts->program, sizeof(parts->program), "%s/%s",
                   from->in_mounts_of_agent ? from->directory : "", from->program);
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

static void fill_linux(struct create_parts *parts, const struct container_spec *from,
                       Agent__Linux *platform)
{
    size_t first = from->in_mounts_of_agent ? 1 : 0; /* the mount namespace is the first */
    size_t count = array_length(namespace_types) - first;

    (void)snprintf(parts->cgroup, sizeof(parts->cgroup), "/%s", from->container_id);
    platform->cgroups_path = proto_borrow_text(parts->cgroup);
    for (size_t i = 0; i < count; i++) {
        agent__namespace__init(&parts->namespaces[i]);
        parts->namespaces[i].type = proto_borrow_text(namespace_types[first + i]);
        parts->namespace_pointers[i] = &parts->namespaces[i];
    }
    platform->namespaces = parts->namespace_pointers;
    platform->n_namespaces = count;
}

/* The agent's words for an address (Kata: src/libs/kata-types/src/device.rs). NULL: it has none. */
static const char *read_address(const char *address, const char **ret_driver)
{
    static const struct {
        const char *prefix, *driver;
    } kinds[] = {{"scsi:", "scsi"}, {"pci:", "blk"}};

    for (size_t i = 0; i < array_length(kinds); i++)
        if (strncmp(address, kinds[i].prefix, strlen(kinds[i].prefix)) == 0) {
            *ret_driver = kinds[i].driver;
            return address + strlen(kinds[i].prefix);
        }
    return NULL;
}

/* Within bounds. Never with a group: the agent's walk follows links to directories. */
static void fill_storage(struct storage_parts *parts, const struct container_storage *from,
                         Agent__CreateContainerRequest *message)
{
    Agent__Storage *storage = &parts->message;
    const char *driver;

    agent__storage__init(storage);
    storage->source = proto_borrow_text(read_address(from->address, &driver));
    storage->driver = proto_borrow_text(driver);
    storage->fstype = proto_borrow_text(from->filesystem_type);
    storage->options = parts->options;
    storage->n_options = borrow_texts(from->options, parts->options, CONTAINER_STORAGE_OPTIONS);
    storage->mount_point = proto_borrow_text(from->mount_point);
    parts->pointer = storage;
    message->storages = &parts->pointer;
    message->n_storages = 1;
}

static bool storage_fits(const struct container_storage *storage)
{
    const char *driver;

    return read_address(storage->address, &driver) &&
           container_count_texts(storage->options) <= CONTAINER_STORAGE_OPTIONS;
}

int container_append_create(struct buffer *payload, const struct container_spec *from)
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
    if (container_count_texts(from->volume_paths) > CONTAINER_VOLUMES ||
        container_count_texts(from->arguments) > CONTAINER_ARGUMENTS ||
        (from->storage && !storage_fits(from->storage)))
        return -EMSGSIZE;
    fill_process(parts, from, &process, &capabilities);
    process.user = &user;
    root.path = proto_borrow_text(from->directory);
    root.readonly = true;
    fill_linux(parts, from, &platform);
    if (!from->in_mounts_of_agent)
        fill_mounts(parts, from->volume_paths, &spec);
    spec.version = proto_borrow_text("1.0.2");
    spec.process = &process;
    spec.root = &root;
    spec.platform = &platform;
    message.container_id = message.exec_id = proto_borrow_text(from->container_id);
    if (from->storage)
        fill_storage(&parts->storage, from->storage, &message);
    message.spec = &spec;
    return proto_append(payload, &message.base);
}

int container_append_start(struct buffer *payload, const char *container_id)
{
    Agent__StartContainerRequest message = AGENT__START_CONTAINER_REQUEST__INIT;

    message.container_id = proto_borrow_text(container_id);
    return proto_append(payload, &message.base);
}

int container_append_remove(struct buffer *payload, const char *container_id)
{
    Agent__RemoveContainerRequest message = AGENT__REMOVE_CONTAINER_REQUEST__INIT;

    message.container_id = proto_borrow_text(container_id);
    return proto_append(payload, &message.base);
}

int container_append_signal(struct buffer *payload, const char *container_id, unsigned number)
{
    Agent__SignalProcessRequest message = AGENT__SIGNAL_PROCESS_REQUEST__INIT;

    message.container_id = message.exec_id = proto_borrow_text(container_id);
    message.signal = number;
    return proto_append(payload, &message.base);
}

int container_append_wait(struct buffer *payload, const char *container_id)
{
    Agent__WaitProcessRequest message = AGENT__WAIT_PROCESS_REQUEST__INIT;

    message.container_id = message.exec_id = proto_borrow_text(container_id);
    return proto_append(payload, &message.base);
}

int container_append_read(struct buffer *payload, const char *container_id, uint32_t bytes)
{
    Agent__ReadStreamRequest message = AGENT__READ_STREAM_REQUEST__INIT;

    message.container_id = message.exec_id = proto_borrow_text(container_id);
    message.len = bytes;
    return proto_append(payload, &message.base);
}

int container_append_copy(struct buffer *payload, const struct container_copy *copy)
{
    Agent__CopyFileRequest message = AGENT__COPY_FILE_REQUEST__INIT;
    union {
        const void *constant;
        uint8_t *bytes;
    } data = {.constant = copy->data}; /* packing does not write to it */

    message.path = proto_borrow_text(copy->path);
    message.file_size = (int64_t)copy->file_bytes;
    message.file_mode = S_IFREG | copy->mode;
    message.dir_mode = S_IFDIR | 0755;
    message.offset = (int64_t)copy->offset;
    message.data = (ProtobufCBinaryData){.len = copy->length, .data = data.bytes};
    return proto_append(payload, &message.base);
}

int container_parse_wait(const void *payload, size_t length, int *ret_status)
{
    ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&agent__wait_process_response__descriptor, payload, length, &unpacked);

    if (r < 0)
        return r;
    *ret_status = ((const Agent__WaitProcessResponse *)(const void *)unpacked)->status;
    (void)proto_free(unpacked);
    return 0;
}

int container_parse_read(const void *payload, size_t length, struct buffer *bytes)
{
    ProtobufCMessage *unpacked = NULL;
    const Agent__ReadStreamResponse *message;
    int r = proto_unpack(&agent__read_stream_response__descriptor, payload, length, &unpacked);

    if (r < 0)
        return r;
    message = (const Agent__ReadStreamResponse *)(const void *)unpacked;
    r = buffer_append(bytes, message->data.data, message->data.len);
    (void)proto_free(unpacked);
    return r;
}
