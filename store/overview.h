/* SPDX-License-Identifier: Apache-2.0 */
/* overview.h - the node in numbers and in short lists, for metrics and the status page.
 *
 * Answers are short however many volumes there are: volumes are counted in SQL, and the caller
 * bounds the rows of lists. Texts are borrowed for the time of the callback and never NULL; what is
 * unknown is "" or 0.
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

struct store_volume_line {
    int64_t volume_id;
    const char *name; /* the PV's, or else the path, or else the key */
    const char *path;
    const char *device;
    const char *pod, *claim; /* "namespace/name" */
    const char *hypervisor;  /* of the sandbox that has it */
    const char *state, *reason;
    const char *error; /* why its last resize failed, or what is wrong with its metadata */
    uint64_t device_bytes, hypervisor_bytes, guest_bytes;
    int64_t since_ms, next_attempt_ms;
    bool stalled;
    bool abnormal;             /* as the guest says */
    const char *guest_words;   /* the guest's about it */
    const char *not_resizable; /* why it is not, where it should be (V_IS_NOT_RESIZABLE) */
};

typedef int store_volume_line_callback(void *userdata, const struct store_volume_line *line);

/* At most `most` live volumes: stalled ones first, then others that need attention and those that a
 * resize would not reach, then those with a resize under way, then the rest. */
int store_list_volumes(struct store_reader *reader, unsigned most,
                       store_volume_line_callback *callback, void *userdata, struct error *error);

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

struct store_resize_line {
    int64_t volume_id;
    const char *name;
    const char *device;
    const char *state, *reason;
    const char *error;
    uint64_t from_bytes, to_bytes;
    int64_t detected_ms, hypervisor_ms, guest_ms, finished_ms; /* 0: not yet */
    bool stalled;                                              /* its volume is, now */
};

typedef int store_resize_line_callback(void *userdata, const struct store_resize_line *line);

/* The newest resizes first. */
int store_list_resizes(struct store_reader *reader, unsigned most,
                       store_resize_line_callback *callback, void *userdata, struct error *error);
