/* SPDX-License-Identifier: Apache-2.0 */
/* guest.c - see guest.h. */
#include "reconciler/helper/guest.h"

#include <errno.h>
#include <stdlib.h>

#include "config/config.h"
#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/core/context.h"
#include "reconciler/core/node_paths.h"

struct helper_guest {
    struct hypervisor_call *call; /* NULL: its arguments are sufficient */
    struct loop_timer deferred;
    struct guest_traits traits;
    bool is_known;
    struct error error;
    helper_guest_done *done;
    void *userdata;
};

struct helper_guest *helper_guest_free(struct helper_guest *guest)
{
    if (!guest)
        return NULL;
    loop_timer_stop(&guest->deferred);
    (void)hypervisor_call_free(guest->call);
    free(guest);
    return NULL;
}

static void tell(struct helper_guest *guest)
{
    guest->done(&guest->traits, guest->is_known ? NULL : &guest->error, guest->userdata);
}

static void on_deferred(struct loop_timer *timer)
{
    tell(container_of(timer, struct helper_guest, deferred));
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
    tell(guest);
}

static int ask(struct helper_guest *guest, const struct context *context, enum hypervisor_kind kind,
               const struct store_helper_run *sandbox)
{
    struct hypervisor_request request = {
        .act = HYPERVISOR_DESCRIBE,
        .root = context->root,
        .control_socket = sandbox->control_socket[0] ? sandbox->control_socket : NULL,
        .vmm_pid = sandbox->vmm_pid,
        .sandbox_id = sandbox->sandbox_id,
        .deadline_ns = context->config->resize.call_timeout_seconds * NSEC_PER_SEC,
    };

    return hypervisor_call_new(context->loop, kind, &request, on_described, guest, &guest->call);
}

static void observe(struct helper_guest *guest, const struct context *context,
                    const struct store_helper_run *sandbox)
{
    struct observe_sandbox_paths paths;
    const char *bundles[CONFIG_LIST_ITEMS];
    int r;

    node_sandbox_paths(context, bundles, &paths);
    r = guest_traits_observe(&paths, sandbox->hypervisor, sandbox->sandbox_id, sandbox->vmm_pid,
                             &guest->traits);
    guest->is_known = r == 0;
    if (r == GUEST_TRAITS_NO_SOURCE)
        (void)error_set(&guest->error, r, "crustd does not know how to find out for %s",
                        hypervisor_title(sandbox->hypervisor));
    else if (r < 0)
        (void)error_set_errno(&guest->error, r, "cannot read the arguments of its process");
    loop_timer_start(context->loop, &guest->deferred, 0, on_deferred);
}

int helper_guest_new(const struct context *context, const struct store_helper_run *sandbox,
                     helper_guest_done *done, void *userdata, struct helper_guest **ret_guest)
{
    enum hypervisor_kind kind = sandbox->hypervisor;
    struct helper_guest *guest = calloc(1, sizeof(*guest));
    int r = 0;

    if (!guest)
        return -ENOMEM;
    guest->done = done;
    guest->userdata = userdata;
    if (hypervisor_guest_source(kind) == HYPERVISOR_GUEST_BY_CALL)
        r = ask(guest, context, kind, sandbox);
    else
        observe(guest, context, sandbox);
    if (r < 0) {
        (void)helper_guest_free(guest);
        return r;
    }
    *ret_guest = guest;
    return 0;
}
