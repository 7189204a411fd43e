/* SPDX-License-Identifier: Apache-2.0 */
/* ownership.h - a pod's fsGroup applied to a volume, as the kubelet does it.
 *
 * Every entry gets the group, and, unless it is a symbolic link, mode | 0660; directories also
 * | 02110. A directory comes after what is in it and the root last, so a walk that was interrupted
 * is repeated under ON_ROOT_MISMATCH. That policy skips the walk where the root has the group,
 * setgid and 0770.
 *
 * Source: Kubernetes, pkg/volume/volume_linux.go. It differs from the kubelet in three points:
 * an entry that is right already is not touched, because chown(2) takes its file capabilities; a
 * directory that cannot be read does not end the walk; and other file systems are not entered.
 *
 * Nothing is reached by a path that a link could redirect. The names in the tree are the tenant's,
 * and so is its depth: the walk has a bounded number of descriptors, and 24 bytes a level.
 */
#pragma once

#include <sys/types.h>

#include "agent-client/drive_call.h"
#include "lib/result.h"

enum { OWNERSHIP_DEPTH = 131072 }; /* levels of directories; what is deeper fails */

/* directory: the root, O_PATH or not; a mount that is not attached yet is fine. count: set to zero,
 * then kept up to date during the walk, so it may lie in shared memory. OK, also if single entries
 * failed; FAILED_PRECONDITION: the file system is read-only, or directories could not be read or
 * were moved, and the root is unchanged; INTERNAL: the root cannot be read, or memory is short. */
enum status_code ownership_set_group(int directory, gid_t group, enum drive_group_policy policy,
                                     struct drive_walk_count *count, struct error *error);
