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
#include "lib/result.h"
#include "store/failure.h"

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

/* "volumes", … or -EINVAL. */
int store_view_from_name(const char *name, enum store_view *ret_view);
const char *store_view_name(enum store_view view);

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

/* Live sandboxes and what each turned out to be able to do: `[{"sandbox_id","boot_id","runtime",
 * "hypervisor","vmm_version","control_socket","pod_namespace","pod_name","companion_ability",
 * "agent_ability","shim_ability","helper_ability","volumes":N,"attached":N,"hypervisor_reasons",
 * "guest_reasons","volume_names","not_resizable":N,"resizable_unknown":N,"not_resizable_names",
 * "pod_path"}, …]`. Abilities are "able", a reason, or null while nobody has answered; the reasons
 * are those for which the last calls for its volumes failed, or null; volume_names are PV names or
 * ids, as many as are shown; pod_path lies in the kubelet's directory of the pod, which is named by
 * its uid, or is null. */
int store_read_abilities(struct store_reader *reader, struct buffer *ret_json, struct error *error);
