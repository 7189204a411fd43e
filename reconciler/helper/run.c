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
#include "lib/path.h"
#include "lib/text.h"
#include "reconciler/core/context.h"
#include "reconciler/helper/report.h"
#include "reconciler/helper/share.h"
#include "reconciler/helper/targets.h"

#define COPY_DIRECTORY "/run/kata-containers/shared/containers/crust-helper"

/* In the place of a digit: a name that is not looked for in shares. Helpers for volumes are one at
 * a time in a sandbox, and before the first one remains are looked for there; those for drives may
 * run meanwhile. What a crash leaves of them is on record. */
enum { PASSED_OVER = 'x' };

enum { TOTAL_CALLS = 2, ARGUMENTS = 4, NUMBER_BYTES = 16, SHOWN_BYTES = 128 };

struct helper_run {
    const struct context *context;
    struct store_helper_run sandbox;
    bool cleans_up, grow;
    bool recorded;
    bool copied; /* the guest has no shared directory */
    unsigned paths;
    char *path[HELPER_VOLUMES + 1];
    char *call; /* of a drive; NULL: it is for the paths */
    int share, program;
    struct helper_guest *guest;
    struct container_run *container;
    struct loop_timer deferred; /* for a result that is known before anything runs */
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
    loop_timer_stop(&run->deferred);
    (void)helper_guest_free(run->guest);
    (void)container_run_free(run->container);
    for (unsigned i = 0; i < run->paths; i++)
        free(run->path[i]);
    free(run->call);
    fd_close(run->share);
    fd_close(run->program);
    free(run);
    return NULL;
}

static struct log_ids ids_of(const struct helper_run *run)
{
    return (struct log_ids){.sandbox = run->sandbox.sandbox_id};
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

/* The ability to remember for this guest; NULL: none. */
static const char *ability_of(enum volume_reason reason)
{
    switch ((int)reason) {
    case REASON_NONE:
        return ROUTE_ABLE;
    case REASON_AGENT_POLICY_DENIED:
    case REASON_AGENT_UNSUPPORTED:
    case REASON_HELPER_NO_CGROUPS:
        return reason_name(reason);
    default:
        return NULL;
    }
}

/* If the store fails, the record stays, and the next start finds nothing to remove. A policy may
 * refuse the capabilities for drives alone, so a call of a drive says nothing of volumes. */
static void record_end(struct helper_run *run)
{
    struct store *store = run->context->store;
    bool is_usual = !run->cleans_up && !run->call;
    const char *ability = is_usual ? ability_of(run->outcome.reason) : NULL;
    bool is_gone = run->recorded && !run->outcome.left;
    struct log_ids ids = ids_of(run);
    int r;

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
    struct log_ids ids = ids_of(run);
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

static void on_deferred(struct loop_timer *timer)
{
    finish(container_of(timer, struct helper_run, deferred));
}

static int refuse(struct helper_run *run, enum volume_reason reason)
{
    run->outcome.reason = reason;
    return -ECANCELED;
}

/* ---- before anything is made ------------------------------------------------------------- */

static int judge_guest(struct helper_run *run, const struct guest_traits *traits,
                       const struct error *unknown)
{
    struct error *error = &run->outcome.error;

    if (unknown) {
        (void)error_set(error, 0, "the VMM does not tell whether its guest is confidential: %s",
                        unknown->text);
        return refuse(run, unknown->code == GUEST_TRAITS_NO_SOURCE ? REASON_AGENT_UNSUPPORTED
                                                                   : REASON_AGENT_UNREACHABLE);
    }
    if (traits->is_confidential) {
        (void)error_set(error, 0, "the guest is confidential: crustd brings nothing into it");
        return refuse(run, REASON_AGENT_UNSUPPORTED);
    }
    run->copied = traits->share == GUEST_SHARE_NONE;
    return 0;
}

static int open_program(struct helper_run *run)
{
    struct error *error = &run->outcome.error;

    switch (helper_program_open(run->context->config, &run->program, error)) {
    case HELPER_PROGRAM_OK:
        return 0;
    case HELPER_PROGRAM_MISSING:
        return refuse(run, REASON_HELPER_MISSING);
    case HELPER_PROGRAM_FOREIGN:
        return refuse(run, REASON_HELPER_WRONG_ARCHITECTURE);
    default:
        return refuse(run, REASON_HELPER_FAILED);
    }
}

static int open_share(struct helper_run *run)
{
    int r = run->copied
                ? HELPER_SHARE_OK
                : helper_share_open(run->context->root, run->sandbox.runtime,
                                    run->sandbox.sandbox_id, &run->share, &run->outcome.error);

    if (r == HELPER_SHARE_OK)
        return 0;
    return refuse(run, r > 0 ? REASON_HELPER_NO_SHARE : REASON_HELPER_FAILED);
}

static int begin_record(struct helper_run *run)
{
    int r = helper_name_make(run->sandbox.name);

    if (r == 0 && run->call)
        run->sandbox.name[strcspn(run->sandbox.name, "-") + 1] = PASSED_OVER;
    if (r == 0)
        r = record(run);
    if (r == 0)
        return 0;
    (void)error_set_errno(&run->outcome.error, r, "the helper cannot be put on record");
    return refuse(run, REASON_HELPER_FAILED);
}

static int place(struct helper_run *run)
{
    if (run->copied ||
        helper_share_place(run->share, run->sandbox.name, run->program, &run->outcome.error) == 0)
        return 0;
    return refuse(run, REASON_HELPER_NO_SHARE);
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
    struct log_ids ids = ids_of(run);

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

static int start_container(struct helper_run *run)
{
    char directory[HELPER_GUEST_PATH_BYTES] = COPY_DIRECTORY;
    int r;

    if (!run->copied)
        helper_share_guest_path(run->sandbox.runtime, run->sandbox.name, directory);
    r = run_container(run, directory);
    if (r == 0)
        return 0;
    (void)error_set_errno(&run->outcome.error, r, "the helper cannot be started");
    return refuse(run, REASON_HELPER_FAILED);
}

/* ---- both kinds -------------------------------------------------------------------------- */

static int copy_task(struct helper_run *run, const struct helper_task *task)
{
    run->grow = task->grow;
    for (; run->paths < task->paths && run->paths < HELPER_VOLUMES; run->paths++) {
        run->path[run->paths] = strdup(task->path[run->paths]);
        if (!run->path[run->paths])
            return -ENOMEM;
    }
    if (task->call)
        run->call = strdup(task->call);
    return task->call && !run->call ? -ENOMEM : 0;
}

static void on_guest(const struct guest_traits *traits, const struct error *unknown, void *userdata)
{
    static int (*const steps[])(struct helper_run * run) = {
        open_program, open_share, begin_record, place, start_container,
    };
    struct helper_run *run = userdata;
    int r = judge_guest(run, traits, unknown);

    run->guest = helper_guest_free(run->guest);
    for (size_t i = 0; r == 0 && i < array_length(steps); i++)
        r = steps[i](run);
    if (r < 0)
        finish(run);
}

/* A guest path that is unknown now may be known soon. */
static int begin_run(struct helper_run *run, bool withheld)
{
    bool is_alive = run->sandbox.is_alive;
    const char *text = !is_alive  ? "the sandbox has ended"
                       : withheld ? "it may be mounted where a volume is that must not grow; mount "
                                    "paths that end differently tell them apart"
                                  : "nothing says where the guest has mounted this volume";

    if ((run->paths > 0 || run->call) && is_alive)
        return helper_guest_new(run->context, &run->sandbox, on_guest, run, &run->guest);
    run->outcome.reason = is_alive ? REASON_GUEST_PATH_UNKNOWN : REASON_AGENT_UNREACHABLE;
    (void)error_set(&run->outcome.error, 0, "%s", text);
    loop_timer_start(run->context->loop, &run->deferred, 0, on_deferred);
    return 0;
}

/* Remains that cannot be removed now stay on record, and are tried again. */
static void leave(struct helper_run *run, const struct error *why)
{
    run->outcome.reason = REASON_HELPER_FAILED;
    run->outcome.error = run->outcome.removal_error = *why;
    run->outcome.left = true;
}

/* The directory is needed to find a container whose creation may be in progress. NULL: it does not
 * exist. 0 or -errno. */
static int find_directory(const struct helper_run *run,
                          char ret_path[static HELPER_GUEST_PATH_BYTES], const char **ret_directory)
{
    int r = run->share < 0 ? HELPER_SHARE_HAS_NOT : helper_share_has(run->share, run->sandbox.name);

    if (run->copied) {
        *ret_directory = COPY_DIRECTORY;
        return 0;
    }
    if (r == HELPER_SHARE_HAS)
        helper_share_guest_path(run->sandbox.runtime, run->sandbox.name, ret_path);
    *ret_directory = r == HELPER_SHARE_HAS ? ret_path : NULL;
    return r < 0 ? r : 0;
}

/* A guest that cannot be described now may have the copied program; only one whose share has the
 * directory does not. */
static void on_guest_to_clean(const struct guest_traits *traits, const struct error *unknown,
                              void *userdata)
{
    struct helper_run *run = userdata;
    char path[HELPER_GUEST_PATH_BYTES];
    const char *directory;
    struct error error = unknown ? *unknown : (struct error){0};
    int r;

    run->copied = !unknown && traits->share == GUEST_SHARE_NONE;
    run->guest = helper_guest_free(run->guest);
    r = find_directory(run, path, &directory);
    if (r == 0 && unknown && !directory)
        (void)error_prefix(&error, "whether the program was copied into the guest is not known: ");
    else if (r == 0 && (r = run_container(run, directory)) == 0)
        return;
    else
        (void)error_set_errno(&error, r, "the clean-up cannot be started");
    leave(run, &error);
    finish(run);
}

/* If the sandbox is gone, only the directory can be left. */
static int begin_clean_up(struct helper_run *run)
{
    struct error error = {0};
    int r;

    r = helper_share_open(run->context->root, run->sandbox.runtime, run->sandbox.sandbox_id,
                          &run->share, &error);
    if (r < 0)
        leave(run, &error);
    else if (run->sandbox.is_alive)
        return helper_guest_new(run->context, &run->sandbox, on_guest_to_clean, run, &run->guest);
    loop_timer_start(run->context->loop, &run->deferred, 0, on_deferred);
    return 0;
}

int helper_run_new(const struct context *context, const struct helper_task *task,
                   helper_run_done *done, void *userdata, struct helper_run **ret_run)
{
    struct helper_run *run = calloc(1, sizeof(*run));
    int r;

    if (!run)
        return -ENOMEM;
    *run = (struct helper_run){.context = context,
                               .sandbox = task->sandbox,
                               .cleans_up = task->sandbox.name[0],
                               .recorded = task->sandbox.name[0],
                               .share = -1,
                               .program = -1,
                               .done = done,
                               .userdata = userdata};
    r = copy_task(run, task);
    if (r == 0)
        r = run->cleans_up ? begin_clean_up(run) : begin_run(run, task->withheld);
    if (r < 0)
        (void)helper_run_free(run);
    else
        *ret_run = run;
    return r;
}
