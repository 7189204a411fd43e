/* states.h - every state of a volume with every reason it can have, once.
 *
 * explain must have a text for each, and `wait --for` takes no other.
 */
#pragma once

#include <stdbool.h>

#define HYPERVISOR_REASONS(X, state)                                                               \
    X(state, "monitor_missing")                                                                    \
    X(state, "hypervisor_busy")                                                                    \
    X(state, "hypervisor_unreachable")                                                             \
    X(state, "hypervisor_unsupported")                                                             \
    X(state, "hypervisor_version")                                                                 \
    X(state, "hypervisor_refused")                                                                 \
    X(state, "drive_not_found")                                                                    \
    X(state, "read_only")

#define VOLUME_STATE_REASONS(X)                                                                    \
    X("unmanaged", "none")                                                                         \
    X("unmanaged", "invalid_mount_info")                                                           \
    X("unmanaged", "policy")                                                                       \
    X("unmanaged", "not_a_block_device")                                                           \
    X("unmanaged", "read_only")                                                                    \
    X("unbound", "none")                                                                           \
    X("detached", "none")                                                                          \
    X("blocked", "no_device")                                                                      \
    X("blocked", "multiple_sandboxes")                                                             \
    X("blocked", "device_shared")                                                                  \
    X("blocked", "host_in_use")                                                                    \
    X("blocked", "identity_mismatch")                                                              \
    X("blocked", "entries_disagree")                                                               \
    X("blocked", "bypassed")                                                                       \
    HYPERVISOR_REASONS(X, "blocked")                                                               \
    X("shrunk", "none")                                                                            \
    X("unknown", "none")                                                                           \
    X("unknown", "policy")                                                                         \
    HYPERVISOR_REASONS(X, "unknown")                                                               \
    X("host_grown", "none")                                                                        \
    X("host_grown", "policy")                                                                      \
    X("block_grown", "none")                                                                       \
    X("block_grown", "agent_unreachable")                                                          \
    X("block_grown", "agent_unsupported")                                                          \
    X("block_grown", "agent_denied")                                                               \
    X("block_grown", "agent_failed")                                                               \
    X("block_grown", "agent_policy_denied")                                                        \
    X("block_grown", "helper_no_share")                                                            \
    X("block_grown", "helper_missing")                                                             \
    X("block_grown", "helper_wrong_architecture")                                                  \
    X("block_grown", "helper_no_cgroups")                                                          \
    X("block_grown", "helper_failed")                                                              \
    X("block_grown", "file_system_not_growable")                                                   \
    X("block_grown", "guest_path_unknown")                                                         \
    X("block_grown", "guest_layer_unsupported")                                                    \
    X("in_sync", "none")                                                                           \
    X("in_sync", "unverified")                                                                     \
    X("in_sync", "host_stale")                                                                     \
    X("in_sync", "host_layer_pending")

struct state_reason {
    const char *state;
    const char *reason;
};

/* Ends with a row of NULLs. */
extern const struct state_reason state_reasons[];

/* "STATE" or "STATE/REASON". */
bool states_is_selector(const char *selector);
bool states_match(const char *selector, const char *state, const char *reason);
