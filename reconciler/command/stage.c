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
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "doctor/doctor.h"
#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/path.h"
#include "lib/sha256.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/clients_state.h"
#include "reconciler/command/staging.h"
#include "reconciler/core/context.h"
#include "reconciler/core/devices.h"
#include "reconciler/core/node_paths.h"
#include "reconciler/core/trees.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

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

/* ---- where ---- */

struct where {
    char workshop[PATH_MAX];
    struct stage_place place;
};

/* The working directory stands beside the trash, which is on the volumes' file system for the same
 * reason. */
static void find_place(const struct clients *clients, enum volume_layout layout,
                       struct where *ret_where)
{
    const char *trash = node_trash_path(clients->context->config, layout);

    (void)snprintf(ret_where->workshop, sizeof(ret_where->workshop), "%.*s/.crust-stage",
                   (int)(strrchr(trash, '/') - trash), trash);
    ret_where->place = (struct stage_place){
        .root = clients->context->root,
        .volumes = node_volumes_path(clients->context->config, layout),
        .workshop = ret_where->workshop,
    };
}

static void make_key(const struct spot *spot, const char *target_path,
                     char ret_key[static STORE_KEY_BYTES])
{
    if (spot->is_hashed)
        sha256_hex(target_path, strlen(target_path), ret_key);
    else
        base64url_encode(target_path, strlen(target_path), ret_key);
}

/* A path that is too long for a name in base64 has no directory by that name. */
static bool can_be_named(const struct spot *spot, const char *target_path)
{
    return spot->is_hashed || strlen(target_path) <= BASE64URL_PATH_BYTES;
}

/* ---- a call begins ---- */

/* A stage and an unstage of one volume in one pass could both be answered with success. */
static bool has_opposite(const struct stagings *waiting, const char *target_path, bool takes_away)
{
    for (const struct staging *one = waiting->first; one; one = one->next)
        if (one->takes_away != takes_away && strcmp(one->target_path, target_path) == 0)
            return true;
    return false;
}

enum status_code staging_begin(struct clients *clients, const char *target_path, bool takes_away,
                               struct staging **ret_staging, struct error *error)
{
    const struct stagings *waiting = &clients->stagings;
    enum status_code code = promise_check(clients->context->store, error);
    struct staging *staging;

    if (code != STATUS_OK)
        return code;
    if (waiting->count >= WAITING)
        return answer_refuse(error, ANSWER_BUSY, "too many calls wait for the database");
    if (has_opposite(waiting, target_path, takes_away))
        return answer_refuse(error, ANSWER_BUSY, "another call for this volume is not done yet");
    staging = calloc(1, sizeof(*staging) + strlen(target_path) + 1);
    if (!staging)
        return answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
    staging->clients = clients;
    staging->takes_away = takes_away;
    memcpy(staging->target_path, target_path, strlen(target_path) + 1);
    *ret_staging = staging;
    return STATUS_OK;
}

static void on_due(struct loop_timer *timer)
{
    container_of(timer, struct stagings, timer)->due = true;
}

/* Takes over the staging: it waits, or it failed and is freed. The watch reports what a failed one
 * left. */
static enum status_code wait_or_end(struct staging *staging, enum status_code code,
                                    reconciler_staged *done, void *userdata,
                                    struct staging **ret_staging)
{
    struct clients *clients = staging->clients;
    struct stagings *waiting = &clients->stagings;

    if (code != STATUS_OK) {
        free(staging);
        return code;
    }
    staging->done = done;
    staging->userdata = userdata;
    *(waiting->first ? &waiting->last->next : &waiting->first) = staging;
    waiting->last = staging;
    waiting->count++;
    if (!loop_timer_is_active(&waiting->timer))
        loop_timer_start(clients->context->loop, &waiting->timer, 0, on_due);
    *ret_staging = staging;
    return STATUS_OK;
}

static enum status_code act(struct staging *staging, unsigned spot,
                            const struct stage_content *content, struct error *error)
{
    char key[STORE_KEY_BYTES];
    struct where where;
    struct error why = {0};
    int r;

    find_place(staging->clients, spots[spot].layout, &where);
    make_key(&spots[spot], staging->target_path, key);
    r = content ? stage_files_put(&where.place, key, content, &why)
                : stage_files_take(&where.place, key, &why);
    if (r == STAGE_UNCHANGED && spot >= RUNTIMES_SPOTS)
        return STATUS_OK; /* there hardly ever is one */
    if (r == STAGE_DONE || r == STAGE_UNCHANGED) {
        staging->deed[spot] = r == STAGE_DONE ? DONE : UNCHANGED;
        return STATUS_OK;
    }
    *error = why;
    return answer_code(r < 0 ? ANSWER_NOT_STAGED : ANSWER_NAME_TAKEN);
}

/* A label is passed on only where every guest enforces it; elsewhere it is no obstacle and means
 * nothing, as the KEP has it (docs/operations.md). */
static enum status_code write_request(struct clients *clients, const struct reconciler_stage *stage,
                                      struct buffer *text, struct error *error)
{
    struct doctor_abilities abilities = {0};

    if (stage_request_has_label(stage) &&
        examine_abilities(clients->context, &abilities, error) < 0)
        return answer_code(ANSWER_DATABASE);
    if (stage_request_write(stage, abilities.enforces_labels, text) < 0)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "all of it is more than %d bytes",
                             TEXT_BYTES);
    return STATUS_OK;
}

enum status_code stage_begin(struct clients *clients, const struct reconciler_stage *stage,
                             reconciler_staged *done, void *userdata, struct staging **ret_staging,
                             struct error *error)
{
    enum config_stage_layout layout = clients->context->config->crust.stage_layout;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(TEXT_BYTES);
    struct stage_content content = {.beside = stage->sandbox_id};
    struct observed_device device = {0};
    struct staging *staging = NULL;
    bool is_drive = false;
    enum status_code code = stage_request_check(clients->context->root, layout, stage, error);

    if (code == STATUS_OK)
        code = write_request(clients, stage, &text, error);
    if (code == STATUS_OK)
        code = stage_check(clients, stage, &device, error);
    if (code == STATUS_OK)
        code = publish_find_way(clients, stage, &is_drive, error);
    if (code == STATUS_OK && is_drive)
        return publish_attach(clients, stage, done, userdata, ret_staging, error);
    if (code == STATUS_OK)
        code = staging_begin(clients, stage->target_path, false, &staging, error);
    if (code != STATUS_OK)
        return code;
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
    return wait_or_end(staging, code, done, userdata, ret_staging);
}

enum status_code unstage_go_on(struct staging *staging, struct error *error)
{
    struct clients *clients = staging->clients;
    enum status_code code = STATUS_OK;
    struct staging *same;

    (void)store_find_volume(clients->context->store, staging->target_path,
                            &staging->known_volume_id);
    for (unsigned i = 0; code == STATUS_OK && i < SPOTS; i++)
        if (can_be_named(&spots[i], staging->target_path))
            code = act(staging, i, NULL, error);
    return wait_or_end(staging, code, staging->done, staging->userdata, &same);
}

/* Wherever it may be, whatever the configuration says by now. A drive that it was published as goes
 * first. */
enum status_code unstage_begin(struct clients *clients, const char *target_path,
                               reconciler_staged *done, void *userdata,
                               struct staging **ret_staging, struct error *error)
{
    struct staging *staging = NULL;
    bool must_detach = false;
    enum status_code code = check_target_path(target_path, error);

    if (code == STATUS_OK)
        code = publish_must_detach(clients, target_path, &must_detach, error);
    if (code == STATUS_OK)
        code = staging_begin(clients, target_path, true, &staging, error);
    if (code != STATUS_OK)
        return code;
    staging->done = done;
    staging->userdata = userdata;
    code = must_detach ? publish_detach(staging, error) : unstage_go_on(staging, error);
    if (code == STATUS_OK)
        *ret_staging = staging;
    return code;
}

struct staging *reconciler_stage_cancel(struct staging *staging)
{
    if (staging && staging->wait)
        return publish_cancel(staging);
    if (staging)
        staging->done = NULL;
    return NULL;
}

/* ---- in the pass ---- */

/* Reads the directory in its present state, and adds a line to the journal if anything was changed.
 */
static int record_spot(struct staging *staging, unsigned number)
{
    struct clients *clients = staging->clients;
    struct store *store = clients->context->store;
    const struct spot *spot = &spots[number];
    const char *kind = staging->takes_away ? "volume_unstaged" : "volume_staged";
    int64_t before = 0, after = 0;
    char key[STORE_KEY_BYTES], detail[64];
    int r = store_find_volume(store, staging->target_path, &before);

    make_key(spot, staging->target_path, key);
    /* It is read within this pass: the event about it brings nothing. */
    work_queue_remove_directory(clients->options.context->queue, tree_of_layout(spot->layout), key);
    (void)snprintf(detail, sizeof(detail), "{\"layout\":\"%s\"}", layout_name(spot->layout));
    if (r == 0)
        r = clients->options.core->observe_entry(clients->options.userdata, spot->layout, key);
    if (r == 0 && spot->is_hashed)
        r = clients->options.core->resolve_path(clients->options.userdata, staging->target_path);
    if (r == 0)
        r = store_find_volume(store, staging->target_path, &after);
    if (!before)
        before = staging->known_volume_id;
    if (r == 0 && staging->deed[number] == DONE)
        r = store_journal(store, kind, after ? after : before, NULL, NULL, detail);
    if (r == 0 && after && staging->sandbox_id[0])
        r = store_note_published(store, after, staging->sandbox_id);
    staging->volume_id = after;
    return r;
}

static int judge_staged(struct staging *staging)
{
    struct store_volume volume;
    int r;

    if (!staging->volume_id &&
        staging->clients->options.core->is_full(staging->clients->options.userdata))
        staging->code =
            answer_refuse(&staging->error, ANSWER_TOO_MANY_VOLUMES,
                          "crustd takes no more than %d volumes on a node", STORE_VOLUMES);
    else if (!staging->volume_id)
        staging->code =
            answer_refuse(&staging->error, ANSWER_NOT_STAGED, "what was staged is gone again");
    if (!staging->volume_id)
        return 0;
    volume.volume_id = staging->volume_id;
    r = store_reload_volume(staging->clients->context->store, &volume);
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
        if (staging->deed[i] != NOTHING_ASKED)
            r = record_spot(staging, i);
    /* From here on the store says who has the device; the waiting call may go. */
    if (r == 0 && !staging->takes_away && staging->volume_id)
        r = devices_refresh_volume(staging->clients->context, staging->volume_id);
    if (r == 0 && !staging->takes_away)
        r = judge_staged(staging);
    staging->recorded = true;
    return r;
}

bool stagings_are_due(const struct clients *clients)
{
    return clients->stagings.due;
}

bool stagings_wait(const struct clients *clients)
{
    return clients->stagings.first != NULL;
}

int stagings_record(struct clients *clients)
{
    struct stagings *waiting = &clients->stagings;
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

static void log_done(const struct staging *staging)
{
    for (unsigned i = 0; i < SPOTS; i++)
        if (staging->deed[i] != NOTHING_ASKED && !staging->takes_away)
            log_info(&(struct log_ids){.volume = staging->volume_id}, "staged in layout %s%s",
                     layout_name(spots[i].layout),
                     staging->deed[i] == UNCHANGED ? ", unchanged" : "");
}

/* The oldest one. */
static void tell(struct clients *clients)
{
    struct stagings *waiting = &clients->stagings;
    struct staging *staging = waiting->first;

    waiting->first = staging->next;
    waiting->count--;
    if (staging->code == STATUS_OK)
        log_done(staging);
    if (staging->done)
        staging->done(staging->userdata, staging->code, &staging->error);
    free(staging);
}

static bool has_used(const struct staging *staging, enum volume_layout layout)
{
    for (unsigned i = 0; i < SPOTS; i++)
        if (spots[i].layout == layout && staging->deed[i] != NOTHING_ASKED)
            return true;
    return false;
}

/* Syncs the roots in which names were added or removed. */
static void sync_root(struct clients *clients, enum volume_layout layout)
{
    struct where where;
    bool used = false;
    int r;

    for (struct staging *one = clients->stagings.first; one && one->recorded; one = one->next)
        used = used || has_used(one, layout);
    if (!used)
        return;
    find_place(clients, layout, &where);
    r = stage_files_sync(&where.place);
    for (struct staging *one = clients->stagings.first; r < 0 && one && one->recorded;
         one = one->next)
        if (has_used(one, layout) && one->code == STATUS_OK)
            one->code = answer_refuse(&one->error, ANSWER_NOT_STAGED, "cannot sync %s: %s",
                                      where.place.volumes, strerror(-r));
}

/* Also removes what a killed daemon left. */
void stagings_sweep(const struct clients *clients)
{
    for (enum volume_layout layout = LAYOUT_KATA; layout <= LAYOUT_CRUST; layout++) {
        struct error error = {0};
        struct where where;

        find_place(clients, layout, &where);
        if (stage_files_sweep(&where.place, &error) < 0)
            log_warning(NULL, "cannot empty %s: %s", where.workshop, error.text);
    }
}

int stagings_answer(struct clients *clients)
{
    const struct stagings *waiting = &clients->stagings;
    bool taken = false;
    int r;

    if (!waiting->first || !waiting->first->recorded)
        return 0;
    sync_root(clients, LAYOUT_KATA);
    sync_root(clients, LAYOUT_CRUST);
    r = store_sync(clients->context->store);
    if (r < 0)
        return r;
    while (waiting->first && waiting->first->recorded) {
        taken = taken || waiting->first->takes_away;
        tell(clients);
    }
    if (taken)
        stagings_sweep(clients);
    return 0;
}

void stagings_fail(struct clients *clients, const char *why)
{
    struct stagings *waiting = &clients->stagings;

    while (waiting->first) {
        waiting->first->code = answer_refuse(&waiting->first->error, ANSWER_DATABASE,
                                             "the database cannot be written: %s", why);
        tell(clients);
    }
    waiting->due = false;
}

void stagings_done(struct clients *clients)
{
    struct stagings *waiting = &clients->stagings;

    loop_timer_stop(&waiting->timer);
    while (waiting->first) {
        struct staging *staging = waiting->first;

        waiting->first = staging->next;
        free(staging);
    }
}
