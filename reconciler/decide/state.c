/* state.c - names of states and reasons, and which reasons time can heal. */
#include "reconciler/decide/state.h"

#include <string.h>

#include "lib/cleanup.h"

static const char *const state_names[STATES] = {
    [STATE_UNMANAGED] = "unmanaged",   [STATE_UNBOUND] = "unbound",
    [STATE_DETACHED] = "detached",     [STATE_BLOCKED] = "blocked",
    [STATE_SHRUNK] = "shrunk",         [STATE_UNKNOWN] = "unknown",
    [STATE_HOST_GROWN] = "host_grown", [STATE_BLOCK_GROWN] = "block_grown",
    [STATE_IN_SYNC] = "in_sync",
};

static const struct {
    const char *name;
    bool heals;
} reasons[REASONS] = {
    [REASON_NONE] = {"none", true},
    [REASON_INVALID_MOUNT_INFO] = {"invalid_mount_info", false},
    [REASON_POLICY] = {"policy", false},
    [REASON_NOT_A_BLOCK_DEVICE] = {"not_a_block_device", false},
    [REASON_NO_DEVICE] = {"no_device", false},
    [REASON_MULTIPLE_SANDBOXES] = {"multiple_sandboxes", false},
    [REASON_DEVICE_SHARED] = {"device_shared", false},
    [REASON_HOST_IN_USE] = {"host_in_use", false},
    [REASON_IDENTITY_MISMATCH] = {"identity_mismatch", true},
    [REASON_ENTRIES_DISAGREE] = {"entries_disagree", false},
    [REASON_BYPASSED] = {"bypassed", false},
    [REASON_MONITOR_MISSING] = {"monitor_missing", false},
    [REASON_HYPERVISOR_BUSY] = {"hypervisor_busy", true},
    [REASON_HYPERVISOR_UNREACHABLE] = {"hypervisor_unreachable", true},
    [REASON_HYPERVISOR_UNSUPPORTED] = {"hypervisor_unsupported", false},
    [REASON_HYPERVISOR_VERSION] = {"hypervisor_version", false},
    [REASON_HYPERVISOR_REFUSED] = {"hypervisor_refused", true},
    /* The runtime may still be plugging it in. */
    [REASON_DRIVE_NOT_FOUND] = {"drive_not_found", true},
    [REASON_READ_ONLY] = {"read_only", false},
    [REASON_AGENT_UNREACHABLE] = {"agent_unreachable", true},
    [REASON_AGENT_UNSUPPORTED] = {"agent_unsupported", false},
    [REASON_AGENT_DENIED] = {"agent_denied", false},
    [REASON_AGENT_FAILED] = {"agent_failed", true},
    [REASON_AGENT_POLICY_DENIED] = {"agent_policy_denied", false},
    [REASON_HELPER_NO_SHARE] = {"helper_no_share", true},
    [REASON_HELPER_MISSING] = {"helper_missing", true},
    [REASON_HELPER_WRONG_ARCHITECTURE] = {"helper_wrong_architecture", true},
    [REASON_HELPER_NO_CGROUPS] = {"helper_no_cgroups", false},
    [REASON_HELPER_FAILED] = {"helper_failed", true},
    [REASON_FILE_SYSTEM_NOT_GROWABLE] = {"file_system_not_growable", false},
    /* The runtime makes the directory that shows it once the container exists. */
    [REASON_GUEST_PATH_UNKNOWN] = {"guest_path_unknown", true},
    [REASON_GUEST_LAYER_UNSUPPORTED] = {"guest_layer_unsupported", false},
    [REASON_UNVERIFIED] = {"unverified", false},
    [REASON_HOST_STALE] = {"host_stale", false},
    [REASON_HOST_LAYER_PENDING] = {"host_layer_pending", false},
    [REASON_SHRUNK] = {"shrunk", false},
    [REASON_DETACHED] = {"detached", false},
    [REASON_DRIVES_NOT_READ] = {"drives_not_read", false},
    [REASON_GUEST_NOT_ASKED] = {"guest_not_asked", false},
};

const char *state_name(enum volume_state state)
{
    return state_names[state];
}

const char *reason_name(enum volume_reason reason)
{
    return reasons[reason].name;
}

enum volume_reason reason_from_name(const char *name)
{
    for (unsigned i = 0; i < REASONS; i++)
        if (strcmp(reasons[i].name, name) == 0)
            return i;
    return REASON_NONE;
}

bool reason_heals(enum volume_reason reason)
{
    return reasons[reason].heals;
}
