/* SPDX-License-Identifier: Apache-2.0 */
/* examine.c - the daemon examines its node, with its own rights, in its own namespaces, and knowing
 * the sandboxes. */
#include <errno.h>

#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "reconciler/command/clients_state.h"
#include "reconciler/core/doubts.h"
#include "store/read.h"

static int read_sandboxes(const struct context *context, cJSON **ret_sandboxes, struct error *error)
{
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(DOCTOR_BYTES);
    int r = store_read_abilities(store_get_reader(context->store), &rows, error);

    return r < 0 ? r
                 : json_parse(buffer_text(&rows), rows.length,
                              (struct json_limits){DOCTOR_BYTES, 4, 0}, ret_sandboxes, error);
}

static void add_doubt(void *userdata, const char *sandbox_id, const char *text)
{
    (void)cJSON_AddStringToObject(userdata, sandbox_id, text);
}

int examine_node(const struct context *context, struct buffer *ret_json, struct error *error)
{
    cleanup(json_deletep) cJSON *sandboxes = NULL, *doubts = cJSON_CreateObject();
    struct doctor_request request = {.root = context->root, .config = context->config};
    int r = read_sandboxes(context, &sandboxes, error);

    if (r < 0)
        return r;
    if (doubts && context->doubts)
        doubts_each(context->doubts, add_doubt, doubts);
    request.sandboxes = sandboxes;
    request.doubts = doubts;
    r = doctor_examine(&request, ret_json);
    return r < 0 ? error_set_errno(error, r, "the findings can't be written") : 0;
}

int examine_abilities(const struct context *context, struct doctor_abilities *ret_abilities,
                      struct error *error)
{
    cleanup(json_deletep) cJSON *sandboxes = NULL;
    struct doctor_request request = {.root = context->root, .config = context->config};
    int r = read_sandboxes(context, &sandboxes, error);

    if (r < 0)
        return r;
    request.sandboxes = sandboxes;
    r = doctor_find_abilities(&request, ret_abilities);
    return r < 0 ? error_set_errno(error, r, "the node can't be examined") : 0;
}
