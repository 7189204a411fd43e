/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli_run.c - runs a runtime's tool once, and records it.
 *
 * The intent is committed before the program runs; if it cannot be recorded, the program does not
 * run. If the client goes away, the run is killed, and that is its result.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/command/clients_state.h"
#include "reconciler/command/runtime_cli.h"
#include "store/store.h"

enum { NUMBER_BYTES = 24, DETAIL_BYTES = 16 * 1024 };

struct runtime_cli_run {
    const struct context *context;
    struct child *child; /* NULL: it has ended */
    int64_t volume_id;
    bool resizes;
    uint64_t required_bytes, limit_bytes;
    runtime_cli_done *done;
    void *userdata;
};

void runtime_cli_pass_over(int64_t volume_id, const struct error *error)
{
    log_info(&(struct log_ids){.volume = volume_id},
             "the volume's runtime-cli was not run, and crustd takes its own routes: %s",
             error->text);
}

/* ---- the record ---- */

static void append_number(struct buffer *detail, const char *name, uint64_t number)
{
    if (number)
        buffer_append_format(detail, ",\"%s\":%" PRIu64, name, number);
}

static void begin_detail(struct buffer *detail, bool resizes)
{
    buffer_append_format(detail, "{\"command\":\"%s\"", resizes ? "resize" : "stats");
}

static int record(const struct runtime_cli_run *run, const char *kind, struct buffer *detail)
{
    struct store *store = run->context->store;
    int r = buffer_append_text(detail, "}");

    if (r == 0)
        r = store_begin(store);
    if (r == 0)
        r = store_journal(store, kind, run->volume_id, NULL, NULL, buffer_text(detail));
    return store_end(store, r);
}

static int record_intent(const struct runtime_cli_run *run, const char *program)
{
    cleanup(buffer_done) struct buffer detail = BUFFER_INIT(DETAIL_BYTES);

    begin_detail(&detail, run->resizes);
    json_append_member(&detail, "program", program);
    append_number(&detail, "required_bytes", run->required_bytes);
    append_number(&detail, "limit_bytes", run->limit_bytes);
    return record(run, "runtime_cli_intended", &detail);
}

/* answer: NULL if it is unusable, and `why` says so. The client gets the answer even if it cannot
 * be recorded. */
static void record_result(const struct runtime_cli_run *run,
                          const struct runtime_cli_answer *answer, const char *why)
{
    cleanup(buffer_done) struct buffer detail = BUFFER_INIT(DETAIL_BYTES);
    int r;

    begin_detail(&detail, run->resizes);
    if (!answer) {
        json_append_member(&detail, "error", why);
    } else {
        append_number(&detail, "capacity_bytes", answer->capacity_bytes);
        append_number(&detail, "total_bytes", answer->stats.total);
        append_number(&detail, "used_bytes", answer->stats.used);
    }
    r = record(run, "runtime_cli_answered", &detail);
    if (r < 0)
        log_warning(&(struct log_ids){.volume = run->volume_id},
                    "cannot record the answer of the volume's runtime-cli: %s", strerror(-r));
}

/* ---- its end ---- */

/* A driver grows the device and asks at once: its size is read anew. 0: there is none. */
static uint64_t newest_size(const struct context *context, const struct store_volume *volume)
{
    uint64_t bytes = volume->device_id ? volume_usable_bytes(context, volume) : 0;
    struct observed_device device;

    if (!bytes || volume->device_kind != DEVICE_KIND_BLOCK ||
        observe_device_number(context->sysfs, volume->major, volume->minor, &device) != OBSERVED)
        return bytes;
    return device.size_bytes > bytes ? device.size_bytes : bytes;
}

static int judge(const struct runtime_cli_run *run, enum child_end end, int status,
                 const struct buffer *output, struct runtime_cli_answer *ret_answer,
                 struct error *error)
{
    const struct context *context = run->context;
    struct store_volume volume;
    uint64_t device_bytes;
    int r = store_get_volume(context->store, run->volume_id, &volume);

    if (r < 0)
        return error_set(error, r, "%s", store_error_text(context->store));
    if (r == STORE_NO_VOLUME)
        return error_set(error, -ESTALE, "the volume is gone");
    device_bytes = newest_size(context, &volume);
    if (run->resizes)
        r = runtime_cli_read_capacity(end, status, output, &ret_answer->capacity_bytes, error);
    else
        r = runtime_cli_read_stats(end, status, output, &ret_answer->stats, error);
    if (r < 0)
        return r;
    return run->resizes
               ? runtime_cli_check_capacity(ret_answer->capacity_bytes, run->required_bytes,
                                            run->limit_bytes, device_bytes, error)
               : runtime_cli_check_stats(&ret_answer->stats, device_bytes, error);
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    struct runtime_cli_run *run = userdata;
    struct runtime_cli_answer answer = {0};
    struct error error = {0};
    int r = judge(run, end, status, output, &answer, &error);

    run->child = child_free(child);
    record_result(run, r < 0 ? NULL : &answer, error.text);
    if (r < 0)
        log_info(&(struct log_ids){.volume = run->volume_id},
                 "the volume's runtime-cli gave no usable answer: %s", error.text);
    run->done(r < 0 ? NULL : &answer, run->userdata);
}

struct runtime_cli_run *runtime_cli_free(struct runtime_cli_run *run)
{
    if (run && run->child) {
        run->child = child_free(run->child);
        record_result(run, NULL, "nobody waited for it any more");
    }
    free(run);
    return NULL;
}

/* ---- its beginning ---- */

static int start(struct runtime_cli_run *run, const struct runtime_cli_question *question)
{
    char minimum[NUMBER_BYTES], maximum[NUMBER_BYTES];
    const char *const program = question->cli->program, *const path = question->target_path;
    const char *const kata[] = {program, "direct-volume", "stats", "--volume-path", path, NULL};
    const char *const stats[] = {program, "crust", "stats", path, NULL};
    const char *const resize[] = {program, "crust", "resize", path, minimum, maximum, NULL};
    const struct child_request request = {
        .arguments = question->resizes        ? resize
                     : question->cli->is_kata ? kata
                                              : stats,
        .output_limit = RUNTIME_CLI_OUTPUT_BYTES,
        .root = question->cli->root,
        /* Leaves time for crustd's own routes. */
        .deadline_ns = run->context->config->resize.call_timeout_seconds * NSEC_PER_SEC / 2,
    };

    (void)snprintf(minimum, sizeof(minimum), "%" PRIu64, question->required_bytes);
    (void)snprintf(maximum, sizeof(maximum), "%" PRIu64, question->limit_bytes);
    return child_new(run->context->loop, &request, on_end, run, &run->child);
}

static int refuse(struct runtime_cli_run *run, int r, const struct runtime_cli *cli)
{
    const bool wants_capability = r == CHILD_NOT_PERMITTED && cli->root >= 0;
    struct error error;

    (void)error_set(&error, r, "%s: it can't be run: %s%s", cli->program, child_explain(r),
                    wants_capability ? " (below --root that takes CAP_SYS_CHROOT)" : "");
    record_result(run, NULL, error.text);
    runtime_cli_pass_over(run->volume_id, &error);
    free(run);
    return r;
}

int runtime_cli_ask(const struct context *context, const struct runtime_cli_question *question,
                    runtime_cli_done *done, void *userdata, struct runtime_cli_run **ret_run)
{
    struct runtime_cli_run *run;
    int r;

    if (question->resizes && question->cli->is_kata)
        return -ENOSYS; /* kata-runtime's resize tells the guest alone, and not the VMM */
    run = calloc(1, sizeof(*run));
    if (!run)
        return -ENOMEM;
    *run = (struct runtime_cli_run){
        .context = context,
        .volume_id = question->volume_id,
        .resizes = question->resizes,
        .required_bytes = question->required_bytes,
        .limit_bytes = question->limit_bytes,
        .done = done,
        .userdata = userdata,
    };
    r = record_intent(run, question->cli->program);
    if (r < 0) {
        free(run);
        return r;
    }
    r = start(run, question);
    if (r < 0)
        return refuse(run, r, question->cli);
    *ret_run = run;
    return 0;
}
