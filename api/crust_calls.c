/* SPDX-License-Identifier: Apache-2.0 */
/* crust_calls.c - texts from requests, and replies that come later. */
#include "api/crust_calls.h"

#include <string.h>

#include "api/proto/crust_runtime.pb-c.h"
#include "lib/cleanup.h"
#include "lib/proto.h"
#include "reconciler/command/answers.h"

/* ---- texts ---- */

enum status_code crust_take_text(const ProtobufCBinaryData *member, const char *name,
                                 char *ret_text, size_t size, struct error *error)
{
    int r = grpc_copy_text(member, ret_text, size);

    if (r == 0)
        return STATUS_OK;
    return answer_refuse(error, ANSWER_BAD_REQUEST, "%s is %s", name,
                         r == GRPC_TEXT_TOO_LONG ? "too long" : "not UTF-8, or has a NUL");
}

enum status_code crust_take_options(const ProtobufCBinaryData *members, size_t count,
                                    const char *name, struct crust_options *ret_options,
                                    struct error *error)
{
    enum status_code code = STATUS_OK;
    struct buffer *texts = &ret_options->texts;
    char option[CRUST_PATH_BYTES];

    if (count > CRUST_OPTIONS)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "%s has more than %d", name, CRUST_OPTIONS);
    for (size_t i = 0; code == STATUS_OK && i < count; i++) {
        code = crust_take_text(&members[i], name, option, sizeof(option), error);
        if (code == STATUS_OK && buffer_append(texts, option, strlen(option) + 1) < 0)
            code = answer_refuse(error, ANSWER_BAD_REQUEST, "%s is too long", name);
    }
    for (size_t i = 0, at = 0; code == STATUS_OK && i < count; i++) {
        ret_options->option[i] = texts->data + at;
        at += strlen(ret_options->option[i]) + 1;
    }
    return code;
}

void crust_options_done(struct crust_options *options)
{
    buffer_done(&options->texts);
}

/* ---- now or later ---- */

void crust_wait_or_fail(struct grpc_call *call, enum status_code code, void (*cancel)(void *work),
                        void *work, const struct error *error)
{
    if (code == STATUS_OK)
        grpc_call_wait(call, cancel, work);
    else
        grpc_call_fail(call, code, "%s", error->text);
}

/* ---- stage ---- */

static void on_staged(void *userdata, enum status_code code, const struct error *error)
{
    const Crust__V1__RuntimeStageVolumeResponse response =
        CRUST__V1__RUNTIME_STAGE_VOLUME_RESPONSE__INIT;

    if (code == STATUS_OK)
        grpc_call_reply(userdata, &response.base);
    else
        grpc_call_fail(userdata, code, "%s", error->text);
}

static void cancel_staging(void *staging)
{
    (void)reconciler_stage_cancel(staging);
}

void crust_stage(struct grpc_call *call, enum status_code code,
                 const struct reconciler_stage *asked, struct error *error)
{
    struct staging *staging = NULL;

    if (code == STATUS_OK)
        code =
            reconciler_stage(grpc_call_reconciler(call), asked, on_staged, call, &staging, error);
    crust_wait_or_fail(call, code, cancel_staging, staging, error);
}

void crust_unstage(struct grpc_call *call, enum status_code code, const char *target_path,
                   struct error *error)
{
    struct staging *staging = NULL;

    if (code == STATUS_OK)
        code = reconciler_unstage(grpc_call_reconciler(call), target_path, on_staged, call,
                                  &staging, error);
    crust_wait_or_fail(call, code, cancel_staging, staging, error);
}

/* ---- stats ---- */

/* CSI's numbers are signed. */
static int64_t clamp(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

static void reply_stats(struct grpc_call *call, const struct reconciler_stats *stats)
{
    Crust__V1__VolumeUsage bytes = CRUST__V1__VOLUME_USAGE__INIT;
    Crust__V1__VolumeUsage inodes = CRUST__V1__VOLUME_USAGE__INIT;
    Crust__V1__VolumeUsage *usage[2];
    Crust__V1__VolumeCondition condition = CRUST__V1__VOLUME_CONDITION__INIT;
    Crust__V1__RuntimeGetVolumeStatsResponse response =
        CRUST__V1__RUNTIME_GET_VOLUME_STATS_RESPONSE__INIT;

    bytes.unit = CRUST__V1__VOLUME_USAGE__UNIT__BYTES;
    bytes.total = clamp(stats->total);
    bytes.used = clamp(stats->used);
    bytes.available = clamp(stats->available);
    inodes.unit = CRUST__V1__VOLUME_USAGE__UNIT__INODES;
    inodes.total = clamp(stats->total_inodes);
    inodes.used = clamp(stats->used_inodes);
    inodes.available = clamp(stats->available_inodes);
    condition.abnormal = stats->abnormal;
    condition.message = proto_borrow_text(stats->condition);
    response.usage = usage;
    if (stats->has_bytes)
        usage[response.n_usage++] = &bytes;
    if (stats->has_inodes)
        usage[response.n_usage++] = &inodes;
    response.volume_condition = &condition;
    grpc_call_reply(call, &response.base);
}

static void on_counted(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                       const struct error *error)
{
    if (code == STATUS_OK)
        reply_stats(userdata, stats);
    else
        grpc_call_fail(userdata, code, "%s", error->text);
}

static void cancel_stats(void *stats_call)
{
    (void)reconciler_stats_cancel(stats_call);
}

void crust_count(struct grpc_call *call, enum status_code code,
                 const struct reconciler_target *target, struct error *error)
{
    struct stats_call *stats_call = NULL;

    if (code == STATUS_OK)
        code = reconciler_ask_stats(grpc_call_reconciler(call), target, on_counted, call,
                                    &stats_call, error);
    crust_wait_or_fail(call, code, cancel_stats, stats_call, error);
}

/* ---- expand ---- */

static void on_expanded(void *userdata, enum status_code code,
                        const struct reconciler_capacity *capacity, const struct error *error)
{
    Crust__V1__RuntimeExpandVolumeResponse response =
        CRUST__V1__RUNTIME_EXPAND_VOLUME_RESPONSE__INIT;

    response.capacity_bytes = clamp(capacity->bytes);
    if (code == STATUS_OK)
        grpc_call_reply(userdata, &response.base);
    else
        grpc_call_fail(userdata, code, "%s", error->text);
}

static void cancel_expansion(void *expansion)
{
    (void)reconciler_expand_cancel(expansion);
}

void crust_expand(struct grpc_call *call, enum status_code code,
                  const struct reconciler_expand *asked, struct error *error)
{
    struct expansion *expansion = NULL;

    if (code == STATUS_OK)
        code = reconciler_expand(grpc_call_reconciler(call), asked, on_expanded, call, &expansion,
                                 error);
    crust_wait_or_fail(call, code, cancel_expansion, expansion, error);
}
