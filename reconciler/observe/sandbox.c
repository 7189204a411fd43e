/* sandbox.c - asks each runtime that is known for a sandbox.
 *
 * Which runtime a sandbox belongs to shows in where it left traces. The id is checked before it
 * becomes part of any path.
 */
#include <stdlib.h>

#include "lib/cleanup.h"
#include "reconciler/observe/kata_go.h"

int observe_sandbox(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *ret_sandbox)
{
    cleanup(observed_sandbox_done) struct observed_sandbox sandbox = {
        .runtime = "unknown",
        .hypervisor = "unknown",
    };
    int r;

    if (!observe_is_sandbox_id(sandbox_id))
        return OBSERVED_ABSENT;
    r = kata_go_observe(paths, sandbox_id, &sandbox);
    if (r != OBSERVED)
        return r;
    *ret_sandbox = sandbox;
    sandbox = (struct observed_sandbox){0};
    return OBSERVED;
}

void observed_sandbox_done(struct observed_sandbox *sandbox)
{
    if (!sandbox)
        return;
    for (unsigned i = 0; i < sandbox->drives; i++) {
        free(sandbox->drive[i].mount_source);
        free(sandbox->drive[i].file);
        free(sandbox->drive[i].drive_id);
        free(sandbox->drive[i].guest_path);
    }
    free(sandbox->drive);
    free(sandbox->control_socket);
    free(sandbox->agent_address);
    free(sandbox->problem);
    *sandbox = (struct observed_sandbox){0};
}
