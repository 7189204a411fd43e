/* SPDX-License-Identifier: Apache-2.0 */
/* volume.c - the names of layouts, policies and kinds of device, as the database has them. */
#include "model/volume.h"

#include "lib/cleanup.h"
#include "lib/text.h"

static const char *const layouts[] = {
    [LAYOUT_KATA] = "kata",
    [LAYOUT_CRUST] = "crust",
    [LAYOUT_NONE] = "none",
};

static const char *const policies[] = {
    [POLICY_GROW] = "grow",
    [POLICY_OBSERVE] = "observe",
    [POLICY_NEVER] = "never",
};

static const char *const device_kinds[] = {
    [DEVICE_KIND_BLOCK] = "block",
    [DEVICE_KIND_FILE] = "file",
    [DEVICE_KIND_OTHER] = "other",
};

WORDS(layout, enum volume_layout, layouts, array_length(layouts), LAYOUT_KATA)
WORDS(device_kind, enum device_kind, device_kinds, array_length(device_kinds), DEVICE_KIND_BLOCK)

enum resize_policy policy_from_name(const char *name)
{
    return name_table_find(policies, sizeof(policies[0]), array_length(policies), name,
                           POLICY_OBSERVE);
}

bool policy_grows_file_system(enum resize_policy policy)
{
    return policy == POLICY_GROW || policy == POLICY_GUEST;
}

/* ---- state ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    struct explanation explanation;
} states[STATES + 1] = {
    [STATE_UNMANAGED] = {"unmanaged",
                         {.meaning = "crustd records this volume and does nothing for it."}},
    [STATE_UNBOUND] = {"unbound",
                       {.meaning = "No live sandbox is known to use the volume: no sandbox-id file "
                                   "and no container's mounts or devices name one. When a VM "
                                   "starts with it, that VM sees the device's size as it is "
                                   "then."}},
    [STATE_DETACHED] = {"detached",
                        {.meaning =
                             "The sandbox lives, and its VM does not have the drive now, because "
                             "no container has the volume: Kata unplugs a container's drives when "
                             "it ends, and plugs them again when it is started anew. The drive is "
                             "found again then, and a resize that came meanwhile is carried out."}},
    [STATE_BLOCKED] =
        {"blocked",
         {.meaning =
              "The volume cannot be resized in its VM as things are, or it would not be safe to."}},
    [STATE_SHRUNK] =
        {"shrunk",
         {"The device is smaller than it once was. The file system in the VM may reach beyond its "
          "end, and every write there fails. crustd only grows, so it leaves everything as it is.",
          "The bytes that the device had.",
          {"Give the device its former size again before anything else, if the storage still can.",
           "Stop the pod before any repair: no file system survives being cut while it is mounted.",
           "If the device was replaced on purpose, restart the pod so that its VM opens the new "
           "one."}}},
    [STATE_UNKNOWN] = {"unknown",
                       {.meaning =
                            "The device was not seen to grow, but it is also not known whether the "
                            "VM has its present size: it may have grown while crustd did not run.",
                        .missing = "The size that the hypervisor has."}},
    [STATE_HOST_GROWN] = {"host_grown",
                          {"The device has grown, and the hypervisor has not been told yet.",
                           NULL,
                           {"crustd waits until the size has not changed for resize.settle_ms."}}},
    [STATE_BLOCK_GROWN] = {"block_grown",
                           {.meaning =
                                "The VM has the device's new size, or opened the device when it "
                                "had it already; the file system has not been grown to it yet."}},
    [STATE_IN_SYNC] = {"in_sync",
                       {.meaning =
                            "No difference is known between the size of the device, the size that "
                            "the hypervisor has and, where crustd is to grow it, the file system "
                            "in the guest."}},
    [STATES] = {.name = "other"},
};

WORDS(state, enum volume_state, states, STATES, STATES)

const struct explanation *state_explain(enum volume_state state)
{
    return state < STATES ? &states[state].explanation : NULL;
}
