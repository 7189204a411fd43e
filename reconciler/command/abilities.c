/* SPDX-License-Identifier: Apache-2.0 */
/* abilities.c - this node's CRUST capabilities: as configured, or with "auto" as found. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "reconciler/command/clients_state.h"
#include "store/store.h"

/* A name that does not fit is skipped; none is given twice. */
static void add(struct reconciler_names *names, const char *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return;
    if (names->count < RECONCILER_NAMES && strlen(name) < sizeof(names->name[0]))
        (void)snprintf(names->name[names->count++], sizeof(names->name[0]), "%s", name);
}

/* ---- capabilities ---- */

/* A label is taken care of where it means nothing: no guest enforces SELinux, and staging leaves
 * the option out (stage.c). Where all guests do, the option reaches the guest's mount; relabelling
 * file by file is nobody's. SUBPATH is never found: the kubelet's way passes by the device. */
static void add_post_mount(const struct doctor_abilities *abilities, struct reconciler_names *names)
{
    if (abilities->applies_group) {
        add(names, "FS_GROUP_CHANGE_POLICY_ALWAYS");
        add(names, "FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH");
    }
    if (abilities->ignores_labels)
        add(names, "SELINUX_RELABEL");
    if (abilities->ignores_labels || abilities->enforces_labels)
        add(names, "SELINUX_RELABEL_ON_MOUNT");
}

/* Kata's own agent reports usage in every guest. A resize needs a VMM that can be told of a new
 * size, and guests that were not found to be unable. */
static int find_works(const struct context *context, struct reconciler_names *names,
                      struct error *error)
{
    const struct config *config = context->config;
    const bool has_routes = config->agent.routes[0] != ROUTE_NONE;
    struct doctor_abilities abilities;
    int r = examine_abilities(context, &abilities, error);

    if (r < 0)
        return r;
    if (has_routes && abilities.has_guests)
        add(names, "VOLUME_STATS");
    if (has_routes && config->resize.mode == RESIZE_GROW && abilities.tells_hypervisor &&
        abilities.resizes_guests)
        add(names, "VOLUME_RESIZE");
    add_post_mount(&abilities, names);
    return 0;
}

int find_capabilities(const struct context *context, struct reconciler_names *ret_names,
                      struct error *error)
{
    const struct config_list *words = &context->config->crust.capabilities;
    int r = 0;

    ret_names->count = 0;
    for (unsigned i = 0; r == 0 && i < words->count; i++)
        if (strcmp(config_list_item(words, i), "auto") == 0)
            r = find_works(context, ret_names, error);
        else
            add(ret_names, config_list_item(words, i));
    return r;
}

/* ---- file systems ---- */

static int add_seen(void *userdata, const char *fs_type)
{
    add(userdata, fs_type);
    return 0;
}

/* Every guest kernel of Kata's has the first two; other file systems are listed once a guest has
 * mounted one. */
static int find_mounted(const struct context *context, struct reconciler_names *names)
{
    add(names, "ext4");
    add(names, "xfs");
    return store_each_mounted_file_system(context->store, add_seen, names);
}

int find_file_systems(const struct context *context, struct reconciler_names *ret_names)
{
    const struct config_list *words = &context->config->crust.file_systems;
    int r = 0;

    ret_names->count = 0;
    for (unsigned i = 0; r == 0 && i < words->count; i++)
        if (strcmp(config_list_item(words, i), "auto") == 0)
            r = find_mounted(context, ret_names);
        else
            add(ret_names, config_list_item(words, i));
    return r;
}
