/* SPDX-License-Identifier: Apache-2.0 */
/* read.h - the audit views as JSON: the store's read side, for the HTTP server and crustctl.
 *
 * The views are the contract with auditors; a row becomes an object with the view's columns, in
 * their order, JSON columns embedded as JSON. A reader of its own opens the file read-only and
 * never blocks the daemon; the daemon reads through its own connection, outside its transactions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/result.h"
#include "model/stale_reason.h"
#include "store/bounds.h"

struct store;
struct store_reader;

enum store_view {
    STORE_VIEW_VOLUMES,
    STORE_VIEW_SANDBOXES,
    STORE_VIEW_DEVICES,
    STORE_VIEW_LAYERS,
    STORE_VIEW_MAPPINGS,
    STORE_VIEW_RESIZES,
    STORE_VIEW_CLEANUPS,
    STORE_VIEW_JOURNAL,
    STORE_VIEW_DRIVES,
    STORE_VIEWS,
};

/* "volumes", …; STORE_VIEWS: any other name. */
const char *store_view_name(enum store_view view);
enum store_view store_view_from_name(const char *name);

struct store_query {
    enum store_view view;
    int64_t id;         /* 0, or the value of the view's first column */
    int64_t after;      /* rows whose first column is larger; 0 */
    int64_t last;       /* only the newest N rows (in ascending order); 0: all */
    const char *volume; /* NULL; "#3": the volume_id 3; or a volume path, key, PV name, CSI volume
                           handle or volume_id: all volumes that it may mean, removed ones only if
                           none that is there has the name. In the other views that have a volume_id
                           column, and for its sandbox, a volume_id only. */
    bool live;          /* volumes: not removed; sandboxes: alive; mappings: open;
                           drives: not ended */
    bool not_resizable; /* volumes: those that a resize would not reach and should
                           (V_IS_NOT_RESIZABLE) */
};

/* Opens an existing database read-only. It may be locked for a moment: a daemon that starts reads
 * the log that the last one left. What is asked waits for that this long at most; then, and at once
 * with 0, it fails with STORE_LOCKED. STORE_MISSING if there is none, STORE_FAULT if it is not
 * crustd's. */
int store_reader_open(const char *path, unsigned wait_msec, struct store_reader **ret_reader,
                      struct error *error);
void store_reader_free(struct store_reader *reader);

/* The daemon's own connection as a reader. It lives as long as the store. */
struct store_reader *store_get_reader(struct store *store);

/* Appends `[{…},…]`. -EMSGSIZE past the buffer's limit. */
int store_read_json(struct store_reader *reader, const struct store_query *query,
                    struct buffer *ret_json, struct error *error);

/* Numbers for status, health and the summary of --once: `{"volumes":N,"by_state":{"in_sync":N,…},
 * "blocked":N,"sandboxes_alive":N,"open_resizes":N,…}`. */
int store_read_summary(struct store_reader *reader, struct buffer *ret_json, struct error *error);

/* Live sandboxes and what each turned out to be able to do, as an array of objects (the columns are
 * in read.c). Abilities are "able", a reason, or null while nobody has answered; hypervisor_reasons
 * and guest_reasons are those for which the last calls for its volumes failed, or null;
 * volume_names are PV names or ids, as many as are shown; pod_path lies in the kubelet's directory
 * of the pod, which is named by its uid, or is null. */
int store_read_abilities(struct store_reader *reader, struct buffer *ret_json, struct error *error);

/* ---- counters ------------------------------------------------------------------------------- */

/* What the store has seen happen since it was opened, for metrics.
 *
 * They only grow, and count what was committed. History cannot be counted instead: it is trimmed.
 */

enum store_resize_stage {
    STORE_STAGE_HYPERVISOR, /* from when the resize was seen until the hypervisor had it */
    STORE_STAGE_GUEST,      /* from then until the guest had it */
    STORE_STAGE_TOTAL,
    STORE_STAGES,
};

enum { STORE_COUNTED_RESIZES = 64, STORE_COUNTED_BYTES = 32 };

/* result: "grown"; "blocked", each time that a resize comes to be held up for a reason; "ended",
 * with its volume or its sandbox. */
struct store_counted_resize {
    char result[STORE_COUNTED_BYTES];
    char reason[STORE_COUNTED_BYTES];
    uint64_t count;
};

struct store_counters {
    struct histogram commits;
    struct histogram resizes[STORE_STAGES]; /* that came through */
    unsigned resize_results;
    struct store_counted_resize resize_result[STORE_COUNTED_RESIZES];
    uint64_t cleanups[CLEANUP_DECISIONS];
    uint64_t published; /* volumes whose metadata read well for the first time */
};

/* Of the daemon's own reader; a reader of a file has none: NULL. */
const struct store_counters *store_reader_counters(const struct store_reader *reader);

/* ---- overview ------------------------------------------------------------------------------- */

/* The node in numbers and in short lists, for the metrics.
 *
 * Volumes are counted in SQL, so counts are short however many volumes there are. Texts are
 * borrowed for the time of the callback and never NULL; what is unknown is "" or 0.
 */

enum { STORE_GROUP_NAMES = 3 };

/* One group of equal names. A negative return ends the reading and is handed on. */
typedef int store_group_callback(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                                 uint64_t count);

enum store_group {
    STORE_GROUP_VOLUMES,       /* live ones by layout, state, reason */
    STORE_GROUP_STALLED,       /* V_IS_STALLED, by state, reason */
    STORE_GROUP_NOT_RESIZABLE, /* V_IS_NOT_RESIZABLE, by resizable_reason */
    STORE_GROUP_ABNORMAL,      /* volumes whose guest calls its file system abnormal, by state,
                                  reason and "1" where stalled, else "0" */
    STORE_GROUP_CONDITIONS,    /* bound ones by what their guests say: normal, abnormal, unknown */
    STORE_GROUP_STALE,         /* metadata directories that look stale, by why they are kept */
    STORE_GROUP_SANDBOXES,     /* live ones by runtime, hypervisor */
    STORE_GROUP_ORPHANS,       /* orphaned sandboxes by id, pid, the volumes they have */
    STORE_GROUP_DRIVES,        /* those that have not ended, by state */
    STORE_GROUPS,
};
/* 0 or -errno. */
int store_each_group(struct store_reader *reader, enum store_group group,
                     store_group_callback *callback, void *userdata, struct error *error);

/* Since when the oldest open resize is pending, in ms since 1970; 0: none. The resize of a volume
 * that no sandbox uses waits for the pod, so its time begins with the binding. The resize of a
 * volume that may only be observed never counts. */
int store_oldest_pending(struct store_reader *reader, int64_t *ret_ms, struct error *error);

/* Sizes of one PV: of its device, as its VM has it (the smallest of several), and as its guest last
 * said of its file system. */
struct store_usage_line {
    const char *pv, *kind;
    const char *namespace, *claim;
    const char *pod;               /* "" if several pods use it */
    uint64_t size_bytes, vm_bytes; /* 0 unknown */
    bool has_usage;
    uint64_t used_bytes, available_bytes;
};

typedef int store_usage_line_callback(void *userdata, const struct store_usage_line *line);

/* Every live volume that has a PV's name, once for each name, in the order of the names. */
int store_list_usage(struct store_reader *reader, store_usage_line_callback *callback,
                     void *userdata, struct error *error);
