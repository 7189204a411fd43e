/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c - volumes that are published into a sandbox whose containers exist already.
 *
 * Metadata serves containers that are still to be made: the runtime reads it when it makes them. So
 * it is for a sandbox without containers, and for a volume that has metadata already, which is what
 * a kubelet that was restarted asks for again. Otherwise, with drives.enabled = on, the volume
 * becomes a drive: the disk is attached to the VM, mounted in the guest at a path that follows from
 * the target path, and given its group, before the call is answered. To unstage it is the same in
 * reverse. Such a drive is in the store as any other; that this target path has it follows from its
 * id.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/encode.h"
#include "observe/observed_sandbox.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/drive/drives.h"

#define VM_DIRECTORY "/run/crust/volumes"
#define ID_PREFIX    "pub-"

enum { NAME_CHARS = 32 }; /* 128 bits of the path's hash */

void publish_drive_id(const char *target_path, char ret_id[static DRIVE_ID_CHARS + 1])
{
    char hash[SHA256_HEX_BYTES];

    _Static_assert(sizeof(ID_PREFIX) + NAME_CHARS <= DRIVE_ID_CHARS + 1, "as long as an id may be");
    sha256_hex(target_path, strlen(target_path), hash);
    (void)snprintf(ret_id, DRIVE_ID_CHARS + 1, ID_PREFIX "%.*s", NAME_CHARS, hash);
}

static int note_state(void *userdata, const struct reconciler_drive *drive)
{
    *(bool *)userdata = !drive_state_is_end(drive->state);
    return 0;
}

/* Whether the volume is published as a drive now; OK, or why that is not known. */
static enum status_code find_drive(struct reconciler *reconciler, const char *target_path,
                                   bool *ret_is_drive, struct error *error)
{
    char drive_id[DRIVE_ID_CHARS + 1];
    enum status_code code;

    *ret_is_drive = false;
    publish_drive_id(target_path, drive_id);
    code = reconciler_get_drive(reconciler, drive_id, note_state, ret_is_drive, error);
    return code == STATUS_NOT_FOUND ? STATUS_OK : code;
}

static enum status_code find_metadata(struct reconciler *reconciler, const char *target_path,
                                      bool *ret_is_there, struct error *error)
{
    struct store *store = reconciler->context.store;
    struct store_volume volume = {0};
    int64_t volume_id = 0;
    int r = store_find_volume(store, target_path, &volume_id);

    if (r == 0 && volume_id)
        r = store_get_volume(store, volume_id, &volume);
    if (r < 0)
        return answer_database_fails(store, error);
    *ret_is_there = volume_id && r == 0 && volume.status == STORE_PRESENT;
    return STATUS_OK;
}

enum status_code publish_must_detach(struct reconciler *reconciler, const char *target_path,
                                     bool *ret_must, struct error *error)
{
    bool has_metadata = false;
    enum status_code code = find_drive(reconciler, target_path, ret_must, error);

    if (code != STATUS_OK || *ret_must || !reconciler->context.config->drives.enabled)
        return code;
    code = find_metadata(reconciler, target_path, &has_metadata, error);
    *ret_must = code == STATUS_OK && !has_metadata;
    return code;
}

static enum status_code find_containers(struct reconciler *reconciler, const char *sandbox_id,
                                        bool *ret_has_some, struct error *error)
{
    struct observe_sandbox_paths paths;
    struct node_lists lists;
    unsigned count = 0;
    int r;

    node_sandbox_paths(&reconciler->context, &lists, &paths);
    r = claims_count_containers(&paths, sandbox_id, &count);
    if (r == OBSERVED_UNFINISHED) {
        work_queue_add_sandbox(reconciler->context.queue, sandbox_id);
        return answer_refuse(error, ANSWER_BUSY, "the containers of sandbox %s are being read",
                             sandbox_id);
    }
    if (r < 0)
        return answer_refuse(error, ANSWER_BUSY, "the containers of sandbox %s can't be read: %s",
                             sandbox_id, strerror(-r));
    *ret_has_some = r == OBSERVED && count > 0;
    return STATUS_OK;
}

enum status_code publish_find_way(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, bool *ret_is_drive,
                                  struct error *error)
{
    bool is_staged = false;
    enum status_code code;

    *ret_is_drive = false;
    if (!stage->sandbox_id || !reconciler->context.config->drives.enabled)
        return STATUS_OK;
    code = find_drive(reconciler, stage->target_path, ret_is_drive, error);
    if (code == STATUS_OK && !*ret_is_drive)
        code = find_metadata(reconciler, stage->target_path, &is_staged, error);
    return code == STATUS_OK && !*ret_is_drive && !is_staged
               ? find_containers(reconciler, stage->sandbox_id, ret_is_drive, error)
               : code;
}

/* Options of a drive are parameters of the file system and of the mount. That it may be written is
 * said apart, and a bind mount is what the runtime would have made of it. */
static unsigned take_options(const struct reconciler_stage *stage, bool with_labels,
                             const char *ret_option[static DRIVE_OPTIONS + 1])
{
    static const char *const left_out[] = {"ro", "rw", "bind", "rbind", "defaults"};
    unsigned count = 0;

    for (unsigned i = 0; i < stage->options && count <= DRIVE_OPTIONS; i++) {
        bool is_left_out = !with_labels && stage_option_is_label(stage->option[i]);

        for (unsigned j = 0; !is_left_out && j < array_length(left_out); j++)
            is_left_out = strcmp(stage->option[i], left_out[j]) == 0;
        if (!is_left_out)
            ret_option[count++] = stage->option[i];
    }
    return count;
}

enum status_code publish_attach(struct reconciler *reconciler, const struct reconciler_stage *stage,
                                bool with_labels, reconciler_drive_done *done, void *userdata,
                                struct drive_wait **ret_wait, struct error *error)
{
    char drive_id[DRIVE_ID_CHARS + 1], vm_path[sizeof(VM_DIRECTORY "/") + NAME_CHARS];
    const char *option[DRIVE_OPTIONS + 1];
    struct reconciler_drive_attach attach = {.drive_id = drive_id,
                                             .sandbox_id = stage->sandbox_id,
                                             .host_path = stage->device,
                                             .vm_path = vm_path,
                                             .fs_type = stage->fs_type,
                                             .options = take_options(stage, with_labels, option),
                                             .option = option,
                                             .writable = !stage_request_is_read_only(stage)};

    publish_drive_id(stage->target_path, drive_id);
    (void)snprintf(vm_path, sizeof(vm_path), VM_DIRECTORY "/%.*s", NAME_CHARS,
                   drive_id + strlen(ID_PREFIX));
    if (stage->group && attach.writable) { /* the kubelet changes no read-only volume either */
        attach.has_fs_group = true;
        attach.fs_group = (uint32_t)strtoul(stage->group, NULL, 10);
        if (stage->group_policy)
            attach.fs_group_policy = drive_group_policy_from_name(stage->group_policy);
    }
    return reconciler_attach_drive(reconciler, &attach, done, userdata, ret_wait, error);
}
