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

#include "hypervisor/vmm_process.h"
#include "lib/buffer.h"
#include "lib/json.h"

/* ---- the drives that a VMM reports, and which of them is the device ---- */

enum {
    DRIVE_ID_BYTES = 128,
    DRIVE_PATH_BYTES = 4096,
    DRIVE_ADDRESS_BYTES = 16,
    DRIVE_SERIAL_BYTES = 64,
    DRIVE_REPORT_ENTRIES = 1024,
};

struct drive {
    char id[DRIVE_ID_BYTES];
    char *path; /* as given to the VMM; owned */
    bool read_only;
    char address[DRIVE_ADDRESS_BYTES]; /* in the guest, pci:03; "": not reported */
    char serial[DRIVE_SERIAL_BYTES];   /* as given to the VMM; "": not reported */
    const char *obstacle;              /* static: why its size cannot be re-read; NULL: it can */
};

struct drive_report {
    struct drive *entries; /* owned */
    size_t count;
};

void drive_report_done(struct drive_report *report);

/* The drive with this id; NULL: there is none. */
const struct drive *drive_report_get(const struct drive_report *report, const char *id);

/* Appends a copy with this path (drive->path is ignored). UNREACHABLE for an id or path that
 * exceeds its bounds, or an id that exists already, because a report that contradicts itself must
 * not be acted upon; for too many drives, and without memory. */
enum hypervisor_outcome drive_report_add(struct drive_report *report, const struct drive *drive,
                                         const char *path, struct error *error);

/* Whether `act` may be done to this drive, which is the device. DONE, READ_ONLY or UNSUPPORTED. */
enum hypervisor_outcome drive_report_judge(const struct drive *drive,
                                           const struct hypervisor_request *wanted,
                                           enum hypervisor_act act, struct error *error);

/* Finds the drive whose path leads to the device, which the process must also have open.
 * HYPERVISOR_DONE: *ret_drive is set, borrowed from the report, and `act` may be done to it.
 * READ_ONLY and UNSUPPORTED set it too, to name the drive; DRIVE_NOT_FOUND and MISMATCH leave it
 * unchanged. `error` has the reason. */
enum hypervisor_outcome drive_report_find(const struct drive_report *report,
                                          const struct hypervisor_request *wanted,
                                          struct vmm_process *process,
                                          const struct drive **ret_drive, struct error *error);

/* ---- acts ---- */

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
