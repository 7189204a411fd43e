/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - what the APIs (api/) may ask of the core.
 *
 * All of it is called from the loop, outside the reconcile pass. Nothing here acts on a VMM
 * or a guest: a command queues what to observe again, and the next pass does the rest. A volume's
 * metadata is put in place and taken away at once; that it lasts is answered later.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"

struct reconciler;
struct store_reader;

/* The audit views, through the daemon's own connection. */
struct store_reader *reconciler_reader(struct reconciler *reconciler);

/* The findings of doctor/doctor.h about this node, examined anew for each answer. 0 or -errno with
 * a text. */
int reconciler_examine(struct reconciler *reconciler, struct buffer *ret_json, struct error *error);

/* The findings of an examination that is made when the first scan is done, after a reload, and
 * every hour. */
enum { RECONCILER_CHECKS = 64, RECONCILER_CHECK_BYTES = 32 };
struct reconciler_findings {
    unsigned errors, warnings;
    char worst[256]; /* the first error, or else the first warning: "WHERE: WHAT"; "": there
                        is none */
    unsigned checks; /* those that found anything but ok */
    struct {
        char check[RECONCILER_CHECK_BYTES];
        char level[8]; /* note, warning, error */
        unsigned findings;
    } check[RECONCILER_CHECKS];
};
const struct reconciler_findings *reconciler_get_findings(const struct reconciler *reconciler);

/* Observes everything again; volumes that wait for a change may try at once. */
void reconciler_resync(struct reconciler *reconciler);

struct reconciler_source {
    const char *name; /* inotify, uevent, mounts, process */
    bool up;
    uint64_t events;
    uint64_t overflows;
};

enum { RECONCILER_SOURCES_MAX = 8 };

struct reconciler_health {
    bool synced;   /* the first scan is done */
    bool degraded; /* one of the members below shows a problem, and `problem` names it */
    char problem[256];
    bool database_fails;
    bool in_memory;            /* the database's file is left behind meanwhile */
    char cleanup_problem[400]; /* why nothing stale is removed now; "": nothing is wrong */
    unsigned acts_in_flight;
    uint64_t longest_pass_ns, longest_pass_processor_ns; /* of the loop: lib/loop.h */
    uint64_t journal_printed, journal_dropped;           /* lines of log.journal */
    uint64_t events_sent, events_merged, events_refused, events_dropped; /* kubernetes.events */
    unsigned sources;
    struct reconciler_source source[RECONCILER_SOURCES_MAX];
};

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health);

/* What the configuration lets crustd do, in the configuration's own words. */
struct reconciler_modes {
    const char *resize;  /* resize.mode */
    const char *cleanup; /* cleanup.mode */
    bool per_volume;     /* metrics.per_volume */
};

void reconciler_get_modes(const struct reconciler *reconciler, struct reconciler_modes *ret_modes);

/* ---- the node's capabilities ---- */

enum { RECONCILER_NAMES = 32 };
struct reconciler_names {
    unsigned count;
    char name[RECONCILER_NAMES][64];
};

/* CRUST's names of what works here: crust.capabilities, "auto" being what an examination finds.
 * 0 or -errno with a text. */
int reconciler_find_capabilities(struct reconciler *reconciler, struct reconciler_names *ret_names,
                                 struct error *error);
/* The file systems that guests of this node mount: crust.file_systems, or with "auto" those of
 * every Kata guest and those that a guest here has mounted. 0 or -errno of the store. */
int reconciler_find_file_systems(struct reconciler *reconciler, struct reconciler_names *ret_names);

/* ---- stale metadata ---------------------------------------------------------------------- */

/* What looks stale and what becomes of it, as a JSON array: decision is kept, removing, or with
 * dry_run would_remove; reason and evidence are as in audit_cleanups. Without dry_run a person has
 * confirmed what breaker and rate hold back; evidence still counts. Done at once. STATUS_OK,
 * _FAILED_PRECONDITION, _UNAVAILABLE. */
enum status_code reconciler_gc(struct reconciler *reconciler, bool dry_run, int64_t volume_id,
                               struct buffer *ret_json, struct error *error);

/* Puts back what a cleanup removed, byte for byte. It then stays until it changes. When this
 * returns STATUS_OK it is on disk. _NOT_FOUND, _FAILED_PRECONDITION (nothing to put back),
 * _ALREADY_EXISTS (something newer is in its place), _UNAVAILABLE. */
enum status_code reconciler_restore(struct reconciler *reconciler, int64_t cleanup_id,
                                    struct error *error);

/* ---- for CSI drivers --------------------------------------------------------------------- */

/* The metadata of one volume; texts are UTF-8. */
struct reconciler_stage {
    const char *target_path; /* where the volume would be published */
    const char *device;
    const char *fs_type;
    unsigned options;
    const char *const *option;
    const char *group;        /* fsGroup, a number; NULL none */
    const char *group_policy; /* "Always", "OnRootMismatch"; NULL unsaid */
    const char *sandbox_id;   /* recorded beside it, as the runtime would; NULL not known yet */
};

struct staging;

/* STATUS_OK: it is on disk, in the store too; otherwise error says why not. */
typedef void reconciler_staged(void *userdata, enum status_code code, const struct error *error);

/* Puts it in place, by crust.stage_layout; takes it away, in every layout. Both may be repeated.
 * STATUS_OK: exactly one `done` follows, from the loop, never from within; the staging is gone with
 * it. Otherwise error says why not. */
enum status_code reconciler_stage(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, reconciler_staged *done,
                                  void *userdata, struct staging **ret_staging,
                                  struct error *error);
enum status_code reconciler_unstage(struct reconciler *reconciler, const char *target_path,
                                    reconciler_staged *done, void *userdata,
                                    struct staging **ret_staging, struct error *error);
/* The client is gone; what was done stays, and is recorded. Returns NULL. */
struct staging *reconciler_stage_cancel(struct staging *staging);

/* A volume by its number, where that is not 0; by its path, where that is not NULL; or as the one
 * in this sandbox (NULL: in any, then it must be one alone) that is on this device of the host. */
struct reconciler_target {
    int64_t volume_id;
    const char *target_path;
    const char *sandbox_id, *device;
};

struct reconciler_expand {
    struct reconciler_target target;
    uint64_t required_bytes, limit_bytes; /* 0: any */
};

struct expansion;

/* With STATUS_OK: the device's size, to which the guest has grown the file system; or, while no
 * sandbox has the volume yet, will grow it. */
struct reconciler_capacity {
    uint64_t bytes;
    bool is_owed; /* the database says that the guest's file system is yet to grow */
};
typedef void reconciler_expanded(void *userdata, enum status_code code,
                                 const struct reconciler_capacity *capacity,
                                 const struct error *error);

/* Has the volume's resize tried at once, and waits for the result. STATUS_OK: exactly one `done`
 * follows, from the loop, never from within; the expansion is gone with it. Otherwise error says
 * why not. */
enum status_code reconciler_expand(struct reconciler *reconciler,
                                   const struct reconciler_expand *asked, reconciler_expanded *done,
                                   void *userdata, struct expansion **ret_expansion,
                                   struct error *error);
/* The client is gone; the resize goes on. Returns NULL. */
struct expansion *reconciler_expand_cancel(struct expansion *expansion);

/* Usage and condition of the guest's file system. */
struct reconciler_stats {
    bool has_bytes, has_inodes;
    uint64_t total, used, available;
    uint64_t total_inodes, used_inodes, available_inodes;
    bool abnormal; /* blocked or shrunk, or the guest says so */
    char condition[640];
};

struct stats_call;

/* stats: with STATUS_OK. */
typedef void reconciler_stats_done(void *userdata, enum status_code code,
                                   const struct reconciler_stats *stats, const struct error *error);

/* Asks the guest, by the first route that answers. As reconciler_expand(). */
enum status_code reconciler_ask_stats(struct reconciler *reconciler,
                                      const struct reconciler_target *target,
                                      reconciler_stats_done *done, void *userdata,
                                      struct stats_call **ret_call, struct error *error);
struct stats_call *reconciler_stats_cancel(struct stats_call *call); /* returns NULL */
