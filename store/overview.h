/* SPDX-License-Identifier: Apache-2.0 */
/* overview.h - the node in numbers and in short lists, for the metrics.
 *
 * Volumes are counted in SQL, so counts are short however many volumes there are. Texts are
 * borrowed for the time of the callback and never NULL; what is unknown is "" or 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"

struct store_reader;

enum { STORE_GROUP_NAMES = 3 };

/* One group of equal names. A negative return ends the reading and is handed on. */
typedef int store_group_callback(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                                 uint64_t count);

/* Live volumes by layout, state, reason; stalled ones (V_IS_STALLED) by state, reason; live
 * sandboxes by runtime, hypervisor; orphaned ones by id, pid, the volumes that they have. 0 or
 * -errno. */
int store_group_orphans(struct store_reader *reader, store_group_callback *callback, void *userdata,
                        struct error *error);
int store_group_volumes(struct store_reader *reader, store_group_callback *callback, void *userdata,
                        struct error *error);
int store_group_stalled(struct store_reader *reader, store_group_callback *callback, void *userdata,
                        struct error *error);
/* Metadata directories that look stale, by the reason for which they are kept. */
int store_group_stale(struct store_reader *reader, store_group_callback *callback, void *userdata,
                      struct error *error);
/* Volumes that should be resizable and are not (V_IS_NOT_RESIZABLE), by resizable_reason. */
int store_group_not_resizable(struct store_reader *reader, store_group_callback *callback,
                              void *userdata, struct error *error);
/* Volumes whose guest calls its file system abnormal, by state, reason and "1" where stalled, "0"
 * where not; bound volumes by what their guests say: normal, abnormal or unknown. */
int store_group_abnormal(struct store_reader *reader, store_group_callback *callback,
                         void *userdata, struct error *error);
int store_group_conditions(struct store_reader *reader, store_group_callback *callback,
                           void *userdata, struct error *error);
int store_group_sandboxes(struct store_reader *reader, store_group_callback *callback,
                          void *userdata, struct error *error);

/* Drives that have not ended, by state. */
int store_group_drives(struct store_reader *reader, store_group_callback *callback, void *userdata,
                       struct error *error);

/* Since when the oldest open resize is pending, in ms since 1970; 0: none. The resize of a volume
 * that no sandbox uses waits for the pod, so its time begins with the binding. The resize of a
 * volume that may only be observed never counts. */
int store_oldest_pending(struct store_reader *reader, int64_t *ret_ms, struct error *error);

/* Sizes of one PV: of its device, and as its guest last said of its file system. */
struct store_usage_line {
    const char *pv;
    const char *namespace, *claim;
    const char *pod; /* "" if several pods use it */
    uint64_t size_bytes;
    bool has_usage;
    uint64_t used_bytes, available_bytes;
};

typedef int store_usage_line_callback(void *userdata, const struct store_usage_line *line);

/* Every live volume that has a PV's name, once for each name, in the order of the names. */
int store_list_usage(struct store_reader *reader, store_usage_line_callback *callback,
                     void *userdata, struct error *error);
