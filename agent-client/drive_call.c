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

/* Whether each component of an absolute path is a name. */
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

static bool is_container_id(const char *id)
{
    size_t length = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

    return length > 0 && !id[length] && strcmp(id, ".") != 0 && strcmp(id, "..") != 0;
}

/* ---- fields ----
 *
 * A function for each message goes over its fields, and passes them from the structure to the
 * message or back.
 */

struct pass {
    bool packs;        /* from the structure to the message */
    const char *wrong; /* the first malformed field, or list that is too long */
    /* What a message borrows for its lists. */
    ProtobufCBinaryData options[DRIVE_OPTIONS];
    Container containers[DRIVE_CONTAINERS], *pointers[DRIVE_CONTAINERS];
};

#define PASS(pass, field, member)                                                                  \
    do {                                                                                           \
        if ((pass)->packs)                                                                         \
            (field) = (typeof(field))(member);                                                     \
        else                                                                                       \
            (member) = (typeof(member))(field);                                                    \
    } while (0)

static void need(struct pass *pass, bool is_right, const char *field)
{
    if (!is_right && !pass->packs && !pass->wrong)
        pass->wrong = field;
}

static size_t pass_count(struct pass *pass, const char *name, size_t *field, size_t *count,
                         size_t most)
{
    PASS(pass, *field, *count);
    if (*count <= most)
        return *count;
    if (!pass->wrong)
        pass->wrong = name;
    return 0;
}

/* The text has to fit with its NUL, to contain no other, and to be UTF-8. */
static void pass_text(struct pass *pass, const char *name, ProtobufCBinaryData *field, char *text,
                      size_t size, bool (*is_valid)(const char *text))
{
    const char *from = field->len ? (const char *)field->data : "";

    if (pass->packs) {
        *field = proto_borrow_text(text);
    } else if (field->len < size && !memchr(from, '\0', field->len) &&
               text_is_utf8(from, field->len)) {
        memcpy(text, from, field->len);
        text[field->len] = '\0';
        need(pass, !is_valid || is_valid(text), name);
    } else {
        need(pass, false, name);
    }
}

#define PASS_TEXT(pass, message, name, text, is_valid)                                             \
    pass_text(pass, #name, &(message)->name, text, sizeof(text), is_valid)

static void pass_container(struct pass *pass, Container *message, struct drive_container *one)
{
    char whole[DRIVE_PATH_CHARS + 2] = "/"; /* with the sub_path: empty, or names alone */

    PASS_TEXT(pass, message, container_id, one->container_id, is_container_id);
    PASS_TEXT(pass, message, path, one->path, path_is_clean);
    need(pass, one->path[0] == '/' && one->path[1], "path");
    PASS_TEXT(pass, message, sub_path, one->sub_path, NULL);
    need(pass, !one->sub_path[0] || path_is_clean(strcat(whole, one->sub_path)), "sub_path");
    PASS(pass, message->read_only, one->read_only);
}

static void pass_containers(struct pass *pass, size_t *field, Container ***messages,
                            struct drive_containers *containers)
{
    const char *wrong = pass->wrong;
    size_t count = pass_count(pass, "containers", field, &containers->count, DRIVE_CONTAINERS);

    for (size_t i = 0; i < count; i++) {
        if (pass->packs) {
            crust__guest__v1__container__init(&pass->containers[i]);
            pass->pointers[i] = &pass->containers[i];
            *messages = pass->pointers;
        }
        pass_container(pass, (*messages)[i], &containers->each[i]);
    }
    if (!wrong && pass->wrong)
        pass->wrong = "containers";
}

static void pass_walk(struct pass *pass, uint64_t *changed, uint64_t *skipped, uint64_t *failed,
                      struct drive_walk_count *walk)
{
    PASS(pass, *changed, walk->changed);
    PASS(pass, *skipped, walk->skipped);
    PASS(pass, *failed, walk->failed);
}

static bool is_some(const char *text)
{
    return text[0];
}

static void pass_mount_request(struct pass *pass, void *to, void *structure)
{
    Crust__Guest__V1__MountDriveRequest *message = to;
    struct drive_mount_request *request = structure;
    size_t count;

    PASS_TEXT(pass, message, drive_id, request->drive_id, drive_id_is_valid);
    PASS_TEXT(pass, message, serial, request->serial, drive_serial_is_valid);
    PASS(pass, message->size, request->bytes);
    need(pass, request->bytes, "size");
    PASS(pass, message->read_only, request->read_only);
    PASS_TEXT(pass, message, vm_path, request->vm_path, is_path);
    PASS_TEXT(pass, message, filesystem_type, request->filesystem_type, is_some);
    if (pass->packs)
        message->options = pass->options;
    count = pass_count(pass, "options", &message->n_options, &request->option_count, DRIVE_OPTIONS);
    for (size_t i = 0; i < count; i++)
        pass_text(pass, "options", &message->options[i], request->options[i], DRIVE_OPTION_BYTES,
                  is_some);
    PASS(pass, message->fsck, request->fsck);
    need(pass, (unsigned)request->fsck <= DRIVE_FSCK_PREEN, "fsck");
    PASS(pass, message->has_fs_group, request->has_fs_group);
    PASS(pass, message->fs_group, request->fs_group);
    /* chown(2) takes the last number for "no group". */
    need(pass, !request->has_fs_group || request->fs_group != UINT32_MAX, "fs_group");
    PASS(pass, message->fs_group_change_policy, request->fs_group_policy);
    need(pass, (unsigned)request->fs_group_policy <= DRIVE_GROUP_ON_ROOT_MISMATCH,
         "fs_group_change_policy");
    PASS(pass, message->timeout_ms, request->timeout_ms);
    pass_containers(pass, &message->n_containers, &message->containers, &request->containers);
}

static void pass_mount_answer(struct pass *pass, void *to, void *structure)
{
    Crust__Guest__V1__MountDriveResponse *message = to;
    struct drive_mount_answer *answer = structure;

    PASS_TEXT(pass, message, device, answer->device, NULL);
    PASS(pass, message->size, answer->bytes);
    PASS(pass, message->filesystem_size, answer->filesystem_bytes);
    pass_walk(pass, &message->entries_changed, &message->entries_skipped, &message->entries_failed,
              &answer->walk);
    PASS(pass, message->fsck, answer->fsck);
    need(pass, (unsigned)answer->fsck <= DRIVE_FSCK_REPAIRED, "fsck");
    PASS(pass, message->was_mounted, answer->was_mounted);
    PASS(pass, message->containers, answer->containers);
    PASS_TEXT(pass, message, container_error, answer->container_error, NULL);
}

static void pass_unmount_request(struct pass *pass, void *to, void *structure)
{
    Crust__Guest__V1__UnmountDriveRequest *message = to;
    struct drive_unmount_request *request = structure;

    PASS_TEXT(pass, message, drive_id, request->drive_id, drive_id_is_valid);
    PASS_TEXT(pass, message, serial, request->serial, drive_serial_is_valid);
    PASS(pass, message->timeout_ms, request->timeout_ms);
    pass_containers(pass, &message->n_containers, &message->containers, &request->containers);
}

static void pass_unmount_answer(struct pass *pass, void *to, void *structure)
{
    Crust__Guest__V1__UnmountDriveResponse *message = to;
    struct drive_unmount_answer *answer = structure;

    PASS(pass, message->was_mounted, answer->was_mounted);
    PASS(pass, message->disk_removed, answer->disk_removed);
}

static void pass_list_request(struct pass *pass, void *to, void *structure)
{
    Crust__Guest__V1__ListDrivesRequest *message = to;
    bool *without_disks = structure;

    PASS(pass, message->without_disks, *without_disks);
}

static void pass_entry(struct pass *pass, GuestDrive *message, struct drive_guest_entry *entry)
{
    PASS_TEXT(pass, message, serial, entry->serial, drive_serial_is_valid);
    PASS_TEXT(pass, message, drive_id, entry->drive_id, NULL);
    need(pass, !entry->drive_id[0] || drive_id_is_valid(entry->drive_id), "drive_id");
    PASS(pass, message->state, entry->state);
    need(pass, (unsigned)entry->state <= DRIVE_GUEST_UNMOUNTING, "state");
    PASS_TEXT(pass, message, device, entry->device, NULL);
    PASS(pass, message->size, entry->bytes);
    PASS(pass, message->read_only, entry->read_only);
    PASS_TEXT(pass, message, vm_path, entry->vm_path, NULL);
    PASS_TEXT(pass, message, filesystem_type, entry->filesystem_type, NULL);
    pass_walk(pass, &message->entries_changed, &message->entries_skipped, &message->entries_failed,
              &entry->walk);
}

/* ---- messages ---- */

static const struct {
    const ProtobufCMessageDescriptor *type;
    void (*pass_fields)(struct pass *pass, void *message, void *structure);
    size_t size; /* of the structure */
} messages[] = {
    [DRIVE_MOUNT_REQUEST] = {&crust__guest__v1__mount_drive_request__descriptor, pass_mount_request,
                             sizeof(struct drive_mount_request)},
    [DRIVE_MOUNT_ANSWER] = {&crust__guest__v1__mount_drive_response__descriptor, pass_mount_answer,
                            sizeof(struct drive_mount_answer)},
    [DRIVE_UNMOUNT_REQUEST] = {&crust__guest__v1__unmount_drive_request__descriptor,
                               pass_unmount_request, sizeof(struct drive_unmount_request)},
    [DRIVE_UNMOUNT_ANSWER] = {&crust__guest__v1__unmount_drive_response__descriptor,
                              pass_unmount_answer, sizeof(struct drive_unmount_answer)},
    [DRIVE_LIST_REQUEST] = {&crust__guest__v1__list_drives_request__descriptor, pass_list_request,
                            sizeof(bool)},
};

int drive_append(struct buffer *payload, enum drive_message which, const void *structure)
{
    union {
        ProtobufCMessage base;
        Crust__Guest__V1__MountDriveRequest mount;
        Crust__Guest__V1__MountDriveResponse mounted;
        Crust__Guest__V1__UnmountDriveRequest unmount;
        Crust__Guest__V1__UnmountDriveResponse unmounted;
        Crust__Guest__V1__ListDrivesRequest list;
    } message;
    struct pass pass = {.packs = true};

    protobuf_c_message_init(messages[which].type, &message);
    messages[which].pass_fields(&pass, &message, (void *)(uintptr_t)structure);
    return pass.wrong ? -EMSGSIZE : proto_append(payload, &message.base);
}

int drive_parse(const void *payload, size_t length, enum drive_message which, void *ret_structure,
                const char **ret_wrong)
{
    cleanup(proto_freep) ProtobufCMessage *message = NULL;
    struct pass pass = {.packs = false};
    int r = proto_unpack(messages[which].type, payload, length, &message);

    if (r < 0)
        return r;
    memset(ret_structure, 0, messages[which].size);
    messages[which].pass_fields(&pass, message, ret_structure);
    if (ret_wrong)
        *ret_wrong = pass.wrong;
    return pass.wrong ? -EINVAL : 0;
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
    struct pass pass = {.packs = true};
    size_t length = ENVELOPE_BYTES;

    if (!drives || !pointers)
        return -ENOMEM;
    message.drives = pointers;
    for (size_t i = 0; i < list->count && i < DRIVE_LIST; i++) {
        crust__guest__v1__guest_drive__init(&drives[i]);
        pass_entry(&pass, &drives[i], &list->entries[i]);
        length += protobuf_c_message_get_packed_size(&drives[i].base) + TAG_BYTES;
        if (length > AGENT_REPLY_BYTES)
            break;
        pointers[message.n_drives++] = &drives[i];
    }
    message.incomplete = list->incomplete || message.n_drives < list->count;
    return proto_append(payload, &message.base);
}

int drive_parse_list(const void *payload, size_t length, struct drive_guest_list *ret_list)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    cleanup(freep) struct drive_guest_entry *entries = NULL;
    struct pass pass = {.packs = false};
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
    for (size_t i = 0; i < message->n_drives; i++)
        pass_entry(&pass, message->drives[i], &entries[i]);
    if (pass.wrong)
        return -EBADMSG;
    *ret_list =
        (struct drive_guest_list){message->n_drives, take_pointer(&entries), message->incomplete};
    return 0;
}

void drive_guest_list_done(struct drive_guest_list *list)
{
    free(list->entries);
    *list = (struct drive_guest_list){0};
}
