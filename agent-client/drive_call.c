/* SPDX-License-Identifier: Apache-2.0 */
/* drive_call.c - converts plain structures to protobuf and back.
 *
 * A field that does not fit makes the whole message malformed. Nothing is truncated, because a
 * truncated path or serial would be a different one. */
#include "agent-client/drive_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_messages.h"
#include "agent-client/crust_drive.pb-c.h"
#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/proto.h"
#include "lib/text.h"

typedef Crust__Guest__V1__MountDriveRequest MountRequest;
typedef Crust__Guest__V1__MountDriveResponse MountResponse;
typedef Crust__Guest__V1__UnmountDriveRequest UnmountRequest;
typedef Crust__Guest__V1__UnmountDriveResponse UnmountResponse;
typedef Crust__Guest__V1__ListDrivesRequest ListRequest;
typedef Crust__Guest__V1__ListDrivesResponse ListResponse;
typedef Crust__Guest__V1__GuestDrive GuestDrive;
typedef Crust__Guest__V1__Container Container;

enum { VMM_SERIAL_DIGITS = 3 }; /* at least */

bool drive_id_is_valid(const char *id)
{
    size_t length = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");

    return length > 0 && length < DRIVE_ID_BYTES && !id[length];
}

bool drive_serial_is_of_vmm(const char *serial)
{
    size_t length = strspn(serial, "0123456789");

    return length >= VMM_SERIAL_DIGITS && length < DRIVE_SERIAL_BYTES && !serial[length];
}

static bool serial_is_ours(const char *serial)
{
    size_t prefix = strlen(DRIVE_SERIAL_PREFIX);

    return strncmp(serial, DRIVE_SERIAL_PREFIX, prefix) == 0 &&
           strlen(serial) == DRIVE_SERIAL_BYTES - 1 &&
           strspn(serial + prefix, "abcdefghijklmnopqrstuvwxyz234567") ==
               DRIVE_SERIAL_BYTES - 1 - prefix;
}

bool drive_serial_is_valid(const char *serial)
{
    return serial_is_ours(serial) || drive_serial_is_of_vmm(serial);
}

/* Whether the text fits into `size` bytes with a NUL, contains none, and is UTF-8. */
static bool copy_text(const ProtobufCBinaryData *from, char *ret_text, size_t size)
{
    const char *text = (const char *)from->data;

    if (from->len >= size || (from->len && memchr(text, '\0', from->len)) ||
        !text_is_utf8(from->len ? text : "", from->len))
        return false;
    if (from->len)
        memcpy(ret_text, text, from->len);
    ret_text[from->len] = '\0';
    return true;
}

/* Whether the path is absolute and each component a name. */
static bool is_path(const char *path)
{
    if (path[0] != '/')
        return false;
    for (const char *part = path; *part;) {
        size_t length;

        part += strspn(part, "/");
        length = strcspn(part, "/");
        if ((length == 1 && part[0] == '.') || (length == 2 && strncmp(part, "..", 2) == 0))
            return false;
        part += length;
    }
    return true;
}

static bool copy_id(const ProtobufCBinaryData *from, char *ret_id)
{
    return copy_text(from, ret_id, DRIVE_ID_BYTES) && drive_id_is_valid(ret_id);
}

static bool copy_serial(const ProtobufCBinaryData *from, char *ret_serial)
{
    return copy_text(from, ret_serial, DRIVE_SERIAL_BYTES) && drive_serial_is_valid(ret_serial);
}

/* ---- containers ---- */

static void fill_containers(const struct drive_containers *containers,
                            Container messages[static DRIVE_CONTAINERS],
                            Container *pointers[static DRIVE_CONTAINERS])
{
    for (size_t i = 0; i < containers->count; i++) {
        const struct drive_container *one = &containers->each[i];

        crust__guest__v1__container__init(&messages[i]);
        messages[i].container_id = proto_borrow_text(one->container_id);
        messages[i].path = proto_borrow_text(one->path);
        messages[i].sub_path = proto_borrow_text(one->sub_path);
        messages[i].read_only = one->read_only;
        pointers[i] = &messages[i];
    }
}

static bool is_container_id(const char *id)
{
    size_t length = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

    return length > 0 && length <= DRIVE_CONTAINER_ID_CHARS && !id[length] &&
           strcmp(id, ".") != 0 && strcmp(id, "..") != 0;
}

static bool take_container(const Container *message, struct drive_container *one)
{
    char whole[DRIVE_PATH_BYTES] = "/"; /* with the sub_path: empty, or names alone */

    one->read_only = message->read_only;
    return copy_text(&message->container_id, one->container_id, sizeof(one->container_id)) &&
           is_container_id(one->container_id) &&
           copy_text(&message->path, one->path, sizeof(one->path)) && one->path[0] == '/' &&
           one->path[1] && path_is_clean(one->path) &&
           copy_text(&message->sub_path, one->sub_path, sizeof(one->sub_path)) &&
           (!one->sub_path[0] || path_is_clean(strcat(whole, one->sub_path)));
}

static bool take_containers(Container *const *messages, size_t count,
                            struct drive_containers *containers)
{
    if (count > DRIVE_CONTAINERS)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!take_container(messages[i], &containers->each[i]))
            return false;
    }
    containers->count = count;
    return true;
}

/* ---- calls ---- */

int drive_append_mount_request(struct buffer *payload, const struct drive_mount_request *request)
{
    MountRequest message = CRUST__GUEST__V1__MOUNT_DRIVE_REQUEST__INIT;
    ProtobufCBinaryData options[DRIVE_OPTIONS];
    Container containers[DRIVE_CONTAINERS], *pointers[DRIVE_CONTAINERS];

    if (request->option_count > DRIVE_OPTIONS || request->containers.count > DRIVE_CONTAINERS)
        return -EMSGSIZE;
    for (size_t i = 0; i < request->option_count; i++)
        options[i] = proto_borrow_text(request->options[i]);
    message.drive_id = proto_borrow_text(request->drive_id);
    message.serial = proto_borrow_text(request->serial);
    message.size = request->bytes;
    message.read_only = request->read_only;
    message.vm_path = proto_borrow_text(request->vm_path);
    message.filesystem_type = proto_borrow_text(request->filesystem_type);
    message.n_options = request->option_count;
    message.options = options;
    message.fsck = (Crust__Guest__V1__MountDriveRequest__Fsck)request->fsck;
    message.has_fs_group = request->has_fs_group;
    message.fs_group = request->fs_group;
    message.fs_group_change_policy =
        (Crust__Guest__V1__MountDriveRequest__FsGroupChangePolicy)request->fs_group_policy;
    message.timeout_ms = request->timeout_ms;
    fill_containers(&request->containers, containers, pointers);
    message.n_containers = request->containers.count;
    message.containers = pointers;
    return proto_append(payload, &message.base);
}

static bool copy_options(const MountRequest *message, struct drive_mount_request *request)
{
    if (message->n_options > DRIVE_OPTIONS)
        return false;
    for (size_t i = 0; i < message->n_options; i++) {
        if (!copy_text(&message->options[i], request->options[i], DRIVE_OPTION_BYTES) ||
            !request->options[i][0])
            return false;
    }
    request->option_count = message->n_options;
    return true;
}

/* NULL, or the name of a malformed field. */
static const char *take_mount_request(const MountRequest *message,
                                      struct drive_mount_request *request)
{
    if (!copy_id(&message->drive_id, request->drive_id))
        return "drive_id";
    if (!copy_serial(&message->serial, request->serial))
        return "serial";
    if (!message->size)
        return "size";
    if (!copy_text(&message->vm_path, request->vm_path, DRIVE_PATH_BYTES) ||
        !is_path(request->vm_path))
        return "vm_path";
    if (!copy_text(&message->filesystem_type, request->filesystem_type, DRIVE_TYPE_BYTES) ||
        !request->filesystem_type[0])
        return "filesystem_type";
    if (!copy_options(message, request))
        return "options";
    if ((unsigned)message->fsck > DRIVE_FSCK_PREEN)
        return "fsck";
    if (message->has_fs_group &&
        message->fs_group == UINT32_MAX) /* chown(2) takes it for "no group" */
        return "fs_group";
    if ((unsigned)message->fs_group_change_policy > DRIVE_GROUP_ON_ROOT_MISMATCH)
        return "fs_group_change_policy";
    if (!take_containers(message->containers, message->n_containers, &request->containers))
        return "containers";
    return NULL;
}

int drive_parse_mount_request(const void *payload, size_t length,
                              struct drive_mount_request *ret_request, const char **ret_wrong)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    cleanup(freep) struct drive_mount_request *request = calloc(1, sizeof(*request));
    int r = proto_unpack(&crust__guest__v1__mount_drive_request__descriptor, payload, length,
                         &unpacked);
    const MountRequest *message = (const void *)unpacked;

    if (r < 0 || !request)
        return r < 0 ? r : -ENOMEM;
    *ret_wrong = take_mount_request(message, request);
    if (*ret_wrong)
        return -EINVAL;
    request->bytes = message->size;
    request->read_only = message->read_only;
    request->fsck = (enum drive_fsck)message->fsck;
    request->has_fs_group = message->has_fs_group;
    request->fs_group = message->fs_group;
    request->fs_group_policy = (enum drive_group_policy)message->fs_group_change_policy;
    request->timeout_ms = message->timeout_ms;
    *ret_request = *request;
    return 0;
}

int drive_append_mount_answer(struct buffer *payload, const struct drive_mount_answer *answer)
{
    MountResponse message = CRUST__GUEST__V1__MOUNT_DRIVE_RESPONSE__INIT;

    message.device = proto_borrow_text(answer->device);
    message.size = answer->bytes;
    message.filesystem_size = answer->filesystem_bytes;
    message.entries_changed = answer->walk.changed;
    message.entries_skipped = answer->walk.skipped;
    message.entries_failed = answer->walk.failed;
    message.fsck = (Crust__Guest__V1__MountDriveResponse__FsckResult)answer->fsck;
    message.was_mounted = answer->was_mounted;
    message.containers = answer->containers;
    message.container_error = proto_borrow_text(answer->container_error);
    return proto_append(payload, &message.base);
}

int drive_parse_mount_answer(const void *payload, size_t length,
                             struct drive_mount_answer *ret_answer)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    struct drive_mount_answer answer = {0};
    int r = proto_unpack(&crust__guest__v1__mount_drive_response__descriptor, payload, length,
                         &unpacked);
    const MountResponse *message = (const void *)unpacked;

    if (r < 0)
        return r;
    if (!copy_text(&message->device, answer.device, sizeof(answer.device)) ||
        !copy_text(&message->container_error, answer.container_error,
                   sizeof(answer.container_error)) ||
        (unsigned)message->fsck > DRIVE_FSCK_REPAIRED)
        return -EBADMSG;
    answer.bytes = message->size;
    answer.filesystem_bytes = message->filesystem_size;
    answer.walk = (struct drive_walk_count){message->entries_changed, message->entries_skipped,
                                            message->entries_failed};
    answer.fsck = (enum drive_fsck_result)message->fsck;
    answer.was_mounted = message->was_mounted;
    answer.containers = message->containers;
    *ret_answer = answer;
    return 0;
}

int drive_append_unmount_request(struct buffer *payload,
                                 const struct drive_unmount_request *request)
{
    UnmountRequest message = CRUST__GUEST__V1__UNMOUNT_DRIVE_REQUEST__INIT;
    Container containers[DRIVE_CONTAINERS], *pointers[DRIVE_CONTAINERS];

    if (request->containers.count > DRIVE_CONTAINERS)
        return -EMSGSIZE;
    fill_containers(&request->containers, containers, pointers);
    message.n_containers = request->containers.count;
    message.containers = pointers;
    message.drive_id = proto_borrow_text(request->drive_id);
    message.serial = proto_borrow_text(request->serial);
    message.timeout_ms = request->timeout_ms;
    return proto_append(payload, &message.base);
}

int drive_parse_unmount_request(const void *payload, size_t length,
                                struct drive_unmount_request *ret_request, const char **ret_wrong)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    struct drive_unmount_request request = {0};
    int r = proto_unpack(&crust__guest__v1__unmount_drive_request__descriptor, payload, length,
                         &unpacked);
    const UnmountRequest *message = (const void *)unpacked;

    if (r < 0)
        return r;
    *ret_wrong = NULL;
    if (!copy_id(&message->drive_id, request.drive_id))
        *ret_wrong = "drive_id";
    else if (!copy_serial(&message->serial, request.serial))
        *ret_wrong = "serial";
    else if (!take_containers(message->containers, message->n_containers, &request.containers))
        *ret_wrong = "containers";
    if (*ret_wrong)
        return -EINVAL;
    request.timeout_ms = message->timeout_ms;
    *ret_request = request;
    return 0;
}

int drive_append_unmount_answer(struct buffer *payload, const struct drive_unmount_answer *answer)
{
    UnmountResponse message = CRUST__GUEST__V1__UNMOUNT_DRIVE_RESPONSE__INIT;

    message.was_mounted = answer->was_mounted;
    message.disk_removed = answer->disk_removed;
    return proto_append(payload, &message.base);
}

int drive_parse_unmount_answer(const void *payload, size_t length,
                               struct drive_unmount_answer *ret_answer)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&crust__guest__v1__unmount_drive_response__descriptor, payload, length,
                         &unpacked);
    const UnmountResponse *message = (const void *)unpacked;

    if (r < 0)
        return r;
    *ret_answer = (struct drive_unmount_answer){message->was_mounted, message->disk_removed};
    return 0;
}

static void fill_entry(GuestDrive *message, const struct drive_guest_entry *entry)
{
    crust__guest__v1__guest_drive__init(message);
    message->serial = proto_borrow_text(entry->serial);
    message->drive_id = proto_borrow_text(entry->drive_id);
    message->state = (Crust__Guest__V1__GuestDrive__State)entry->state;
    message->device = proto_borrow_text(entry->device);
    message->size = entry->bytes;
    message->read_only = entry->read_only;
    message->vm_path = proto_borrow_text(entry->vm_path);
    message->filesystem_type = proto_borrow_text(entry->filesystem_type);
    message->entries_changed = entry->walk.changed;
    message->entries_skipped = entry->walk.skipped;
    message->entries_failed = entry->walk.failed;
}

int drive_append_list_request(struct buffer *payload, bool without_disks)
{
    ListRequest message = CRUST__GUEST__V1__LIST_DRIVES_REQUEST__INIT;

    message.without_disks = without_disks;
    return proto_append(payload, &message.base);
}

int drive_parse_list_request(const void *payload, size_t length, bool *ret_without_disks)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&crust__guest__v1__list_drives_request__descriptor, payload, length,
                         &unpacked);

    if (r == 0)
        *ret_without_disks = ((const ListRequest *)(const void *)unpacked)->without_disks;
    return r;
}

enum {
    ENVELOPE_BYTES = 1024, /* the frame and everything except the drives */
    TAG_BYTES = 8,         /* before each drive: its field and its length */
};

int drive_append_list(struct buffer *payload, const struct drive_guest_list *list)
{
    ListResponse message = CRUST__GUEST__V1__LIST_DRIVES_RESPONSE__INIT;
    cleanup(freep) GuestDrive *drives = calloc(list->count + 1, sizeof(*drives));
    cleanup(freep) GuestDrive **pointers = calloc(list->count + 1, sizeof(GuestDrive *));
    size_t length = ENVELOPE_BYTES;

    if (!drives || !pointers)
        return -ENOMEM;
    message.drives = pointers;
    message.incomplete = list->incomplete;
    for (size_t i = 0; i < list->count && i < DRIVE_LIST; i++) {
        fill_entry(&drives[i], &list->entries[i]);
        length += protobuf_c_message_get_packed_size(&drives[i].base) + TAG_BYTES;
        if (length > AGENT_REPLY_BYTES)
            break;
        pointers[message.n_drives++] = &drives[i];
    }
    message.incomplete = list->incomplete || message.n_drives < list->count;
    return proto_append(payload, &message.base);
}

static bool take_entry(const GuestDrive *message, struct drive_guest_entry *entry)
{
    if (!copy_serial(&message->serial, entry->serial) ||
        (message->drive_id.len && !copy_id(&message->drive_id, entry->drive_id)) ||
        (unsigned)message->state > DRIVE_GUEST_UNMOUNTING ||
        !copy_text(&message->device, entry->device, sizeof(entry->device)) ||
        !copy_text(&message->vm_path, entry->vm_path, sizeof(entry->vm_path)) ||
        !copy_text(&message->filesystem_type, entry->filesystem_type,
                   sizeof(entry->filesystem_type)))
        return false;
    entry->state = (enum drive_guest_state)message->state;
    entry->bytes = message->size;
    entry->read_only = message->read_only;
    entry->walk = (struct drive_walk_count){message->entries_changed, message->entries_skipped,
                                            message->entries_failed};
    return true;
}

int drive_parse_list(const void *payload, size_t length, struct drive_guest_list *ret_list)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    cleanup(freep) struct drive_guest_entry *entries = NULL;
    int r = proto_unpack(&crust__guest__v1__list_drives_response__descriptor, payload, length,
                         &unpacked);
    const ListResponse *message = (const void *)unpacked;

    if (r < 0)
        return r;
    if (message->n_drives > DRIVE_LIST)
        return -EBADMSG;
    entries = calloc(message->n_drives + 1, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    for (size_t i = 0; i < message->n_drives; i++) {
        if (!take_entry(message->drives[i], &entries[i]))
            return -EBADMSG;
    }
    *ret_list =
        (struct drive_guest_list){message->n_drives, take_pointer(&entries), message->incomplete};
    return 0;
}

void drive_guest_list_done(struct drive_guest_list *list)
{
    free(list->entries);
    *list = (struct drive_guest_list){0};
}
