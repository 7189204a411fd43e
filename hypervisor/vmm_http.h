/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_http.h - acts on a VMM whose control socket speaks HTTP, in a worker. Private to hypervisor/.
 *
 * Cloud Hypervisor and Firecracker open a drive's disk by a path and report their drives with that
 * path. So all acts are the same, and a kind brings the words: where to ask, how to read the
 * answers, and the bodies of the requests.
 *
 * Both use the same small library (micro-http): it serves at most ten connections and answers an
 * eleventh with 503; one request at a time; 1024 bytes for a header line. So each request uses a
 * connection of its own, closed after the answer.
 */
#pragma once

#include "hypervisor/drive_report.h"
#include "lib/buffer.h"
#include "lib/json.h"

/* The VMM's names of drives that crustd attached begin with this. */
#define VMM_HTTP_PREFIX "crust_"

enum vmm_http_change { VMM_HTTP_ADD, VMM_HTTP_REMOVE, VMM_HTTP_LIMIT, VMM_HTTP_RESIZE };

struct vmm_http {
    const struct vmm_http_kind *kind;
    const struct hypervisor_request *request;
    struct hypervisor_reply *reply; /* its error says why the last request has failed */
    uint64_t deadline_ns;           /* clock_boottime() */
    bool is_own;                    /* the act is about what crustd attached */
    unsigned status;                /* of the last answer; 0: there was none */
    struct buffer answer;           /* its body */
    char id[DRIVE_ID_BYTES];        /* of the drive, in the VMM; "": none was found */
    struct drive_report drives;
    struct drive_report leaving; /* the ids of crustd's that the guest has not let go of */
    bool is_read;                /* these are what the VMM has */
    bool is_paused;
};

/* Reads an answer: DONE, or an error in the reply. */
typedef enum hypervisor_outcome vmm_http_reader(struct vmm_http *http, const cJSON *answer);

struct vmm_http_kind {
    const char *version_target, *list_target;
    bool has_plain_ids; /* of letters, digits and '_': '-' and '_' of a drive's id are "_m", "_u" */
    bool resizes_by_version; /* also drives that the runtime attached */
    vmm_http_reader *read_version;
    vmm_http_reader *read_list;  /* DONE if the VM runs or is paused */
    vmm_http_reader *read_guest; /* NULL: it is not known */
    /* What is wrong, from a refusal, which may be NULL; NULL: all of the body says it. */
    const char *(*find_fault)(const cJSON *refusal);
    /* The outcome for that text. */
    enum hypervisor_outcome (*judge_fault)(struct error *text);
    /* Writes target and body of a request, and returns its method. NULL, with an error: there is
     * none. `drive` is NULL for ADD. */
    const char *(*encode)(const struct vmm_http *http, enum vmm_http_change change,
                          const struct drive *drive, struct buffer *target, struct buffer *body);
    /* For a VMM that makes serials: the one that the guest sees. false, and "": it is not known. */
    bool (*make_serial)(const struct vmm_http *http, const struct drive *drive,
                        char ret_serial[static HYPERVISOR_DRIVE_SERIAL_BYTES]);
};

extern const struct vmm_http_kind cloud_hypervisor_kind, firecracker_kind;

/* The whole act. */
void vmm_http_act(const struct vmm_http_kind *kind, const struct hypervisor_request *request,
                  uint64_t deadline_ns, struct hypervisor_reply *reply);

/* Reads the answer that has come; the outcome of the refusal that has come. */
enum hypervisor_outcome vmm_http_read(struct vmm_http *http, vmm_http_reader *reader);
enum hypervisor_outcome vmm_http_refusal(struct vmm_http *http);

/* Sets the reply's error and returns the outcome. */
enum hypervisor_outcome vmm_http_fail(const struct vmm_http *http, enum hypervisor_outcome outcome,
                                      const char *text);

/* Appends the member `name` with both buckets. Those without a limit are left out, or, if
 * `all`, are there and mean "no limit". */
void vmm_http_append_limits(struct buffer *body, const char *name,
                            const struct hypervisor_limits *limits, bool all);
