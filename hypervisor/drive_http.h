/* SPDX-License-Identifier: Apache-2.0 */
/* drive_http.h - a drive of a VMM that is asked over HTTP: Cloud Hypervisor and Firecracker.
 * Private to hypervisor/.
 *
 * Both open the disk by a path and report their drives with that path. So the way through a call is
 * the same (drive_http.c), and a kind brings the words: where to ask, how to read the answers, and
 * the bodies of the requests.
 */
#pragma once

#include "hypervisor/drive_report.h"
#include "hypervisor/hypervisor_ops.h"
#include "lib/buffer.h"
#include "lib/http_exchange.h"

/* What the VMM calls drives of crustd's begins with this. */
#define DRIVE_HTTP_PREFIX "crust_"

struct drive_http;

enum drive_http_change { DRIVE_HTTP_ADD, DRIVE_HTTP_REMOVE, DRIVE_HTTP_LIMIT, DRIVE_HTTP_RESIZE };

struct drive_http_kind {
    const char *version_target, *list_target;
    /* The drive's id in the VMM's own letters, after the prefix, and back (false: it is none). */
    void (*encode_id)(const char *drive_id, char ret_id[static DRIVE_ID_BYTES]);
    bool (*decode_id)(const char *id, char ret_drive_id[static HYPERVISOR_DRIVE_ID_BYTES]);
    /* DONE: this version attaches drives. VERSION or UNREACHABLE with `error`. */
    enum hypervisor_drive_outcome (*read_version)(const char *body, size_t length,
                                                  struct error *error);
    /* 0: http->drives has the drives, and http->leaving the ids of those that the guest has not let
     * go of. A negative number with `error`: the answer makes no sense, or the VM is not running.
     */
    int (*read_list)(struct drive_http *http, const char *body, size_t length, struct error *error);
    /* The method, target and body of a request. A negative number: they do not fit. An empty body:
     * there is none. */
    int (*encode)(const struct drive_http *http, enum drive_http_change change,
                  const char **ret_method, struct buffer *target, struct buffer *body);
    /* What a refusal means; `error` gets its text. */
    enum hypervisor_drive_outcome (*read_refusal)(const char *body, size_t length,
                                                  struct error *error);
    /* The serial that the guest sees. false: it is not known. */
    bool (*find_serial)(const struct drive_http *http, const struct drive *drive,
                        char ret_serial[static HYPERVISOR_DRIVE_SERIAL_BYTES]);
};

typedef void drive_http_answered(struct drive_http *http,
                                 const struct http_exchange_answer *answer);

/* A kind's state is this, or begins with it. */
struct drive_http {
    struct hypervisor_drive_call call;
    const struct drive_http_kind *kind;
    char id[DRIVE_ID_BYTES];        /* of the drive, in the VMM */
    uint64_t until_ns;              /* clock_boottime() of the deadline */
    struct http_exchange *exchange; /* in progress; NULL: none */
    drive_http_answered *answered;
    struct drive_report drives;
    struct drive_report leaving;
    bool is_read;                          /* these are what the VMM has */
    bool is_added;                         /* by this call */
    bool told;                             /* to remove the drive */
    enum hypervisor_drive_outcome failure; /* of an ATTACH that is taken back; DONE: none */
    struct error error;                    /* of that */
    struct loop_timer waiting;
    uint64_t waiting_since_ns; /* 0: nothing was waited for yet */
    uint64_t pause_ns;         /* the next one is twice as long */
    struct hypervisor_drive_entry *entries;
};

/* For the kinds' hypervisor_drive_ops. */
int drive_http_start(struct drive_http *http, const struct drive_http_kind *kind);
void drive_http_stop(struct hypervisor_drive_call *call);
void drive_http_done(struct hypervisor_drive_call *call);

/* Appends the member `name` with both buckets. Those without a limit are left out, or, if
 * `all`, are there and mean "no limit". */
void drive_http_append_limits(struct buffer *body, const char *name,
                              const struct hypervisor_limits *limits, bool all);
