/* SPDX-License-Identifier: Apache-2.0 */
/* reason.h - why a volume is in its state, or why a resize would not reach its file system: each
 * reason with its explanation, remedies and status code. */
#pragma once

#include <stdbool.h>

#include "lib/result.h"
#include "model/volume.h"

enum volume_reason {
    REASON_NONE,
    REASON_INVALID_MOUNT_INFO,
    REASON_UNSTAGED,
    REASON_POLICY,
    REASON_NOT_A_BLOCK_DEVICE,
    REASON_BUNDLE_UNREADABLE,
    REASON_NO_DEVICE,
    REASON_MULTIPLE_SANDBOXES,
    REASON_DEVICE_SHARED,
    REASON_HOST_IN_USE,
    REASON_IDENTITY_MISMATCH,
    REASON_ENTRIES_DISAGREE,
    REASON_BYPASSED,
    REASON_SANDBOX_ORPHANED,
    REASON_RESIZE_UNDONE,
    /* The hypervisor's. */
    REASON_MONITOR_MISSING,
    REASON_HYPERVISOR_BUSY,
    REASON_VM_PAUSED,
    REASON_HYPERVISOR_UNREACHABLE,
    REASON_HYPERVISOR_UNSUPPORTED,
    REASON_HYPERVISOR_VERSION,
    REASON_HYPERVISOR_REFUSED,
    REASON_DRIVE_NOT_FOUND,
    /* The guest's, of the routes into it; the first and the last are named below. read_only is the
     * hypervisor's, too. */
    REASON_READ_ONLY,
    REASON_FILE_SYSTEM_SHUT_DOWN,
    REASON_AGENT_UNREACHABLE,
    REASON_AGENT_UNSUPPORTED,
    REASON_AGENT_DENIED,
    REASON_AGENT_FAILED,
    REASON_FILE_SYSTEM_LIMIT,
    REASON_GROWING,
    REASON_AGENT_POLICY_DENIED,
    REASON_HELPER_NO_SHARE,
    REASON_HELPER_MISSING,
    REASON_HELPER_WRONG_ARCHITECTURE,
    REASON_HELPER_NO_CGROUPS,
    REASON_HELPER_FAILED,
    REASON_FILE_SYSTEM_NOT_GROWABLE,
    REASON_GUEST_PATH_UNKNOWN,
    REASON_GUEST_LAYER_UNSUPPORTED,
    /* Remarks on a volume that is in sync. */
    REASON_UNVERIFIED,
    REASON_HOST_STALE,
    REASON_HOST_LAYER_PENDING,
    /* These only say whether a volume is resizable. */
    REASON_SHRUNK,
    REASON_DETACHED,
    REASON_DRIVES_NOT_READ,
    REASON_GUEST_NOT_ASKED,
    REASONS,

    REASON_OF_GUEST_FIRST = REASON_READ_ONLY,
    REASON_OF_GUEST_LAST = REASON_GUEST_LAYER_UNSUPPORTED,
};

const char *reason_name(enum volume_reason reason);

/* "" and unknown names are REASON_NONE. */
enum volume_reason reason_from_name(const char *name);

/* Whether time alone may heal it. The others wait for something to change: another monitor, another
 * agent, a further resize, an operator. A read-only mount in the guest (block_grown) may be
 * remounted; a drive or a volume that is read-only stays so. */
bool reason_heals(enum volume_reason reason, enum volume_state state);

/* The status of a call that fails for this reason; never STATUS_OK. */
enum status_code reason_code(enum volume_reason reason, enum volume_state state);

/* Whether a volume in this state can have the reason. */
bool reason_is_of(enum volume_reason reason, enum volume_state state);

/* What the reason means in that state. NULL: there is none, or the state does not have it. */
const struct explanation *reason_explain(enum volume_reason reason, enum volume_state state);

/* Why a resize would not reach a volume's file system, or why that is not known: resizable_reason
 * in audit_volumes. The state's own explanation if that says it. NULL: there is no obstacle. */
const struct explanation *reason_explain_resizable(enum volume_reason reason);
