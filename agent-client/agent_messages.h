/* SPDX-License-Identifier: Apache-2.0 */
/* agent_messages.h - the payloads of ResizeVolume and GetVolumeStats, in plain structures.
 *
 * protobuf-c stays behind this header and ttrpc_codec.h. Everything parsed here came out of a guest
 * and is hostile: lengths are bounded, memory is bounded (many small sub-messages in one reply
 * would cost fifty times its size), paths hold no NUL, texts are fit to be shown. Source:
 * kata-containers src/libs/protocols/protos/{agent,csi}.proto.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

#define AGENT_SERVICE       "grpc.AgentService"
#define AGENT_METHOD_RESIZE "ResizeVolume"
#define AGENT_METHOD_STATS  "GetVolumeStats"

/* How crust-guest-agent begins a FAILED_PRECONDITION that is about the file system itself. Its
 * others are about a layer below the file system. */
#define AGENT_NOT_GROWABLE_TEXT "the file system cannot be grown: "
/* What then follows if an error has stopped it; and how an UNAVAILABLE begins if the mount is
 * read-only by request. */
#define AGENT_SHUT_DOWN_TEXT "the file system was shut down"
#define AGENT_READ_ONLY_TEXT "the file system is mounted read-only"

/* One of these: it has grown as far as it ever can. And a DEADLINE_EXCEEDED: it has grown meanwhile
 * and goes on. */
#define AGENT_LIMIT_TEXT   AGENT_NOT_GROWABLE_TEXT "at its limit: "
#define AGENT_GROWING_TEXT "the file system is growing: "

enum {
    AGENT_PATH_BYTES = 4096,       /* of volume_guest_path, its NUL included */
    AGENT_REPLY_BYTES = 64 * 1024, /* the longest reply that is taken */
};

struct agent_stats {
    bool has_bytes;
    uint64_t total, used, available;
    bool has_inodes;
    uint64_t total_inodes, used_inodes, available_inodes;
    bool abnormal;
    char condition[128];
};

enum { AGENT_UNIT_BYTES = 1, AGENT_UNIT_INODES = 2 }; /* csi.proto, VolumeUsage.Unit */

struct agent_usage {
    uint64_t available, total, used, unit;
};

/* The first usage of each unit counts; others, unknown units, and inodes of a file system that has
 * none (btrfs: 0 in all) are skipped. */
void agent_stats_take(struct agent_stats *stats, const struct agent_usage *usage);

/* Append to the buffer. 0, -EMSGSIZE, -ENOMEM. A request of ResizeVolume; without bytes (0) it is
 * one of GetVolumeStats. */
int agent_append_request(struct buffer *payload, const char *volume_path, uint64_t bytes);
int agent_append_stats(struct buffer *payload, const struct agent_stats *stats);

/* Of either request. 0; -EBADMSG: not such a message; -EINVAL: the path is empty, too long or
 * contains a NUL. ret_bytes may be NULL. */
int agent_parse_request(const void *payload, size_t length,
                        char ret_volume_path[static AGENT_PATH_BYTES], uint64_t *ret_bytes);

/* 0, -EBADMSG. */
int agent_parse_stats(const void *payload, size_t length, struct agent_stats *ret_stats);

/* ---- agent text ----------------------------------------------------------------------------- */

/* A text from the guest, made fit to be shown.
 *
 * kata-agent formats errors for debugging, so that they arrive in double quotes, at times with
 * escaped ones inside; the outer pair goes. So do the backtrace that follows an error, and the
 * lines of its causes, which become one. Control characters, NUL and bytes that are not UTF-8 are
 * escaped, and what does not fit is cut at the end of a character.
 */

/* size: of ret_text, at least 1; it always ends with a NUL. */
void agent_clean_text(const void *bytes, size_t length, char *ret_text, size_t size);
