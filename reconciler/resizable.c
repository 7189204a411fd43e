/* resizable.c - whether a growth of a volume would reach its file system, on the record.
 *
 * Nothing is asked for this: the VMM's list is read at each binding, and what the routes into a
 * guest are able to do is remembered with the sandbox. So it is judged whenever the volume is.
 */
#include <string.h>

#include "lib/log.h"
#include "reconciler/decide/resizable.h"
#include "reconciler/hypervisor/hypervisor.h"
#include "reconciler/internal.h"

/* ---- the drive ---- */

static bool may_tell_vmm(const struct reconciler *reconciler, const struct store_volume *volume)
{
    return hypervisor_may_resize(hypervisor_kind_from_name(volume->hypervisor),
                                 reconciler->config.resize.firecracker);
}

static void judge_drive(const struct reconciler *reconciler, const struct store_volume *volume,
                        struct resizable_facts *facts)
{
    bool is_seen = volume->list == STORE_LIST_HAS && volume->obstacle[0];

    facts->drive_reason = reason_from_name(volume->obstacle);
    if (is_seen && facts->drive_reason != REASON_NONE) {
        facts->drive = DRIVE_REFUSED;
    } else if (!may_tell_vmm(reconciler, volume)) {
        facts->drive = DRIVE_REFUSED;
        facts->drive_reason = REASON_HYPERVISOR_UNSUPPORTED;
    } else {
        facts->drive = is_seen ? DRIVE_RESIZABLE : DRIVE_UNSEEN;
    }
}

/* ---- the routes into the guest ---- */

/* What is remembered of one route; every route that agent.routes may name is judged here. */
static const char *ability_of(const struct store_volume *volume, enum config_route route)
{
    static const enum store_route routes[] = {
        [ROUTE_COMPANION] = STORE_ROUTE_COMPANION,
        [ROUTE_AGENT] = STORE_ROUTE_AGENT,
        [ROUTE_SHIM] = STORE_ROUTE_SHIM,
    };

    return volume->ability[routes[route]];
}

static enum resizable_routes judge_routes(const struct reconciler *reconciler,
                                          const struct store_volume *volume,
                                          enum volume_reason *ret_reason)
{
    const enum config_route *routes = reconciler->config.agent.routes;
    bool untried = false;

    *ret_reason = REASON_AGENT_UNREACHABLE; /* agent.routes names none */
    for (unsigned i = 0; i < CONFIG_ROUTES && routes[i] != ROUTE_NONE; i++) {
        const char *ability = ability_of(volume, routes[i]);

        if (strcmp(ability, "able") == 0)
            return ROUTES_ABLE;
        untried |= !ability[0];
        if (*ret_reason != REASON_AGENT_DENIED && ability[0])
            *ret_reason = reason_from_name(ability);
    }
    return untried ? ROUTES_UNTRIED : ROUTES_UNABLE;
}

bool guest_is_untried(const struct reconciler *reconciler, const struct store_volume *volume)
{
    enum volume_reason reason;

    return judge_routes(reconciler, volume, &reason) == ROUTES_UNTRIED;
}

/* ---- on the record ---- */

int note_resizable(struct reconciler *reconciler, const struct store_volume *volume,
                   const struct decide_facts *growth)
{
    struct resizable_facts facts = {.growth = growth};
    struct resizable resizable;

    judge_drive(reconciler, volume, &facts);
    facts.routes = judge_routes(reconciler, volume, &facts.route_reason);
    resizable = resizable_decide(&facts);
    return store_set_resizable(reconciler->store, volume, resizable_name(resizable.answer),
                               resizable.reason == REASON_NONE ? NULL
                                                               : reason_name(resizable.reason));
}
