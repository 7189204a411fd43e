/* SPDX-License-Identifier: Apache-2.0 */
/* shim_client.c - two dialects of one small HTTP API.
 *
 * The shim finishes a request even if the connection is closed. That does no harm: the agent's
 * calls may be repeated, and the next one gets the result.
 *
 * Go's shim writes an error as Go prints it. One of the agent's is gRPC's form,
 *
 *     rpc error: code = Unimplemented desc = resize_volume is not implemented
 *
 * from the first byte on. With anything before it, or in any other form, the agent was not reached,
 * or the shim does not know the volume. The shim's own deadline has the same form and is
 * distinguished by its words.
 *
 * Rust prints its structures for debugging, member by member in the order of their definition.
 * Nothing of the guest's is in the list of usages but numbers, so its end is the first text that
 * looks like it; the condition's message is a quoted string with escapes, which are left as they
 * are. A version that prints otherwise is not understood, and the resize is then not verified.
 */
#include "agent-client/shim_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/http_exchange.h"
#include "lib/json.h"
#include "lib/text.h"

enum {
    HTTP_NOT_FOUND = 404,
    HTTP_METHOD_NOT_ALLOWED = 405,
    HTTP_INTERNAL = 500,
    HTTP_NOT_IMPLEMENTED = 501,
};

static const struct json_limits limits = {AGENT_REPLY_BYTES, 4, 4096};

/* ---- requests ---- */

int shim_encode(enum shim_dialect dialect, const char *volume, bool stats, uint64_t bytes,
                const char **ret_method, struct buffer *target, struct buffer *body)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._~/";
    const bool is_go = dialect == SHIM_GO;
    const size_t length = strlen(volume);

    *ret_method = is_go && stats ? "GET" : "POST";
    if (length >= AGENT_PATH_BYTES)
        return -EMSGSIZE;
    if (!json_is_text(volume, length))
        return -EILSEQ;
    if (!stats) {
        buffer_append_text(target, "/direct-volume/resize");
        buffer_append_text(body, "{"); /* the size is a uint64 to both, not a double */
        json_append_member(body, is_go ? "VolumePath" : "volume_guest_path", volume);
        buffer_append_format(body, ",\"%s\":%" PRIu64 "}", is_go ? "Size" : "size", bytes);
        return buffer_fail(body, buffer_error(target));
    }
    buffer_append_format(target, "%s/direct-volume/stats?path=", is_go ? "" : "http://localhost");
    while (*volume) {
        size_t count = strspn(volume, plain);

        if (count)
            buffer_append(target, volume, count);
        else
            buffer_append_format(target, "%s%02X", is_go ? "%25" : "%", (unsigned char)*volume);
        volume += count ? count : 1;
    }
    return buffer_error(target);
}

/* ---- errors ------------------------------------------------------------------------------ */

static const char *const go_codes[] = {
    "OK",       "Canceled",        "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",   "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",      "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated",
};

/* Moves past the literal; false and nothing moved where it does not stand there. */
static bool skip(const char **cursor, const char *literal)
{
    size_t length = strlen(literal);

    if (strncmp(*cursor, literal, length) != 0)
        return false;
    *cursor += length;
    return true;
}

static bool read_number(const char **cursor, uint64_t *ret_number)
{
    char *end;

    if (**cursor < '0' || **cursor > '9')
        return false;
    errno = 0;
    *ret_number = strtoull(*cursor, &end, 10);
    *cursor = end;
    return errno == 0;
}

/* A name, or Code(N) for what has none. 0 is no error. */
static int read_code(const char **cursor)
{
    uint64_t number;

    if (skip(cursor, "Code("))
        return read_number(cursor, &number) && skip(cursor, ")") && number <= INT32_MAX
                   ? (int)number
                   : STATUS_OK;
    for (size_t i = 1; i < array_length(go_codes); i++) {
        size_t length = strlen(go_codes[i]);

        if (strncmp(*cursor, go_codes[i], length) == 0 && (*cursor)[length] == ' ') {
            *cursor += length;
            return (int)i;
        }
    }
    return STATUS_OK;
}

/* Whether the body is the agent's answer. */
static bool read_status(const char *body, size_t length, struct ttrpc_status *ret_status)
{
    const char *cursor = body;

    if (!skip(&cursor, "rpc error: code = "))
        return false;
    ret_status->code = read_code(&cursor);
    if (ret_status->code == STATUS_OK || !skip(&cursor, " desc = "))
        return false;
    agent_clean_text(cursor, length - (size_t)(cursor - body), ret_status->message,
                     sizeof(ret_status->message));
    return true;
}

enum agent_outcome shim_outcome(unsigned status, const char *body, size_t length,
                                struct error *error)
{
    struct ttrpc_status said;

    if (status / 100 == 2)
        return AGENT_DONE;
    if (status == HTTP_INTERNAL && read_status(body, length, &said)) {
        agent_describe_status(&said, "by the shim", error);
        /* In the words of kata_agent.go, when its own time for the call is over. */
        if (said.code == STATUS_DEADLINE_EXCEEDED && strstr(said.message, "Request timed out"))
            return AGENT_UNREACHABLE;
        return agent_outcome_from_status(said.code, said.message);
    }
    agent_clean_text(body, length, said.message, sizeof(said.message));
    (void)error_set(error, 0, "the shim answers %u%s%s", status, said.message[0] ? ": " : "",
                    said.message);
    return status == HTTP_NOT_FOUND || status == HTTP_METHOD_NOT_ALLOWED ||
                   status == HTTP_NOT_IMPLEMENTED
               ? AGENT_UNSUPPORTED
               : AGENT_UNREACHABLE;
}

/* ---- stats ------------------------------------------------------------------------------- */

/* Go leaves out what is zero. */
static bool read_member(const cJSON *object, const char *name, uint64_t *ret_number)
{
    enum json_number found = json_number(object, name, ret_number);

    if (found == JSON_NUMBER_ABSENT)
        *ret_number = 0;
    return found != JSON_NUMBER_WRONG;
}

static int parse_go(const char *body, size_t length, struct agent_stats *stats)
{
    static const char names[] =
        "usage{available total used unit} volume_condition{abnormal message}";
    cleanup(json_deletep) cJSON *object = NULL;
    const cJSON *list, *entry, *condition;
    const char *message;
    int r = json_read(body, length, limits, names, &object, NULL);

    if (r != FILE_READ)
        return r == JSON_NO_MEMORY ? r : JSON_WRONG;
    list = json_member(object, "usage");
    cJSON_ArrayForEach(entry, list)
    {
        struct agent_usage usage;

        if (!read_member(entry, "available", &usage.available) ||
            !read_member(entry, "total", &usage.total) ||
            !read_member(entry, "used", &usage.used) || !read_member(entry, "unit", &usage.unit))
            return -EBADMSG;
        agent_stats_take(stats, &usage);
    }
    condition = json_member(object, "volume_condition");
    message = json_string(condition, "message");
    stats->abnormal = cJSON_IsTrue(json_member(condition, "abnormal"));
    if (message)
        agent_clean_text(message, strlen(message), stats->condition, sizeof(stats->condition));
    return 0;
}

static bool read_unit(const char **cursor, uint64_t *ret_unit)
{
    if (skip(cursor, "BYTES"))
        *ret_unit = AGENT_UNIT_BYTES;
    else if (skip(cursor, "INODES"))
        *ret_unit = AGENT_UNIT_INODES;
    else if (skip(cursor, "UNKNOWN"))
        *ret_unit = 0;
    else
        return read_number(cursor, ret_unit);
    return true;
}

static bool read_usage(const char **cursor, struct agent_usage *ret_usage)
{
    return skip(cursor, " available: ") && read_number(cursor, &ret_usage->available) &&
           skip(cursor, ", total: ") && read_number(cursor, &ret_usage->total) &&
           skip(cursor, ", used: ") && read_number(cursor, &ret_usage->used) &&
           skip(cursor, ", unit: ") && read_unit(cursor, &ret_usage->unit);
}

static bool read_condition(const char *cursor, struct agent_stats *stats)
{
    const char *message;

    if (!skip(&cursor, "VolumeCondition { abnormal: "))
        return false;
    stats->abnormal = skip(&cursor, "true");
    if ((!stats->abnormal && !skip(&cursor, "false")) || !skip(&cursor, ", message: \""))
        return false;
    message = cursor; /* a quoted string of Rust's: up to a quote that is not escaped */
    while (*cursor && *cursor != '"')
        cursor += *cursor == '\\' && cursor[1] ? 2 : 1;
    agent_clean_text(message, (size_t)(cursor - message), stats->condition,
                     sizeof(stats->condition));
    return *cursor;
}

static int parse_rust(const char *body, size_t length, struct agent_stats *stats)
{
    static const char entry[] = "VolumeUsage {", middle[] = "] Volume Condition: ";
    const char *cursor = body, *end;

    if (memchr(body, '\0', length) || !skip(&cursor, "Usage: ["))
        return -EBADMSG;
    end = strstr(body, middle);
    if (!end || !read_condition(end + strlen(middle), stats))
        return -EBADMSG;
    while ((cursor = strstr(cursor, entry)) && cursor < end) {
        struct agent_usage usage;

        cursor += strlen(entry);
        if (!read_usage(&cursor, &usage))
            return -EBADMSG;
        agent_stats_take(stats, &usage);
    }
    return 0;
}

int shim_parse_stats(enum shim_dialect dialect, const char *body, size_t length,
                     struct agent_stats *ret_stats)
{
    struct agent_stats stats = {0};
    int r = dialect == SHIM_GO ? parse_go(body, length, &stats) : parse_rust(body, length, &stats);

    if (r == 0)
        *ret_stats = stats;
    return r;
}

/* ---- where the agent listens ------------------------------------------------------------- */

int shim_parse_agent_url(const char *body, size_t length, uint32_t default_port, char *ret_address,
                         size_t size)
{
    struct agent_address address;
    int written;

    while (length && body[length - 1] && strchr(" \t\r\n", body[length - 1]))
        length--;
    if (!length || length >= size || memchr(body, '\0', length))
        return -EINVAL;
    (void)snprintf(ret_address, size, "%.*s", (int)length, body);
    if (agent_address_parse(ret_address, &address, NULL) == 0)
        return 0;
    written = snprintf(ret_address, size, "%.*s:%u", (int)length, body, default_port);
    return written < (int)size && strstr(ret_address, "vsock://") &&
                   agent_address_parse(ret_address, &address, NULL) == 0
               ? 0
               : -EINVAL;
}

/* ---- calls ---- */

static enum http_exchange_end exchange(const struct agent_request *asked,
                                       struct http_exchange_request request, uint64_t until_ns,
                                       unsigned *ret_status, struct buffer *answer,
                                       struct error *error)
{
    request.directory = asked->root;
    request.socket_path = asked->address;
    request.listener = asked->listener;
    return http_exchange_perform(&request, until_ns, ret_status, answer, error);
}

static void ask(const struct agent_request *asked, enum shim_dialect dialect, bool stats,
                uint64_t until_ns, struct agent_reply *reply)
{
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(SHIM_QUERY_BYTES);
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(SHIM_QUERY_BYTES);
    cleanup(buffer_done) struct buffer answer = BUFFER_INIT(AGENT_REPLY_BYTES);
    struct error *error = &reply->error;
    enum http_exchange_end end;
    const char *method;
    unsigned status;
    int r = shim_encode(dialect, asked->volume, stats, asked->bytes, &method, &target, &body);

    *reply = (struct agent_reply){.outcome = AGENT_UNREACHABLE};
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot call the agent");
        return;
    }
    end = exchange(asked,
                   (struct http_exchange_request){.method = method,
                                                  .target = buffer_text(&target),
                                                  .body = body.length ? buffer_text(&body) : NULL,
                                                  .body_limit = AGENT_REPLY_BYTES},
                   until_ns, &status, &answer, error);
    if (end == HTTP_EXCHANGE_ANSWERED) {
        reply->outcome = shim_outcome(status, buffer_text(&answer), answer.length, error);
    } else if (end == HTTP_EXCHANGE_NOTHING && dialect == SHIM_RUST) {
        (void)error_set(error, 0,
                        "the shim closed the connection without a status, as Kata's Rust shim does "
                        "whatever the agent's error is; its log says which");
        reply->outcome = AGENT_UNEXPLAINED;
    } else {
        (void)error_prefix(error, "the shim: ");
    }
    if (reply->outcome == AGENT_DONE && stats &&
        shim_parse_stats(dialect, buffer_text(&answer), answer.length, &reply->stats) < 0) {
        reply->outcome = AGENT_FAILED;
        (void)error_set(error, 0, "the shim's answer to stats cannot be understood");
    }
}

void shim_call_run(const struct agent_request *request, enum shim_dialect dialect,
                   uint64_t until_ns, struct agent_reply *reply)
{
    ask(request, dialect, !request->resizes, until_ns, reply);
    reply->stats_outcome = reply->outcome;
    if (!request->resizes || reply->outcome != AGENT_DONE)
        return;
    ask(request, dialect, true, until_ns, reply);
    reply->stats_outcome = reply->outcome;
    reply->outcome = AGENT_DONE;
}

int shim_ask_address(const struct agent_request *request, uint64_t until_ns, uint32_t default_port,
                     char *ret_address, size_t size, struct error *error)
{
    cleanup(buffer_done) struct buffer answer = BUFFER_INIT(size);
    unsigned status;
    char shown[64];

    if (exchange(request,
                 (struct http_exchange_request){
                     .method = "GET", .target = "/agent-url", .body_limit = size},
                 until_ns, &status, &answer, error) != HTTP_EXCHANGE_ANSWERED) {
        (void)error_prefix(error, "no agent address is known, and the shim cannot help: ");
        return -EINVAL;
    }
    if (status == 200 && shim_parse_agent_url(buffer_text(&answer), answer.length, default_port,
                                              ret_address, size) == 0)
        return 0;
    text_clean(buffer_text(&answer), answer.length, shown, sizeof(shown));
    return error_set(error, -EINVAL, "no agent address is known, and the shim answers %u: %s",
                     status, shown);
}
