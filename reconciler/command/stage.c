/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - writes and removes a volume's metadata for a CSI driver.
 *
 * The request is checked and the directory is put in place as a whole. Then the call waits, so that
 * one commit and one sync serve all calls that wait together. One iteration of the loop later the
 * kernel's events about these directories have arrived as well, so each is read only once: the pass
 * reads it with the reader that also reads other writers' metadata, and adds a line to the journal.
 * After the commit the watched roots and the database's log are synced, and only then the calls are
 * answered. So a reply means that the runtime will find the volume and that an auditor will find
 * who asked for it. If crustd is killed anywhere before, nothing is left half done: the directory
 * is there or not, the next scan finds it, and the driver repeats its call.
 *
 * For the same reason no intent is written first, which would need a second flush: only crustd can
 * finish a removal that it decided itself, but here the driver repeats its call.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/encode.h"
#include "lib/log.h"
#include "lib/path.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/drive/drives.h"

/* As many calls may wait as clients can have in progress, so that the bound only stops calls whose
 * client gave up. */
enum { TEXT_BYTES = 32 * 1024, WAITING = 2048, PER_PASS = 64 };

/* The possible places of a volume's directory: first the one where a runtime expects it, then those
 * that a driver may have written itself. */
static const struct spot {
    enum volume_layout layout;
    bool is_hashed; /* its name is a SHA-256 */
} spots[SPOTS] = {
    {LAYOUT_KATA, false},
    {LAYOUT_CRUST, true},
    {LAYOUT_KATA, true},
    {LAYOUT_CRUST, false},
};

/* The working directory stands beside the trash, which is on the volumes' file system for the same
 * reason. */
static struct stage_place find_place(const struct reconciler *reconciler, enum volume_layout layout)
{
    const char *trash = node_trash_path(reconciler->context.config, layout);
    struct stage_place place = {
        .root = reconciler->context.root,
        .volumes = node_volumes_path(reconciler->context.config, layout),
    };

    (void)snprintf(place.staging_dir, sizeof(place.staging_dir), "%.*s/.crust-stage",
                   (int)(strrchr(trash, '/') - trash), trash);
    return place;
}

static void make_key(const struct spot *spot, const char *target_path,
                     char ret_key[static STORE_KEY_BYTES])
{
    if (spot->is_hashed)
        sha256_hex(target_path, strlen(target_path), ret_key);
    else
        base64url_encode(target_path, strlen(target_path), ret_key);
}

/* ---- a call begins ---- */

/* A stage and an unstage of one volume in one pass could both be answered with success, so a call
 * is refused while the opposite one waits. */
static enum status_code begin(struct reconciler *reconciler, const char *target_path,
                              bool takes_away, reconciler_staged *done, void *userdata,
                              struct staging **ret_staging, struct error *error)
{
    const size_t size = strlen(target_path) + 1;
    unsigned waiting = 0;
    enum status_code code = require_durable(reconciler->context.store, error);
    struct staging *staging;

    if (code != STATUS_OK)
        return code;
    for (const struct staging *one = reconciler->stagings.first; one; one = one->next)
        if (++waiting == WAITING)
            return answer_refuse(error, ANSWER_BUSY, "too many calls wait for the database");
        else if (one->takes_away != takes_away && strcmp(one->target_path, target_path) == 0)
            return answer_refuse(error, ANSWER_BUSY,
                                 "another call for this volume is not done yet");
    staging = calloc(1, sizeof(*staging) + size);
    if (!staging)
        return answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
    staging->reconciler = reconciler;
    staging->takes_away = takes_away;
    staging->done = done;
    staging->userdata = userdata;
    memcpy(staging->target_path, target_path, size);
    *ret_staging = staging;
    return STATUS_OK;
}

static void on_due(struct loop_timer *timer)
{
    container_of(timer, struct stagings, timer)->due = true;
}

/* Takes over the staging: it waits, or it failed and is freed. The watch reports what a failed one
 * left. */
static enum status_code wait_or_end(struct staging *staging, enum status_code code)
{
    struct stagings *waiting = &staging->reconciler->stagings;

    if (code != STATUS_OK) {
        free(staging);
        return code;
    }
    LL_APPEND(waiting->first, staging);
    if (!loop_timer_is_active(&waiting->timer))
        loop_timer_start(staging->reconciler->context.loop, &waiting->timer, 0, on_due);
    return STATUS_OK;
}

/* Puts the content in place, or takes away what is there if there is none. */
static enum status_code act(struct staging *staging, unsigned spot,
                            const struct stage_content *content, struct error *error)
{
    const struct stage_place place = find_place(staging->reconciler, spots[spot].layout);
    char key[STORE_KEY_BYTES];
    struct error why = {0};
    int r;

    make_key(&spots[spot], staging->target_path, key);
    r = content ? stage_files_put(&place, key, content, &why) : stage_files_take(&place, key, &why);
    if (r == STAGE_UNCHANGED && spot >= RUNTIMES_SPOTS)
        return STATUS_OK; /* there hardly ever is one */
    if (r == STAGE_DONE || r == STAGE_UNCHANGED) {
        staging->result[spot] = r == STAGE_DONE ? DONE : UNCHANGED;
        return STATUS_OK;
    }
    *error = why;
    return answer_code(r < 0 ? ANSWER_NOT_STAGED : ANSWER_NAME_TAKEN);
}

static void on_attached(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                        const struct error *error)
{
    struct staging *staging = userdata;

    (void)drive;
    staging->wait = NULL;
    staging->done(staging->userdata, code, error);
    free(staging);
}

/* A label is passed on only where every guest enforces it; elsewhere it is no obstacle and means
 * nothing, as the KEP has it (docs/operations.md). */
enum status_code reconciler_stage(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, reconciler_staged *done,
                                  void *userdata, struct staging **ret_staging, struct error *error)
{
    const enum config_stage_layout layout = reconciler->context.config->crust.stage_layout;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(TEXT_BYTES);
    struct stage_content content = {.beside = stage->sandbox_id};
    struct doctor_abilities abilities = {0};
    struct observed_device device = {0};
    struct staging *staging = NULL;
    bool is_drive = false;
    enum status_code code = stage_request_check(reconciler->context.root, layout, stage, error);

    if (code == STATUS_OK && stage_request_has_label(stage) &&
        examine_abilities(&reconciler->context, &abilities, error) < 0)
        code = answer_code(ANSWER_DATABASE);
    if (code == STATUS_OK && stage_request_write(stage, abilities.enforces_labels, &text) < 0)
        code =
            answer_refuse(error, ANSWER_BAD_REQUEST, "all of it is more than %d bytes", TEXT_BYTES);
    if (code == STATUS_OK)
        code = stage_check(reconciler, stage, &device, error);
    if (code == STATUS_OK)
        code = publish_find_way(reconciler, stage, &is_drive, error);
    if (code == STATUS_OK)
        code = begin(reconciler, stage->target_path, false, done, userdata, &staging, error);
    if (code != STATUS_OK)
        return code;
    *ret_staging = staging;
    if (is_drive) {
        code = publish_attach(reconciler, stage, abilities.enforces_labels, on_attached, staging,
                              &staging->wait, error);
        if (code != STATUS_OK)
            free(staging);
        return code;
    }
    staging->device = device;
    staging->read_only = stage_request_is_read_only(stage);
    if (stage->sandbox_id)
        (void)snprintf(staging->sandbox_id, sizeof(staging->sandbox_id), "%s", stage->sandbox_id);
    content.text = buffer_text(&text);
    content.length = text.length;
    if (layout != STAGE_CRUST)
        code = act(staging, 0, &content, error);
    if (code == STATUS_OK && layout != STAGE_KATA)
        code = act(staging, 1, &content, error);
    return wait_or_end(staging, code);
}

/* The staging waits, or is freed where this fails. */
static enum status_code take_away(struct staging *staging, struct error *error)
{
    const char *target_path = staging->target_path;
    enum status_code code = STATUS_OK;

    (void)store_find_volume(staging->reconciler->context.store, target_path,
                            &staging->known_volume_id);
    for (unsigned i = 0; code == STATUS_OK && i < SPOTS; i++)
        if (spots[i].is_hashed || strlen(target_path) <= BASE64URL_PATH_BYTES)
            code = act(staging, i, NULL, error);
    return wait_or_end(staging, code);
}

static void on_detached(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                        const struct error *error)
{
    struct staging *staging = userdata;
    reconciler_staged *done = staging->done;
    void *done_userdata = staging->userdata;
    struct error why = {0};

    (void)drive;
    staging->wait = NULL;
    if (code == STATUS_OK) {
        code = take_away(staging, &why);
        if (code == STATUS_OK)
            return;
    } else {
        why = *error;
        free(staging);
    }
    done(done_userdata, code, &why);
}

/* Wherever it may be, whatever the configuration says by now. A drive that it was published as goes
 * first. */
enum status_code reconciler_unstage(struct reconciler *reconciler, const char *target_path,
                                    reconciler_staged *done, void *userdata,
                                    struct staging **ret_staging, struct error *error)
{
    char drive_id[DRIVE_ID_CHARS + 1];
    struct staging *staging = NULL;
    bool must_detach = false;
    enum status_code code = check_target_path(target_path, error);

    if (code == STATUS_OK)
        code = publish_must_detach(reconciler, target_path, &must_detach, error);
    if (code == STATUS_OK)
        code = begin(reconciler, target_path, true, done, userdata, &staging, error);
    if (code != STATUS_OK)
        return code;
    *ret_staging = staging;
    if (!must_detach)
        return take_away(staging, error);
    publish_drive_id(target_path, drive_id);
    code =
        reconciler_detach_drive(reconciler, drive_id, on_detached, staging, &staging->wait, error);
    if (code != STATUS_OK)
        free(staging);
    return code;
}

struct staging *reconciler_stage_cancel(struct staging *staging)
{
    if (staging && staging->wait) {
        (void)reconciler_drive_cancel(staging->wait);
        free(staging);
    } else if (staging) {
        staging->done = NULL;
    }
    return NULL;
}

/* ---- in the pass ---- */

/* Reads the directory in its present state, and adds a line to the journal if anything was changed.
 */
static int record_spot(struct staging *staging, unsigned number)
{
    struct reconciler *reconciler = staging->reconciler;
    struct store *store = reconciler->context.store;
    const struct spot *spot = &spots[number];
    const char *kind = staging->takes_away ? "volume_unstaged" : "volume_staged";
    int64_t before = 0, after = 0;
    char key[STORE_KEY_BYTES], detail[64];
    int r = store_find_volume(store, staging->target_path, &before);

    make_key(spot, staging->target_path, key);
    /* It is read within this pass: the event about it brings nothing. */
    work_queue_remove_directory(reconciler->context.queue, tree_of_layout(spot->layout), key);
    (void)snprintf(detail, sizeof(detail), "{\"layout\":\"%s\"}", layout_name(spot->layout));
    if (r == 0)
        r = observer_observe_entry(&reconciler->context, tree_of_layout(spot->layout), key);
    if (r == 0 && spot->is_hashed)
        r = unresolved_offer(&reconciler->context, staging->target_path, "api");
    if (r == 0)
        r = store_find_volume(store, staging->target_path, &after);
    if (!before)
        before = staging->known_volume_id;
    if (r == 0 && staging->result[number] == DONE)
        r = store_journal(store, kind, after ? after : before, NULL, NULL, detail);
    if (r == 0 && after && staging->sandbox_id[0])
        r = store_note_published(store, after, staging->sandbox_id);
    staging->volume_id = after;
    return r;
}

static int judge_staged(struct staging *staging)
{
    const struct reconciler *reconciler = staging->reconciler;
    struct store_volume volume = {.volume_id = staging->volume_id};
    int r;

    if (!staging->volume_id) {
        staging->code =
            scan_is_over_limit(&reconciler->scan)
                ? answer_refuse(&staging->error, ANSWER_TOO_MANY_VOLUMES,
                                "crustd takes no more than %d volumes on a node", STORE_VOLUMES)
                : answer_refuse(&staging->error, ANSWER_NOT_STAGED,
                                "what was staged is gone again");
        return 0;
    }
    r = store_reload_volume(reconciler->context.store, &volume);
    if (r == 0 && volume.status != STORE_PRESENT)
        staging->code = error_set(
            &staging->error, (int)reason_code(REASON_INVALID_MOUNT_INFO, STATE_UNMANAGED),
            "the volume's directory has something in it that does not belong there: see crustctl "
            "volume '#%" PRId64 "'",
            staging->volume_id);
    return r;
}

static int record(struct staging *staging)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < SPOTS; i++)
        if (staging->result[i] != NOT_REQUESTED)
            r = record_spot(staging, i);
    /* From here on the store says who has the device; the waiting call may go. */
    if (r == 0 && !staging->takes_away && staging->volume_id)
        r = devices_refresh_volume(&staging->reconciler->context, staging->volume_id);
    if (r == 0 && !staging->takes_away)
        r = judge_staged(staging);
    staging->recorded = true;
    return r;
}

bool stagings_are_due(const struct reconciler *reconciler)
{
    return reconciler->stagings.due;
}

bool stagings_wait(const struct reconciler *reconciler)
{
    return reconciler->stagings.first != NULL;
}

int stagings_record(struct reconciler *reconciler)
{
    struct stagings *waiting = &reconciler->stagings;
    struct staging *staging = waiting->due ? waiting->first : NULL;
    int r = 0;

    for (unsigned i = 0; r == 0 && staging && i < PER_PASS; i++) {
        r = record(staging);
        staging = staging->next;
    }
    waiting->due = staging != NULL;
    return r;
}

/* ---- and then ---- */

/* The oldest one. */
static void tell(struct reconciler *reconciler)
{
    struct stagings *waiting = &reconciler->stagings;
    struct staging *staging = waiting->first;
    const struct log_ids ids = {.volume = staging->volume_id};

    waiting->first = staging->next;
    for (unsigned i = 0; staging->code == STATUS_OK && !staging->takes_away && i < SPOTS; i++)
        if (staging->result[i] != NOT_REQUESTED)
            log_info(&ids, "staged in layout %s%s", layout_name(spots[i].layout),
                     staging->result[i] == UNCHANGED ? ", unchanged" : "");
    if (staging->done)
        staging->done(staging->userdata, staging->code, &staging->error);
    free(staging);
}

/* The names that were added or removed. */
static void sync_roots(struct reconciler *reconciler)
{
    for (enum volume_layout layout = LAYOUT_KATA; layout <= LAYOUT_CRUST; layout++) {
        const struct stage_place place = find_place(reconciler, layout);
        const int r = stage_files_sync(&place);

        for (struct staging *one = reconciler->stagings.first; r < 0 && one && one->recorded;
             one = one->next)
            for (unsigned i = 0; i < SPOTS; i++)
                if (spots[i].layout == layout && one->result[i] != NOT_REQUESTED &&
                    one->code == STATUS_OK)
                    one->code = answer_refuse(&one->error, ANSWER_NOT_STAGED, "cannot sync %s: %s",
                                              place.volumes, strerror(-r));
    }
}

void stagings_sweep(const struct reconciler *reconciler)
{
    for (enum volume_layout layout = LAYOUT_KATA; layout <= LAYOUT_CRUST; layout++) {
        const struct stage_place place = find_place(reconciler, layout);
        struct error error = {0};

        if (stage_files_sweep(&place, &error) < 0)
            log_warning(NULL, "cannot empty %s: %s", place.staging_dir, error.text);
    }
}

int stagings_answer(struct reconciler *reconciler)
{
    const struct stagings *waiting = &reconciler->stagings;
    bool taken = false;
    int r;

    if (!waiting->first || !waiting->first->recorded)
        return 0;
    sync_roots(reconciler);
    r = store_sync(reconciler->context.store);
    if (r < 0)
        return r;
    while (waiting->first && waiting->first->recorded) {
        taken = taken || waiting->first->takes_away;
        tell(reconciler);
    }
    if (taken)
        stagings_sweep(reconciler);
    return 0;
}

void stagings_fail(struct reconciler *reconciler, const char *why)
{
    struct stagings *waiting = &reconciler->stagings;

    while (waiting->first) {
        waiting->first->code = answer_refuse(&waiting->first->error, ANSWER_DATABASE,
                                             "the database cannot be written: %s", why);
        tell(reconciler);
    }
    waiting->due = false;
}

void stagings_done(struct reconciler *reconciler)
{
    struct stagings *waiting = &reconciler->stagings;
    struct staging *staging, *next;

    loop_timer_stop(&waiting->timer);
    LL_FOREACH_SAFE(waiting->first, staging, next)
    free(staging);
    waiting->first = NULL;
}
