/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - history, line by line. */
#pragma once

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
