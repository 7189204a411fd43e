/* SPDX-License-Identifier: Apache-2.0 */
/* targets.c - see targets.h.
 *
 * The cost of a container does not depend on the number of volumes, and growing a file system that
 * fills its device changes nothing. So a helper that is needed for one volume also serves the
 * others of its sandbox, as far as crustd may resize them.
 */
#include "reconciler/helper/targets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "observe/claims.h"
#include "reconciler/core/context.h"
#include "reconciler/core/node_paths.h"
#include "reconciler/core/permit.h"
#include "reconciler/helper/helper.h"

static bool has_path(const struct store_volume *volume)
{
    return volume->guest_path[0] == '/';
}

/* The Rust runtime's shared directory shows where volumes may be, even if the records do not
 * distinguish them. */
static bool is_rust(const struct store_volume *volume)
{
    return volume->runtime == RUNTIME_KATA_RS;
}

bool helper_is_possible(const struct config *config, const struct store_volume *volume)
{
    return config_brings_helpers(config) && permit_of(config, volume) == POLICY_GROW &&
           volume->sandbox_ref && volume->binding_id && volume->agent_address[0] &&
           (has_path(volume) || is_rust(volume));
}

/* ---- places ------------------------------------------------------------------------------ */

struct places {
    struct helper_targets *targets;
    struct helper_target target;
};

static bool is_forbidden(const struct helper_targets *targets, const char *guest_path)
{
    for (unsigned i = 0; i < targets->forbidden; i++)
        if (strcmp(targets->forbidden_path[i], guest_path) == 0)
            return true;
    return false;
}

/* Two volumes that may be at the same place share it, so each place is passed once. */
static int add_place(void *userdata, const char *guest_path)
{
    struct places *places = userdata;
    struct helper_targets *targets = places->targets;
    unsigned i = 0;

    if (is_forbidden(targets, guest_path)) {
        targets->withheld = true;
        return 0;
    }
    while (i < targets->paths && strcmp(targets->path[i], guest_path) != 0)
        i++;
    if (i == HELPER_VOLUMES || places->target.candidates == HELPER_CANDIDATES ||
        strlen(guest_path) >= STORE_ADDRESS_BYTES)
        return 0;
    if (i == targets->paths)
        (void)snprintf(targets->path[targets->paths++], STORE_ADDRESS_BYTES, "%s", guest_path);
    places->target.candidate[places->target.candidates++] = i;
    return 0;
}

static int each_place(const struct context *context, const struct store_volume *volume,
                      claims_place *callback, void *userdata)
{
    struct observe_sandbox_paths paths;
    const char *bundles[CONFIG_LIST_ITEMS];

    if (has_path(volume))
        return callback(userdata, volume->guest_path);
    node_sandbox_paths(context, bundles, &paths);
    return claims_each_place(&paths, volume->sandbox_id, volume->vmm_pid, volume->target_path,
                             callback, userdata);
}

void helper_targets_add(const struct context *context, const struct store_volume *volume,
                        struct helper_targets *targets)
{
    struct places places = {
        .targets = targets,
        .target = {.volume_id = volume->volume_id,
                   .binding_id = volume->binding_id,
                   .device_bytes = volume->device_bytes},
    };

    for (unsigned i = 0; i < targets->targets; i++)
        if (targets->target[i].volume_id == volume->volume_id)
            return;
    if (targets->targets == HELPER_VOLUMES)
        return;
    if (has_path(volume) || !targets->all_forbidden)
        (void)each_place(context, volume, add_place, &places);
    else
        targets->withheld = true;
    if (places.target.candidates > 0)
        targets->target[targets->targets++] = places.target;
}

/* ---- other volumes of the sandbox -------------------------------------------------------- */

/* Whether the guest has the volume's device, as far as known. If the VM lacks it, or has something
 * else in its place, the guest path is not the volume's. */
static bool is_stats_target(const struct store_volume *volume)
{
    return volume->status == STORE_PRESENT && volume->state != STATE_UNMANAGED &&
           volume->state != STATE_DETACHED && volume->reason != REASON_BYPASSED;
}

static bool is_resize_target(const struct store_volume *volume)
{
    return volume->status == STORE_PRESENT && !volume->read_only &&
           (volume->state == STATE_IN_SYNC || volume->state == STATE_BLOCK_GROWN) &&
           (!volume->hypervisor_bytes || volume->hypervisor_bytes >= volume->device_bytes);
}

struct walk {
    unsigned volumes;
    int64_t volume_id[HELPER_VOLUMES * 2];
};

static int note_volume(void *userdata, int64_t volume_id)
{
    struct walk *walk = userdata;

    if (walk->volumes < array_length(walk->volume_id))
        walk->volume_id[walk->volumes++] = volume_id;
    return 0;
}

/* A volume of the Rust runtime is represented by all its possible places, so a volume that forbids
 * resizing forbids all of its possible places. */
static int forbid_place(void *userdata, const char *guest_path)
{
    struct helper_targets *targets = userdata;

    if (is_forbidden(targets, guest_path))
        return 0;
    if (targets->forbidden == HELPER_VOLUMES || strlen(guest_path) >= STORE_ADDRESS_BYTES)
        targets->all_forbidden = true;
    else
        (void)snprintf(targets->forbidden_path[targets->forbidden++], STORE_ADDRESS_BYTES, "%s",
                       guest_path);
    return 0;
}

int helper_targets_begin(const struct context *context, const char *sandbox_id, int64_t sandbox_ref,
                         struct helper_targets *targets)
{
    cleanup(freep) struct store_volume *volume = malloc(sizeof(*volume));
    struct walk walk = {0};
    int r = volume ? 0 : -ENOMEM;

    if (r < 0 || !targets->grow)
        return r;
    r = store_each_volume_of_sandbox(context->store, sandbox_id, note_volume, &walk);
    targets->all_forbidden = walk.volumes == array_length(walk.volume_id);
    for (unsigned i = 0; r == 0 && i < walk.volumes; i++) {
        r = store_get_volume(context->store, walk.volume_id[i], volume);
        if (r == 0 && volume->sandbox_ref == sandbox_ref &&
            permit_of(context->config, volume) != POLICY_GROW &&
            (has_path(volume) || is_rust(volume)))
            r = each_place(context, volume, forbid_place, targets);
    }
    return r;
}

void helper_targets_complete(const struct context *context, const char *sandbox_id,
                             int64_t sandbox_ref, struct helper_targets *targets)
{
    cleanup(freep) struct store_volume *volume = malloc(sizeof(*volume));
    struct walk walk = {0};

    if (!volume || store_each_volume_of_sandbox(context->store, sandbox_id, note_volume, &walk))
        return;
    for (unsigned i = 0; i < walk.volumes; i++)
        if (store_get_volume(context->store, walk.volume_id[i], volume) == 0 &&
            volume->sandbox_ref == sandbox_ref && helper_is_possible(context->config, volume) &&
            (targets->grow ? is_resize_target(volume) : is_stats_target(volume)))
            helper_targets_add(context, volume, targets);
}
