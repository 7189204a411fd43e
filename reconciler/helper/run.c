/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - see helper.h.
 *
 * The order makes a kill at any moment harmless: the record is committed before anything is made,
 * and deleted after everything is gone. The directory of a container that may still exist is kept,
 * because finding the container again needs the program in it (container_run.h).
 *
 * A guest without a shared directory gets the program by CopyFile, always into the same directory,
 * because the agent has no call that removes files.
 */
#include "reconciler/helper/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/container_run.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/text.h"
#include "reconciler/core/context.h"

#define COPY_DIRECTORY "/run/kata-containers/shared/containers/crust-helper"

/* Put in the name of a helper for drives, so that helper_name_is_ours() refuses it: such a helper
 * may run while a sandbox's share is searched for what earlier helpers left, and must not be taken
 * for that. After a crash the record names it. */
enum { PASSED_OVER = 'x' };

enum { TOTAL_CALLS = 2, ARGUMENTS = 4, NUMBER_BYTES = 16, SHOWN_BYTES = 128 };

struct helper_run {
    const struct context *context;
    struct store_helper_run sandbox;
    bool cleans_up, grow, withheld;
    bool recorded;
    bool copied; /* the guest has no shared directory */
    unsigned paths;
    char *path[HELPER_VOLUMES + 1];
    char *call; /* of a drive; NULL: it is for the paths */
    int share, program;
    struct helper_guest guest;
    struct container_run *container;
    struct loop_timer beginning;
    struct helper_outcome outcome;
    helper_run_done *done;
    void *userdata;
};

const char *helper_run_name(const struct helper_run *run)
{
    return run->sandbox.name;
}

struct helper_run *helper_run_free(struct helper_run *run)
{
    if (!run)
        return NULL;
    loop_timer_stop(&run->beginning);
    helper_guest_stop(&run->guest);
    (void)container_run_free(run->container);
    for (unsigned i = 0; i < run->paths; i++)
        free(run->path[i]);
    free(run->call);
    fd_close(run->share);
    fd_close(run->program);
    free(run);
    return NULL;
}

/* ---- the record -------------------------------------------------------------------------- */

static int record(struct helper_run *run)
{
    struct store *store = run->context->store;
    int r = store_begin(store);

    if (r == 0)
        r = store_put_helper_run(store, run->sandbox.sandbox_ref, run->sandbox.name, run->grow);
    r = store_end(store, r);
    run->recorded = r == 0;
    return r;
}

/* If the store fails, the record stays, and the next start finds nothing to remove. A policy may
 * refuse the capabilities for drives alone, so a call of a drive says nothing of volumes. */
static void record_end(struct helper_run *run)
{
    struct store *store = run->context->store;
    const enum volume_reason reason = run->outcome.reason;
    const char *ability = NULL; /* to remember for this guest */
    bool is_gone = run->recorded && !run->outcome.left;
    const struct log_ids ids = {.sandbox = run->sandbox.sandbox_id};
    int r;

    if (!run->cleans_up && !run->call &&
        (reason == REASON_NONE || reason == REASON_AGENT_POLICY_DENIED ||
         reason == REASON_AGENT_UNSUPPORTED || reason == REASON_HELPER_NO_CGROUPS))
        ability = reason == REASON_NONE ? ROUTE_ABLE : reason_name(reason);
    if (!ability && !is_gone)
        return;
    r = store_begin(store);
    if (r == 0 && ability)
        r = store_set_ability(store, run->sandbox.sandbox_ref, ROUTE_HELPER, ability);
    if (r == 0 && is_gone)
        r = store_forget_helper_run(store, run->sandbox.name);
    if (r == 0 && is_gone && run->cleans_up)
        r = store_note_helper_removed(store, run->sandbox.sandbox_ref, run->sandbox.name);
    if (store_end(store, r) < 0)
        log_warning(&ids, "cannot record the end of helper %s: %s", run->sandbox.name,
                    store_error_text(store));
}

/* ---- the end ----------------------------------------------------------------------------- */

static void remove_directory(struct helper_run *run)
{
    const struct log_ids ids = {.sandbox = run->sandbox.sandbox_id};
    int r;

    if (run->copied || run->share < 0)
        return;
    r = helper_share_remove(run->share, run->sandbox.name);
    if (r == 0)
        return;
    run->outcome.left = true;
    (void)error_set_errno(&run->outcome.removal_error, r,
                          "cannot remove %s from the sandbox's shared directory",
                          run->sandbox.name);
    log_warning(&ids, "%s", run->outcome.removal_error.text);
}

static void finish(struct helper_run *run)
{
    if (run->recorded && !run->outcome.left)
        remove_directory(run);
    record_end(run);
    run->done(run, &run->outcome, run->userdata);
}

/* ---- the container ----------------------------------------------------------------------- */

static const enum volume_reason reasons[CONTAINER_KINDS] = {
    [CONTAINER_DONE] = REASON_NONE,
    [CONTAINER_DENIED] = REASON_AGENT_POLICY_DENIED,
    [CONTAINER_UNSUPPORTED] = REASON_AGENT_UNSUPPORTED,
    [CONTAINER_UNREACHABLE] = REASON_AGENT_UNREACHABLE,
    [CONTAINER_TIMED_OUT] = REASON_HELPER_FAILED,
    [CONTAINER_NO_CGROUPS] = REASON_HELPER_NO_CGROUPS,
    [CONTAINER_FAILED] = REASON_HELPER_FAILED,
};

/* The program has ended: takes its report, if that is valid. */
static enum volume_reason read_report(struct helper_run *run, const struct container_reply *reply)
{
    struct error *error = &run->outcome.error;
    char shown[SHOWN_BYTES];

    if (reply->not_executed) {
        (void)error_set(error, 0, "the guest cannot execute the helper");
        return REASON_HELPER_WRONG_ARCHITECTURE;
    }
    if ((reply->exit_status == 0 || reply->exit_status == 1) && !reply->output_length) {
        (void)error_set(error, 0, "the helper ran, and the guest's policy hides what it printed");
        return REASON_AGENT_POLICY_DENIED;
    }
    if (reply->exit_status != 0 && reply->exit_status != 1) {
        text_clean(reply->errors, reply->errors_length, shown, sizeof(shown));
        (void)error_set(error, 0, "the helper ended with %d: %s", reply->exit_status, shown);
        return REASON_HELPER_FAILED;
    }
    if (run->call) {
        run->outcome.answer = reply->output;
        run->outcome.answer_length = reply->output_length;
        return REASON_NONE;
    }
    return helper_report_parse(reply->output, reply->output_length, (const char *const *)run->path,
                               run->paths, &run->outcome.report, error) == 0
               ? REASON_NONE
               : REASON_HELPER_FAILED;
}

static void on_container(struct container_run *container, const struct container_reply *reply,
                         void *userdata)
{
    struct helper_run *run = userdata;
    const struct log_ids ids = {.sandbox = run->sandbox.sandbox_id};

    (void)container; /* its output is in use until the run is freed */
    run->outcome.reason = reasons[reply->kind];
    run->outcome.error = reply->error;
    if (run->outcome.reason != REASON_NONE)
        (void)error_prefix(&run->outcome.error, "helper: ");
    else if (!run->cleans_up)
        run->outcome.reason = read_report(run, reply);
    run->outcome.left = reply->left;
    run->outcome.removal_error = reply->removal_error;
    if (reply->left && run->cleans_up) /* the first time it may be the end of the VM */
        log_warning(&ids, "helper %s may still be in the guest: %s", run->sandbox.name,
                    reply->removal_error.text);
    finish(run);
}

static int run_container(struct helper_run *run, const char *directory)
{
    uint32_t seconds = run->context->config->resize.call_timeout_seconds;
    uint64_t time = seconds * NSEC_PER_SEC;
    char timeout[NUMBER_BYTES];
    struct container_request request = {
        .act = run->cleans_up ? CONTAINER_CLEAN_UP : CONTAINER_RUN,
        .root = run->context->root,
        .address = run->sandbox.agent_address,
        .listener = {.vmm = run->sandbox.vmm_pid, .sandbox_id = run->sandbox.sandbox_id},
        .container_id = run->sandbox.name,
        .directory = directory,
        .program = directory ? HELPER_PROGRAM_NAME : NULL,
        .copied = run->copied,
        .program_file = run->program,
        .for_drives = run->call != NULL,
        .step_ns = time,
        .program_ns = time,
        .total_ns = time * TOTAL_CALLS,
    };
    const char **argument = request.arguments;

    _Static_assert(HELPER_VOLUMES + ARGUMENTS <= CONTAINER_ARGUMENTS, "the paths fit");
    if (run->call) {
        *argument++ = "--drive";
        *argument++ = run->call;
    } else {
        /* The program gets only a part of the time, so that it answers before that is over. */
        (void)snprintf(timeout, sizeof(timeout), "%u", seconds > 2 ? seconds * 2 / 3 : 1);
        *argument++ = "--once";
        if (!run->grow)
            *argument++ = "--report";
        *argument++ = "--timeout";
        *argument++ = timeout;
        for (unsigned i = 0; i < run->paths; i++)
            *argument++ = run->path[i];
    }
    return container_run_new(&request, on_container, run, &run->container);
}

/* ---- both kinds -------------------------------------------------------------------------- */

/* Records the helper, places its program, and starts its container. NONE, or why it does not run.
 */
static enum volume_reason start(struct helper_run *run)
{
    char directory[HELPER_GUEST_PATH_BYTES] = COPY_DIRECTORY;
    struct error *error = &run->outcome.error;
    int r = helper_program_open(run->context->config, &run->program, error);

    if (r != HELPER_PROGRAM_OK)
        return r == HELPER_PROGRAM_MISSING   ? REASON_HELPER_MISSING
               : r == HELPER_PROGRAM_FOREIGN ? REASON_HELPER_WRONG_ARCHITECTURE
                                             : REASON_HELPER_FAILED;
    if (!run->copied) {
        r = helper_share_open(run->context->root, run->sandbox.runtime, run->sandbox.sandbox_id,
                              &run->share, error);
        if (r != HELPER_SHARE_OK)
            return r > 0 ? REASON_HELPER_NO_SHARE : REASON_HELPER_FAILED;
    }
    r = helper_name_make(run->sandbox.name);
    if (r == 0 && run->call)
        run->sandbox.name[strcspn(run->sandbox.name, "-") + 1] = PASSED_OVER;
    if (r == 0)
        r = record(run);
    if (r < 0) {
        (void)error_set_errno(error, r, "the helper cannot be put on record");
        return REASON_HELPER_FAILED;
    }
    if (!run->copied) {
        helper_share_guest_path(run->sandbox.runtime, run->sandbox.name, directory);
        if (helper_share_place(run->share, run->sandbox.name, run->program, error) < 0)
            return REASON_HELPER_NO_SHARE;
    }
    r = run_container(run, directory);
    if (r == 0)
        return REASON_NONE;
    (void)error_set_errno(error, r, "the helper cannot be started");
    return REASON_HELPER_FAILED;
}

static void on_guest(struct helper_guest *guest)
{
    struct helper_run *run = container_of(guest, struct helper_run, guest);
    struct error *error = &run->outcome.error;
    enum volume_reason reason = REASON_AGENT_UNSUPPORTED;

    run->copied = guest->traits.share == GUEST_SHARE_NONE;
    if (!guest->is_known) {
        (void)error_set(error, 0, "the VMM does not tell whether its guest is confidential: %s",
                        guest->error.text);
        if (guest->error.code != GUEST_TRAITS_NO_SOURCE)
            reason = REASON_AGENT_UNREACHABLE;
    } else if (guest->traits.is_confidential) {
        (void)error_set(error, 0, "the guest is confidential: crustd brings nothing into it");
    } else {
        reason = start(run);
    }
    if (reason == REASON_NONE)
        return;
    run->outcome.reason = reason;
    finish(run);
}

/* Remains that cannot be removed now stay on record, and are tried again. */
static void leave(struct helper_run *run, const struct error *why)
{
    run->outcome.reason = REASON_HELPER_FAILED;
    run->outcome.error = run->outcome.removal_error = *why;
    run->outcome.left = true;
    finish(run);
}

/* The directory is needed to find a container whose creation may be in progress. A guest that
 * cannot be described now may have the copied program; only one whose share has the directory does
 * not. */
static void on_guest_to_clean(struct helper_guest *guest)
{
    struct helper_run *run = container_of(guest, struct helper_run, guest);
    char path[HELPER_GUEST_PATH_BYTES] = COPY_DIRECTORY;
    struct error error = guest->error;
    int r = HELPER_SHARE_HAS;

    run->copied = guest->is_known && guest->traits.share == GUEST_SHARE_NONE;
    if (!run->copied) {
        helper_share_guest_path(run->sandbox.runtime, run->sandbox.name, path);
        r = run->share < 0 ? HELPER_SHARE_HAS_NOT : helper_share_has(run->share, run->sandbox.name);
    }
    if (r == HELPER_SHARE_HAS_NOT && !guest->is_known) {
        (void)error_prefix(&error, "whether the program was copied into the guest is not known: ");
        leave(run, &error);
        return;
    }
    if (r >= 0)
        r = run_container(run, r == HELPER_SHARE_HAS ? path : NULL);
    if (r == 0)
        return;
    (void)error_set_errno(&error, r, "the clean-up cannot be started");
    leave(run, &error);
}

/* If the sandbox is gone, only the directory can be left. A guest path that is unknown now may be
 * known soon. */
static void on_begin(struct loop_timer *timer)
{
    struct helper_run *run = container_of(timer, struct helper_run, beginning);
    const struct store_helper_run *sandbox = &run->sandbox;
    struct error error = {0};

    if (run->cleans_up && helper_share_open(run->context->root, sandbox->runtime,
                                            sandbox->sandbox_id, &run->share, &error) < 0) {
        leave(run, &error);
    } else if (sandbox->is_alive && (run->cleans_up || run->paths > 0 || run->call)) {
        helper_guest_start(&run->guest, run->context, sandbox,
                           run->cleans_up ? on_guest_to_clean : on_guest);
    } else {
        if (!run->cleans_up) {
            run->outcome.reason =
                sandbox->is_alive ? REASON_GUEST_PATH_UNKNOWN : REASON_AGENT_UNREACHABLE;
            (void)error_set(&run->outcome.error, 0, "%s",
                            !sandbox->is_alive ? "the sandbox has ended"
                            : run->withheld
                                ? "it may be mounted where a volume is that must not grow; mount "
                                  "paths that end differently tell them apart"
                                : "nothing says where the guest has mounted this volume");
        }
        finish(run);
    }
}

int helper_run_new(const struct context *context, const struct helper_task *task,
                   helper_run_done *done, void *userdata, struct helper_run **ret_run)
{
    struct helper_run *run = calloc(1, sizeof(*run));
    bool is_whole = true;

    if (!run)
        return -ENOMEM;
    *run = (struct helper_run){.context = context,
                               .sandbox = task->sandbox,
                               .cleans_up = task->sandbox.name[0],
                               .recorded = task->sandbox.name[0],
                               .grow = task->grow,
                               .withheld = task->withheld,
                               .call = task->call ? strdup(task->call) : NULL,
                               .share = -1,
                               .program = -1,
                               .done = done,
                               .userdata = userdata};
    for (; run->paths < task->paths && run->paths < HELPER_VOLUMES && is_whole; run->paths++)
        is_whole = (run->path[run->paths] = strdup(task->path[run->paths]));
    if (!is_whole || (task->call && !run->call)) {
        (void)helper_run_free(run);
        return -ENOMEM;
    }
    loop_timer_start(context->loop, &run->beginning, 0, on_begin);
    *ret_run = run;
    return 0;
}
