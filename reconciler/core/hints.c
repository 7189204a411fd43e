/* SPDX-License-Identifier: Apache-2.0 */
/* hints.c - what the senses say becomes a mark, and nothing else.
 *
 * Whoever calls these is told nothing and has nothing done at once: a mark is looked at in the next
 * turn, however often it was set. So the order of hints cannot matter, and lost ones are made up
 * for by marking everything.
 */
#include <stdio.h>
#include <string.h>

#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/core/internal.h"
#include "reconciler/core/reconciler.h"

void reconciler_look_at_directory(struct reconciler *reconciler, enum reconciler_tree tree,
                                  const char *name)
{
    if (tree <= TREE_CRUST_VOLUMES || tree >= TREE_BUNDLES)
        marks_add_name(&reconciler->directories[tree], name);
    else if (observe_is_sandbox_id(name))
        marks_add_name(&reconciler->sandboxes, name);
}

void reconciler_look_at_tree(struct reconciler *reconciler, enum reconciler_tree tree)
{
    reconciler->scan_wanted[tree] = true;
    sources_disturb(&reconciler->cleanup.sources);
}

void reconciler_look_at_device(struct reconciler *reconciler, uint32_t major, uint32_t minor)
{
    marks_add_number(&reconciler->devices, (uint64_t)major << 32 | minor);
}

void reconciler_look_at_all_volumes(struct reconciler *reconciler)
{
    reconciler->devices_are_fresh = false;
    reconciler->all_volumes = true;
}

void reconciler_look_at_everything(struct reconciler *reconciler)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        reconciler->scan_wanted[tree] = true;
    reconciler->all_volumes = true;
    reconciler->hidden.wanted = true;
    reconciler->mounts = observed_mounts_free(reconciler->mounts);
}

static void mark_device(void *userdata, uint32_t major, uint32_t minor)
{
    reconciler_look_at_device(userdata, major, minor);
}

static void mark_beneath(void *userdata, uint32_t major, uint32_t minor)
{
    struct reconciler *reconciler = userdata;

    observe_each_beneath(reconciler->sysfs, major, minor, mark_device, reconciler);
}

/* Mounts come and go with every pod, so only the devices whose use changed are looked at. */
void reconciler_look_at_mounts(struct reconciler *reconciler)
{
    struct observed_mounts *now;
    int r = observe_mounts(reconciler->sysfs, &now);

    if (r < 0) {
        log_warning(&(struct log_ids){.source = "mounts"}, "cannot read the host's mounts: %s",
                    strerror(-r));
        now = NULL;
    }
    if (now && reconciler->mounts)
        observed_mounts_each_change(reconciler->mounts, now, mark_beneath, reconciler);
    else
        (void)store_each_bound_volume(reconciler->store, mark_volume, reconciler);
    observed_mounts_free(reconciler->mounts);
    reconciler->mounts = now;
}

void reconciler_saw_exit(struct reconciler *reconciler, const char *sandbox_id, pid_t pid)
{
    char exit[256];

    (void)snprintf(exit, sizeof(exit), "%d %s", (int)pid, sandbox_id);
    marks_add_name(&reconciler->exits, exit);
    marks_add_name(&reconciler->sandboxes, sandbox_id);
}
