/* SPDX-License-Identifier: Apache-2.0 */
/* examine.c - the daemon examines its node, with its own rights, in its own namespaces, and knowing
 * the sandboxes: for whoever asks, and every hour for itself.
 *
 * An examination takes milliseconds of the loop, tens on a node with hundreds of sandboxes, so what
 * metrics and status say of the node is up to an hour old.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "reconciler/core/reconciler_internal.h"
#include "store/read.h"

#define EXAMINATION_NS (3600 * NSEC_PER_SEC)

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

int reconciler_examine(struct reconciler *reconciler, struct buffer *ret_json, struct error *error)
{
    const struct context *context = &reconciler->context;
    cleanup(json_deletep) cJSON *sandboxes = NULL, *distrusted = cJSON_CreateObject();
    struct doctor_request request = {.root = context->root, .config = context->config};
    int r = read_sandboxes(context, &sandboxes, error);

    if (r < 0)
        return r;
    if (distrusted && context->distrusted)
        distrusted_each(context->distrusted, add_doubt, distrusted);
    request.sandboxes = sandboxes;
    request.distrusted = distrusted;
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

/* The first error is shown, as long as there is none the first warning. */
static void take_finding(struct reconciler_findings *findings, const cJSON *finding)
{
    const char *check = json_string(finding, "id"), *level = json_string(finding, "level");
    const char *where = json_string(finding, "where"), *what = json_string(finding, "what");
    const bool is_error = level && strcmp(level, "error") == 0;
    const bool is_warning = level && strcmp(level, "warning") == 0;
    unsigned i = 0;

    if (!check || !level || !what || strcmp(level, "ok") == 0)
        return;
    while (i < findings->checks && (strcmp(findings->check[i].check, check) != 0 ||
                                    strcmp(findings->check[i].level, level) != 0))
        i++;
    if (i == findings->checks && i < RECONCILER_CHECKS) {
        findings->checks++;
        (void)snprintf(findings->check[i].check, sizeof(findings->check[i].check), "%s", check);
        (void)snprintf(findings->check[i].level, sizeof(findings->check[i].level), "%s", level);
    }
    if (i < RECONCILER_CHECKS)
        findings->check[i].findings++;
    if ((is_error && findings->errors == 0) ||
        (is_warning && findings->errors == 0 && findings->warnings == 0))
        (void)snprintf(findings->worst, sizeof(findings->worst), "%s: %s", where ? where : check,
                       what);
    findings->errors += is_error;
    findings->warnings += is_warning;
}

static void examine_again(struct reconciler *reconciler)
{
    struct examination *examination = &reconciler->examination;
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(DOCTOR_BYTES);
    cleanup(json_deletep) cJSON *list = NULL;
    struct reconciler_findings findings = {0};
    const cJSON *finding;
    struct error error = {0};
    int r = reconciler_examine(reconciler, &json, &error);

    if (r == 0)
        r = json_parse(buffer_text(&json), json.length, (struct json_limits){DOCTOR_BYTES, 4, 0},
                       &list, &error);
    if (r < 0) {
        log_warning(NULL, "examining the node: %s", error.text);
        return;
    }
    cJSON_ArrayForEach(finding, list)
    {
        take_finding(&findings, finding);
    }
    if (findings.errors > 0 && strcmp(findings.worst, examination->findings.worst) != 0)
        log_warning(
            NULL,
            "volumes of this node cannot be resized, or not all of them: %s; crustctl doctor "
            "--problems says what to do",
            findings.worst);
    examination->findings = findings;
}

static void on_hour(struct loop_timer *timer)
{
    examination_begin(container_of(timer, struct reconciler, examination.timer));
}

void examination_begin(struct reconciler *reconciler)
{
    loop_timer_start(reconciler->context.loop, &reconciler->examination.timer, EXAMINATION_NS,
                     on_hour);
    examine_again(reconciler);
    /* It took memory for all sandboxes at once, which glibc would keep until the next hour. */
    (void)malloc_trim(0);
}

/* ---- capabilities: as configured, or with "auto" as found ---- */

/* A name that does not fit is skipped; none is given twice. */
static void add(struct reconciler_names *names, const char *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return;
    if (names->count < RECONCILER_NAMES && strlen(name) < sizeof(names->name[0]))
        (void)snprintf(names->name[names->count++], sizeof(names->name[0]), "%s", name);
}

/* Kata's own agent reports usage in every guest. A resize needs a VMM that can be told of a new
 * size, and guests that were not found to be unable.
 *
 * A label is taken care of where it means nothing: no guest enforces SELinux, and staging leaves
 * the option out (stage.c). Where all guests do, the option reaches the guest's mount; relabelling
 * file by file is nobody's. SUBPATH is never found: the kubelet's way passes by the device. */
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
    if (abilities.applies_group) {
        add(names, "FS_GROUP_CHANGE_POLICY_ALWAYS");
        add(names, "FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH");
    }
    if (abilities.ignores_labels)
        add(names, "SELINUX_RELABEL");
    if (abilities.ignores_labels || abilities.enforces_labels)
        add(names, "SELINUX_RELABEL_ON_MOUNT");
    return 0;
}

int reconciler_find_capabilities(struct reconciler *reconciler, struct reconciler_names *ret_names,
                                 struct error *error)
{
    const struct context *context = &reconciler->context;
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

static int add_seen(void *userdata, const char *fs_type)
{
    add(userdata, fs_type);
    return 0;
}

int reconciler_find_file_systems(struct reconciler *reconciler, struct reconciler_names *ret_names)
{
    const struct context *context = &reconciler->context;
    const struct config_list *words = &context->config->crust.file_systems;
    int r = 0;

    ret_names->count = 0;
    for (unsigned i = 0; r == 0 && i < words->count; i++)
        if (strcmp(config_list_item(words, i), "auto") != 0) {
            add(ret_names, config_list_item(words, i));
        } else {
            /* Every guest kernel of Kata's has the first two; other file systems are listed once a
             * guest has mounted one. */
            add(ret_names, "ext4");
            add(ret_names, "xfs");
            r = store_each_mounted_file_system(context->store, add_seen, ret_names);
        }
    return r;
}
