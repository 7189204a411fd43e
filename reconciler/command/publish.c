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

#include "config/config.h"
#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/sha256.h"
#include "observe/claims.h"
#include "reconciler/command/staging.h"
#include "reconciler/core/node_paths.h"
#include "reconciler/core/work_queue.h"

#define VM_DIRECTORY "/run/crust/volumes"

enum { NAME_CHARS = 32 };

/* What follows from a target path: 128 bits of its hash name it. */
struct names {
    char drive_id[sizeof("pub-") + NAME_CHARS];
    char vm_path[sizeof(VM_DIRECTORY "/") + NAME_CHARS];
};

static struct names make_names(const char *target_path)
{
    char hash[SHA256_HEX_BYTES];
    struct names names;

    sha256_hex(target_path, strlen(target_path), hash);
    (void)snprintf(names.drive_id, sizeof(names.drive_id), "pub-%.*s", NAME_CHARS, hash);
    (void)snprintf(names.vm_path, sizeof(names.vm_path), VM_DIRECTORY "/%.*s", NAME_CHARS, hash);
    return names;
}

void publish_drive_id(const char *target_path, char ret_id[static DRIVE_ID_CHARS + 1])
{
    const struct names names = make_names(target_path);

    _Static_assert(sizeof(names.drive_id) <= DRIVE_ID_CHARS + 1, "as long as an id may be");
    memcpy(ret_id, names.drive_id, sizeof(names.drive_id));
}

/* ---- which way ---- */

static int note_state(void *userdata, const struct reconciler_drive *drive)
{
    *(bool *)userdata = !drive_state_is_end(drive->state);
    return 0;
}

/* Whether the volume is published as a drive now; OK, or why that is not known. */
static enum status_code find_drive(struct clients *clients, const char *target_path,
                                   bool *ret_is_drive, struct error *error)
{
    const struct clients_options *options = &clients->options;
    const struct names names = make_names(target_path);
    struct error why = {0};
    bool is_there = false;
    enum status_code code =
        options->core->get_drive(options->userdata, names.drive_id, note_state, &is_there, &why);

    *ret_is_drive = is_there;
    if (code == STATUS_OK || code == STATUS_NOT_FOUND)
        return STATUS_OK;
    *error = why;
    return code;
}

static int has_metadata(struct clients *clients, const char *target_path, bool *ret_answer)
{
    struct store_volume volume = {0};
    int64_t volume_id = 0;
    int r = store_find_volume(clients->context->store, target_path, &volume_id);

    *ret_answer = false;
    if (r < 0 || !volume_id)
        return r;
    r = store_get_volume(clients->context->store, volume_id, &volume);
    *ret_answer = r == 0 && volume.status == STORE_PRESENT;
    return r < 0 ? r : 0;
}

enum status_code publish_must_detach(struct clients *clients, const char *target_path,
                                     bool *ret_must, struct error *error)
{
    bool is_drive = false, has_its_own = false;
    enum status_code code = find_drive(clients, target_path, &is_drive, error);

    *ret_must = is_drive;
    if (code != STATUS_OK || is_drive || !clients->context->config->drives.enabled)
        return code;
    if (has_metadata(clients, target_path, &has_its_own) < 0)
        return answer_refuse(error, ANSWER_DATABASE, "the database fails: %s",
                             store_error_text(clients->context->store));
    *ret_must = !has_its_own;
    return STATUS_OK;
}

static enum status_code find_containers(struct clients *clients, const char *sandbox_id,
                                        bool *ret_has_some, struct error *error)
{
    struct observe_sandbox_paths paths;
    const char *bundles[CONFIG_LIST_ITEMS];
    unsigned count = 0;
    int r;

    node_sandbox_paths(clients->context, bundles, &paths);
    r = claims_count_containers(&paths, sandbox_id, &count);
    if (r == OBSERVED_UNFINISHED) {
        work_queue_add_sandbox(clients->options.context->queue, sandbox_id);
        return answer_refuse(error, ANSWER_BUSY, "the containers of sandbox %s are being read",
                             sandbox_id);
    }
    if (r < 0)
        return answer_refuse(error, ANSWER_BUSY, "the containers of sandbox %s can't be read: %s",
                             sandbox_id, strerror(-r));
    *ret_has_some = r == OBSERVED && count > 0;
    return STATUS_OK;
}

enum status_code publish_find_way(struct clients *clients, const struct reconciler_stage *stage,
                                  bool *ret_is_drive, struct error *error)
{
    bool is_staged = false;
    enum status_code code;

    *ret_is_drive = false;
    if (!stage->sandbox_id || !clients->context->config->drives.enabled)
        return STATUS_OK;
    code = find_drive(clients, stage->target_path, ret_is_drive, error);
    if (code != STATUS_OK || *ret_is_drive)
        return code;
    if (has_metadata(clients, stage->target_path, &is_staged) < 0)
        return answer_refuse(error, ANSWER_DATABASE, "the database fails: %s",
                             store_error_text(clients->context->store));
    return is_staged ? STATUS_OK : find_containers(clients, stage->sandbox_id, ret_is_drive, error);
}

/* ---- in ---- */

static void on_attached(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                        const struct error *error)
{
    struct staging *staging = userdata;

    (void)drive;
    staging->wait = NULL;
    if (staging->done)
        staging->done(staging->userdata, code, error);
    free(staging);
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

static void take_group(const struct reconciler_stage *stage, struct reconciler_drive_attach *attach)
{
    if (!stage->group || !attach->writable)
        return; /* the kubelet changes no file of a read-only volume either */
    attach->has_fs_group = true;
    attach->fs_group = (uint32_t)strtoul(stage->group, NULL, 10);
    if (stage->group_policy)
        attach->fs_group_policy = drive_group_policy_from_name(stage->group_policy);
}

enum status_code publish_attach(struct clients *clients, const struct reconciler_stage *stage,
                                reconciler_staged *done, void *userdata,
                                struct staging **ret_staging, struct error *error)
{
    const struct clients_options *options = &clients->options;
    const struct names names = make_names(stage->target_path);
    const char *option[DRIVE_OPTIONS + 1];
    struct reconciler_drive_attach attach = {.drive_id = names.drive_id,
                                             .sandbox_id = stage->sandbox_id,
                                             .host_path = stage->device,
                                             .vm_path = names.vm_path,
                                             .fs_type = stage->fs_type,
                                             .option = option,
                                             .writable = !stage_request_is_read_only(stage)};
    struct doctor_abilities abilities = {0};
    struct staging *staging = NULL;
    enum status_code code;

    if (stage_request_has_label(stage) &&
        examine_abilities(clients->context, &abilities, error) < 0)
        return answer_code(ANSWER_DATABASE);
    attach.options = take_options(stage, abilities.enforces_labels, option);
    take_group(stage, &attach);
    code = staging_begin(clients, stage->target_path, false, &staging, error);
    if (code != STATUS_OK)
        return code;
    staging->done = done;
    staging->userdata = userdata;
    code = options->core->attach_drive(options->userdata, &attach, on_attached, staging,
                                       &staging->wait, error);
    if (code == STATUS_OK)
        *ret_staging = staging;
    else
        free(staging);
    return code;
}

/* ---- out ---- */

static void on_detached(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                        const struct error *error)
{
    struct staging *staging = userdata;
    reconciler_staged *done = staging->done;
    void *done_userdata = staging->userdata;
    struct error why = {0};

    (void)drive;
    staging->wait = NULL;
    if (code != STATUS_OK) {
        why = *error;
        free(staging);
    } else {
        code = unstage_go_on(staging, &why);
        if (code == STATUS_OK)
            return;
    }
    if (done)
        done(done_userdata, code, &why);
}

enum status_code publish_detach(struct staging *staging, struct error *error)
{
    const struct clients_options *options = &staging->clients->options;
    const struct names names = make_names(staging->target_path);
    enum status_code code = options->core->detach_drive(
        options->userdata, names.drive_id, on_detached, staging, &staging->wait, error);

    if (code != STATUS_OK)
        free(staging);
    return code;
}

struct staging *publish_cancel(struct staging *staging)
{
    staging->wait = staging->clients->options.core->cancel_drive(staging->wait);
    free(staging);
    return NULL;
}
