/* SPDX-License-Identifier: Apache-2.0 */
/* agent_messages.c - from plain structures to protobuf and back.
 *
 * Fields that a peer leaves out (proto3 has no required ones) read as zero or empty. An empty path
 * is refused here, so that no other file has to check for it.
 */
#include "agent-client/agent_messages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "agent-client/agent.pb-c.h"
#include "lib/cleanup.h"
#include "lib/proto.h"
#include "lib/text.h"

int agent_append_request(struct buffer *payload, const char *volume_path, uint64_t bytes)
{
    Agent__ResizeVolumeRequest message = AGENT__RESIZE_VOLUME_REQUEST__INIT;

    message.volume_guest_path = proto_borrow_text(volume_path);
    message.size = bytes;
    return proto_append(payload, &message.base);
}

int agent_append_stats(struct buffer *payload, const struct agent_stats *stats)
{
    Agent__VolumeUsage bytes = AGENT__VOLUME_USAGE__INIT;
    Agent__VolumeUsage inodes = AGENT__VOLUME_USAGE__INIT;
    Agent__VolumeCondition condition = AGENT__VOLUME_CONDITION__INIT;
    Agent__VolumeStatsResponse message = AGENT__VOLUME_STATS_RESPONSE__INIT;
    Agent__VolumeUsage *usage[2];

    bytes.unit = AGENT__VOLUME_USAGE__UNIT__BYTES;
    bytes.total = stats->total;
    bytes.used = stats->used;
    bytes.available = stats->available;
    inodes.unit = AGENT__VOLUME_USAGE__UNIT__INODES;
    inodes.total = stats->total_inodes;
    inodes.used = stats->used_inodes;
    inodes.available = stats->available_inodes;
    condition.abnormal = stats->abnormal;
    condition.message = proto_borrow_text(stats->condition);
    if (stats->has_bytes)
        usage[message.n_usage++] = &bytes;
    if (stats->has_inodes)
        usage[message.n_usage++] = &inodes;
    message.usage = usage;
    message.volume_condition = &condition;
    return proto_append(payload, &message.base);
}

int agent_parse_request(const void *payload, size_t length,
                        char ret_volume_path[static AGENT_PATH_BYTES], uint64_t *ret_bytes)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&agent__resize_volume_request__descriptor, payload, length, &unpacked);
    const Agent__ResizeVolumeRequest *message = (const void *)unpacked;
    const ProtobufCBinaryData *path;

    if (r < 0)
        return r;
    path = &message->volume_guest_path;
    if (path->len == 0 || path->len >= AGENT_PATH_BYTES || memchr(path->data, '\0', path->len))
        return -EINVAL;
    memcpy(ret_volume_path, path->data, path->len);
    ret_volume_path[path->len] = '\0';
    if (ret_bytes)
        *ret_bytes = message->size;
    return 0;
}

void agent_stats_take(struct agent_stats *stats, const struct agent_usage *usage)
{
    if (usage->unit == AGENT_UNIT_BYTES && !stats->has_bytes) {
        stats->has_bytes = true;
        stats->total = usage->total;
        stats->used = usage->used;
        stats->available = usage->available;
    } else if (usage->unit == AGENT_UNIT_INODES && !stats->has_inodes && usage->total) {
        stats->has_inodes = true;
        stats->total_inodes = usage->total;
        stats->used_inodes = usage->used;
        stats->available_inodes = usage->available;
    }
}

int agent_parse_stats(const void *payload, size_t length, struct agent_stats *ret_stats)
{
    struct agent_stats stats = {0};
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&agent__volume_stats_response__descriptor, payload, length, &unpacked);
    const Agent__VolumeStatsResponse *message = (const void *)unpacked;

    if (r < 0)
        return r;
    for (size_t i = 0; i < message->n_usage; i++) {
        const Agent__VolumeUsage *usage = message->usage[i];

        agent_stats_take(&stats, &(struct agent_usage){usage->available, usage->total, usage->used,
                                                       (uint64_t)usage->unit});
    }
    if (message->volume_condition) {
        const Agent__VolumeCondition *condition = message->volume_condition;

        stats.abnormal = condition->abnormal;
        agent_clean_text(condition->message.data, condition->message.len, stats.condition,
                         sizeof(stats.condition));
    }
    *ret_stats = stats;
    return 0;
}

/* ---- agent text ----------------------------------------------------------------------------- */

enum { JOINED_BYTES = 1024 }; /* more than any caller keeps of a text */

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static bool drop_around(const char **text, const char **end, const char *quote)
{
    size_t length = strlen(quote);

    if ((size_t)(*end - *text) < 2 * length || memcmp(*text, quote, length) != 0 ||
        memcmp(*end - length, quote, length) != 0)
        return false;
    *text += length;
    *end -= length;
    return true;
}

/* Outer white space and the pairs of quotes around the whole text, escaped ones included. */
static void strip(const char **text, const char **end)
{
    do {
        while (*text < *end && is_space(**text))
            ++*text;
        while (*text < *end && is_space((*end)[-1]))
            --*end;
    } while (drop_around(text, end, "\"") || drop_around(text, end, "\\\""));
}

/* White space with a line's end in it becomes one space. Returns how many bytes are kept. */
static size_t join_lines(const char *text, const char *end, char *ret_text, size_t size)
{
    size_t length = 0;

    while (text < end && length < size) {
        const char *next = text;
        bool line_ends = false;

        for (; next < end && is_space(*next); next++)
            line_ends = line_ends || *next == '\n';
        if (line_ends)
            text = next;
        ret_text[length++] = line_ends ? ' ' : *text++;
    }
    return length;
}

void agent_clean_text(const void *bytes, size_t length, char *ret_text, size_t size)
{
    static const char mark[] = "Stack backtrace:";
    const char *text = length ? bytes : "", *end = text + length, *backtrace;
    char joined[JOINED_BYTES];

    strip(&text, &end);
    backtrace = memmem(text, (size_t)(end - text), mark, sizeof(mark) - 1);
    if (backtrace && backtrace > text && is_space(backtrace[-1]))
        end = backtrace;
    strip(&text, &end);
    text_clean(joined, join_lines(text, end, joined, sizeof(joined)), ret_text, size);
}
