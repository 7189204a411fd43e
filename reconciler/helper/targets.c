/* SPDX-License-Identifier: Apache-2.0 */
/* targets.c - what a helper is given: the volumes and their places. Also the routes to a guest, and
 * what kind of guest it is; see helper.h.
 *
 * The cost of a container does not depend on the number of volumes, and growing a file system that
 * fills its device changes nothing. So a helper that is needed for one volume also serves the
 * others of its sandbox, as far as crustd may resize them.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "observe/observed_sandbox.h"
#include "reconciler/core/context.h"
#include "reconciler/helper/helper.h"
#include "store/store.h"

/* A raw block claim is not mounted by the runtime, so its file system is found by the disk. */
static bool has_path(const struct store_volume *volume)
{
    return volume->guest_path[0] == '/' || (volume->is_block_claim && volume->guest_path[0]);
}

/* The Rust runtime's shared directory shows where volumes may be, even if the records do not
 * distinguish them. */
static bool is_rust(const struct store_volume *volume)
{
    return volume->runtime == RUNTIME_KATA_RS && !volume->is_block_claim;
}

bool helper_is_possible(const struct config *config, const struct store_volume *volume)
{
    return config_brings_helpers(config) &&
           policy_grows_file_system(resize_policy_of(config, volume)) && volume->sandbox_ref &&
           volume->binding_id && volume->agent_address[0] && volume->grows_file_system &&
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
    struct node_lists lists;

    if (has_path(volume))
        return callback(userdata, volume->guest_path);
    node_sandbox_paths(context, &lists, &paths);
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

/* To report, whether the guest has the volume's device, as far as known: if the VM lacks it, or has
 * something else in its place, the guest path is not the volume's. */
static bool is_target(const struct store_volume *volume, bool grow)
{
    if (volume->status != STORE_PRESENT)
        return false;
    if (!grow)
        return volume->state != STATE_UNMANAGED && volume->state != STATE_DETACHED &&
               volume->reason != REASON_BYPASSED;
    return !volume->read_only &&
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
    r = store_each_volume(context->store, STORE_SEARCH(OF_SANDBOX, .name = sandbox_id), note_volume,
                          &walk);
    targets->all_forbidden = walk.volumes == array_length(walk.volume_id);
    for (unsigned i = 0; r == 0 && i < walk.volumes; i++) {
        r = store_get_volume(context->store, walk.volume_id[i], volume);
        if (r == 0 && volume->sandbox_ref == sandbox_ref &&
            !policy_grows_file_system(resize_policy_of(context->config, volume)) &&
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

    if (!volume || store_each_volume(context->store, STORE_SEARCH(OF_SANDBOX, .name = sandbox_id),
                                     note_volume, &walk))
        return;
    for (unsigned i = 0; i < walk.volumes; i++)
        if (store_get_volume(context->store, walk.volume_id[i], volume) == 0 &&
            volume->sandbox_ref == sandbox_ref && helper_is_possible(context->config, volume) &&
            is_target(volume, targets->grow))
            helper_targets_add(context, volume, targets);
}

/* ---- guest routes --------------------------------------------------------------------------- */

/* The shim's socket is in the sandbox's state directory, also if the VMM has a jail elsewhere. Go's
 * shim identifies a volume by its device, Rust's by its guest path.
 */

void guest_routes_describe(const struct context *context, struct store_volume *volume,
                           char shim_socket[static GUEST_ADDRESS_BYTES],
                           struct guest_request *ret_request)
{
    const struct config *config = context->config;
    bool rust = volume->runtime == RUNTIME_KATA_RS;
    uint64_t most = volume->device_bytes;

    /* The record of the device may be older than what the VMM has told its guest. */
    if (volume->largest_bytes > most)
        most = volume->largest_bytes;
    if (volume->hypervisor_bytes > most)
        most = volume->hypervisor_bytes;
    (void)snprintf(shim_socket, GUEST_ADDRESS_BYTES, "%s/%s/" SHIM_SOCKET,
                   rust ? config->paths.kata_rs_sandboxes : config->paths.kata_go_sandboxes,
                   volume->sandbox_id);
    *ret_request = (struct guest_request){
        .root = context->root,
        .listener = {.vmm = volume->vmm_pid, .sandbox_id = volume->sandbox_id},
        .agent_address = volume->agent_address,
        .agent_address_size = sizeof(volume->agent_address),
        .guest_path = volume->guest_path,
        .agent_port = config->agent.port,
        .companion_port = config->agent.companion_port,
        .shim_socket = volume->is_block_claim ? NULL : shim_socket,
        .shim_dialect = rust ? SHIM_RUST : SHIM_GO,
        .shim_volume = rust ? volume->guest_path : volume->device_path,
        .most_bytes = volume->device_bytes && !volume->is_btrfs ? most : 0,
    };
    memcpy(ret_request->order, config->agent.routes, sizeof(ret_request->order));
}

/* ---- guest ---------------------------------------------------------------------------------- */

void helper_guest_stop(struct helper_guest *guest)
{
    guest->call = hypervisor_call_free(guest->call);
}

static void on_described(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                         void *userdata)
{
    struct helper_guest *guest = userdata;

    guest->is_known = reply->outcome == HYPERVISOR_DONE;
    guest->error = reply->error;
    guest->traits = (struct guest_traits){
        .is_confidential = reply->guest.is_confidential,
        .share = reply->guest.has_share ? GUEST_SHARE_DIRECTORY : GUEST_SHARE_NONE,
    };
    guest->call = hypervisor_call_free(call);
    guest->done(guest);
}

static void read_arguments(struct helper_guest *guest, const struct context *context,
                           const struct store_helper_run *sandbox)
{
    struct observe_sandbox_paths paths;
    struct node_lists lists;
    int r;

    node_sandbox_paths(context, &lists, &paths);
    r = guest_traits_observe(&paths, sandbox->hypervisor, sandbox->sandbox_id, sandbox->vmm_pid,
                             &guest->traits);
    guest->is_known = r == 0;
    if (r == GUEST_TRAITS_NO_SOURCE)
        (void)error_set(&guest->error, r, "crustd does not know how to find out for %s",
                        hypervisor_title(sandbox->hypervisor));
    else if (r < 0)
        (void)error_set_errno(&guest->error, r, "cannot read the arguments of its process");
}

void helper_guest_start(struct helper_guest *guest, const struct context *context,
                        const struct store_helper_run *sandbox,
                        void (*done)(struct helper_guest *guest))
{
    const struct hypervisor_request request = {
        .act = HYPERVISOR_DESCRIBE,
        .root = context->root,
        .control_socket = sandbox->control_socket[0] ? sandbox->control_socket : NULL,
        .vmm_pid = sandbox->vmm_pid,
        .sandbox_id = sandbox->sandbox_id,
        .allowed_ns = context->config->resize.call_timeout_seconds * NSEC_PER_SEC,
    };

    *guest = (struct helper_guest){.done = done};
    if (hypervisor_guest_source(sandbox->hypervisor) != HYPERVISOR_GUEST_BY_CALL)
        read_arguments(guest, context, sandbox);
    else if (hypervisor_call_new(context->loop, sandbox->hypervisor, &request, on_described, guest,
                                 &guest->call, &guest->error) == 0)
        return;
    done(guest);
}
