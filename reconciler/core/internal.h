/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - the reconciler's own memory: only what a row can't hold. Private to reconciler/. */
#pragma once

#include <dirent.h>

#include "model/reason.h"
#include "reconciler/cleanup/cleanup.h"
#include "reconciler/cleanup/monitors.h"
#include "reconciler/core/context.h"
#include "reconciler/core/fallback.h"
#include "reconciler/core/hidden.h"
#include "reconciler/core/marks.h"
#include "reconciler/core/reconciler.h"
#include "store/store.h"

struct actor;
struct clients;
struct helpers;
struct stats_poll;
struct decision;
struct instance;
struct retry;
struct observe_sandbox_paths;
struct observed_device;
struct observed_mounts;

struct reconciler {
    struct context context; /* for modules that have a state of their own */
    struct loop *loop;
    struct store *store;
    struct instance *instance;
    struct fallback fallback;
    struct config config;
    int root;
    int sysfs;
    const struct reconciler_senses *senses;
    void (*on_synced)(void *userdata);
    void (*settled)(void *userdata);
    void *userdata;

    /* What to look at again. */
    struct marks directories[TREES]; /* names */
    struct marks sandboxes;          /* ids */
    struct marks exits;              /* "pid id": VMMs that ended before our eyes */
    struct marks devices;            /* major << 32 | minor */
    struct marks announced;          /* the same: disks that say they grew */
    struct marks announced_taken;    /* of these, what this turn has looked at */
    struct marks volumes;            /* volume ids */
    bool all_volumes;
    bool scan_wanted[TREES];
    DIR *scan[TREES];             /* a scan under way */
    struct retry *retries[TREES]; /* by name */
    struct hidden hidden;
    struct cleanup cleanup;
    struct monitors monitors;

    struct observed_mounts *mounts; /* NULL: read it before it is next needed */
    struct observe_cache *cache;
    unsigned bundles;
    char *bundle[RECONCILER_BUNDLES]; /* directories of bundles, below root */

    struct actor *actor;
    struct helpers *helpers;

    struct clients *clients;
    struct stats_poll *stats_poll;

    struct loop_prepare turn;
    struct loop_timer again;   /* marks are left for another turn */
    struct loop_timer attempt; /* the next volume's next attempt */
    struct loop_timer sweep;
    struct loop_timer idle;
    struct loop_timer trim;
    uint64_t attempts_marked_ns; /* volumes whose attempts were due until then have been marked */

    /* Until something is heard of any device: the first scan has just looked at every volume's, and
     * the first decisions need not look again. */
    bool devices_are_fresh;
    bool synced; /* the first scan is complete; nothing is acted on before */
    bool stopping;
    bool too_many;                  /* directories beyond STORE_VOLUMES were passed over */
    bool passed_over;               /* in this scan, or since the last one */
    char problem[ERROR_TEXT_BYTES]; /* why turns fail; "" */
    unsigned failed_turns;          /* in a row */
};

/* scan.c: which directories there are. */
void scan_some(struct reconciler *reconciler);
bool scan_is_done(const struct reconciler *reconciler);
/* A tree that is being read has it, and will mark it or has done so. */
bool scan_comes_to(const struct reconciler *reconciler, const char *sandbox_id);
void scan_done(struct reconciler *reconciler);

/* look.c: one thing of the world into the store; touched volumes are marked. 0 or -errno of the
 * store, which ends the turn. */
int look_at_entry(struct reconciler *reconciler, enum reconciler_tree tree, const char *name);
int look_at_sandbox(struct reconciler *reconciler, const char *sandbox_id);
int look_at_bundle(struct reconciler *reconciler, enum reconciler_tree tree, const char *name);
int look_at_device(struct reconciler *reconciler, uint32_t major, uint32_t minor);
const char *look_path(const struct reconciler *reconciler, enum reconciler_tree tree);
/* Where a layout's directories stand, and where those go that are removed. */
enum reconciler_tree look_tree_of(enum volume_layout layout);
enum volume_layout look_layout_of(enum reconciler_tree tree);
const char *look_trash_path(const struct reconciler *reconciler, enum volume_layout layout);
int mark_volume(void *userdata, int64_t volume_id); /* a store_volume_callback */
/* bundles: room for what the paths borrow. */
void look_sandbox_paths(const struct reconciler *reconciler, const char *bundles[CONFIG_LIST_ITEMS],
                        struct observe_sandbox_paths *ret_paths);

/* retry.c: look again soon at what was caught in mid-write. false: it has been looked at often
 * enough, believe it. */
bool retry_later(struct reconciler *reconciler, enum reconciler_tree tree, const char *name);
void retry_forget(struct reconciler *reconciler, enum reconciler_tree tree, const char *name);
bool retries_are_done(const struct reconciler *reconciler); /* none waits */
void retries_done(struct reconciler *reconciler);

/* volume.c: one volume observed, bound, decided; or only its device looked at, so that all devices
 * are known before the first volume is decided. */
int look_at_volume_device(struct reconciler *reconciler, int64_t volume_id);
int reconcile_volume(struct reconciler *reconciler, int64_t volume_id);

/* volume.c: where the host has mounted the device, or what stands on it; NULL nowhere. */
const char *volume_host_use(struct reconciler *reconciler, uint32_t major, uint32_t minor);

/* reconciler.c: in the next pass, its device too. */
void reconciler_look_at_volume(struct reconciler *reconciler, int64_t volume_id);

/* commands.c: what the client calls need of the core. */
struct clients_core;
extern const struct clients_core core_for_clients;

/* beneath.c: what the volume's device stands on; the volume is read again if that changed. */
int look_beneath(struct reconciler *reconciler, struct store_volume *volume,
                 const struct observed_device *device);
int look_at_announced(struct reconciler *reconciler, uint64_t number);
void announcements_commit(struct reconciler *reconciler);
void announcements_roll_back(struct reconciler *reconciler);

int mark_neighbours(struct reconciler *reconciler, const struct store_volume *volume);

/* evidence_text.c: what shows that the volume is blocked, or what of it was not seen. */
int note_evidence(struct reconciler *reconciler, const struct store_volume *volume,
                  const struct decision *decision);

/* resizable.c: whether a growth would reach the volume's file system, by the facts that it was
 * decided on. */
struct decide_facts;
int note_resizable(struct reconciler *reconciler, const struct store_volume *volume,
                   const struct decide_facts *growth);

/* binding.c: opens, describes or closes the volume's mapping, and reads the volume again. */
int bind_volume(struct reconciler *reconciler, struct store_volume *volume, bool *ret_mismatch);
