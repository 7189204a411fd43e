/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - history, line by line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/bounds.h"

/* A line of history. ids 0/NULL where it is about nothing in particular (a volume brings its own
 * sandbox and device); detail is JSON or NULL. The store itself writes these kinds:
 *
 *   store_opened                                            boot_id, rebuilt, in_memory
 *   history_missing                                         since, reason
 *   volume_added, volume_changed, volume_invalid, volume_removed   target_path, layout, key,
 * problem device_seen, device_grown, device_shrunk                from_bytes, to_bytes
 *   path_learned                                            target_path, key, source
 *   device_announced                                        bytes: it says that it grew from this
 *   device_found, device_missing                            where a volume's path leads
 *   sandbox_alive, sandbox_changed, sandbox_gone            vmm_pid, control_socket, agent_address
 *   mapping_opened, mapping_described, mapping_closed       source, drive_id, guest_path
 *   state_changed                                           from, to: "state/reason"
 *   resizable_changed                                       from, to: "yes", "no/reason"
 *   resize_opened, resize_raised, resize_finished           from_bytes, to_bytes, state
 *   query_hypervisor_intended, resize_hypervisor_intended, grow_guest_intended   bytes
 *   rescan_disk_intended, disk_rescanned                    from_bytes, to_bytes, error
 *   hypervisor_answered, guest_answered                     bytes, reason, error
 *   guest_condition_changed                                 from, to, message
 *   helper_intended, helper_removed                         name
 * and the reconciler:
 *   volume_staged, volume_unstaged                          layout
 *   volume_returned                                         from the trash
 *   runtime_cli_intended           command, program, required_bytes, limit_bytes
 *   runtime_cli_answered           command, capacity_bytes, total_bytes, used_bytes, error
 *   cleanup_kept, cleanup_intended, cleanup_removed, cleanup_put-back, cleanup_failed,
 *   cleanup_dropped, cleanup_restored, cleanup_expired      cleanup_id, key, reason
 */
int store_journal(struct store *store, const char *kind, int64_t volume_id, const char *sandbox_id,
                  const char *device, const char *detail);

/* ---- event rows ----------------------------------------------------------------------------- */

/* The journal's rows that Kubernetes is told of, with the objects they are about.
 *
 * Outside a transaction only, so that every row is committed.
 */

struct store;

/* Texts are borrowed while the callback runs, and "" where unknown. */
struct store_event_row {
    int64_t seq, at; /* at: milliseconds since 1970 */
    const char *kind;
    const char *to;      /* "state/reason", the guest's condition, or the state at a resize's end */
    const char *message; /* the guest's own words */
    const char *cause;   /* why metadata was removed */
    const char *pv;
    const char *claim_namespace, *claim_name; /* if the driver wrote them into mountInfo.json */
    const char *pod_namespace, *pod_name; /* of the sandbox that has the volume, or had it last */
    const char *pod_uid;                  /* from the volume path */
    const char *target_path;
    bool is_current;  /* the volume is still as `to` says */
    bool is_stalled;  /* so is it now */
    bool is_repeated; /* it came to be as `to` says before, in this sandbox and at this size */
    int64_t from_bytes, to_bytes; /* of its newest resize; 0: unknown */
};

typedef void store_event_callback(void *userdata, const struct store_event_row *row);

/* Calls it for each such row from *seq + 1 to *seq + most, and moves *seq. 0 or an enum
 * store_failure. */
int store_each_event_row(struct store *store, int64_t *seq, int64_t newest, unsigned most,
                         store_event_callback *callback, void *userdata);
