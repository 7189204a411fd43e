/* SPDX-License-Identifier: Apache-2.0 */
/* drive_asked.h - what a client asks of a drive: the part that gRPC and HTTP have in common.
 * Private to api/.
 *
 * Either one reads its own form of the request into a drive_asked, field by field, and then has it
 * checked. So a field has the same bounds, and the same refusal, wherever it comes from. What needs
 * the node or the guest to tell (whether the sandbox lives, what is at host_path, where vm_path
 * leads) is the core's to check.
 */
#pragma once

#include <stddef.h>

#include "api/proto/crust_drive_v1.pb-c.h"
#include "lib/buffer.h"
#include "lib/result.h"
#include "reconciler/command/drives.h"

enum {
    DRIVE_ASKED_NAME_BYTES = 48, /* "containers[15].container_id" */
    /* A request has at most that, and each of its texts takes more there than here. */
    DRIVE_ASKED_BYTES = 64 * 1024,
};

enum drive_asked_call { DRIVE_ASKED_ATTACH, DRIVE_ASKED_DETACH, DRIVE_ASKED_LIMITS };

struct drive_asked {
    enum drive_asked_call call;
    struct reconciler_drive_attach attach; /* of other calls only drive_id and limits count */
    const char *option[DRIVE_OPTIONS];
    struct reconciler_drive_container container[DRIVE_CONTAINERS];
    size_t used;
    char texts[DRIVE_ASKED_BYTES]; /* what the members above point to */
};

/* Every text of it is "". NULL: out of memory. free() frees it. */
struct drive_asked *drive_asked_new(enum drive_asked_call call);

/* The bytes of a text member; `name` is its name in messages to the client. */
struct drive_asked_text {
    const char *name;
    const void *bytes;
    size_t length;
};

/* Each takes one text, of at most `limit` bytes, or refuses it. */
enum status_code drive_asked_take(struct drive_asked *asked, const struct drive_asked_text *text,
                                  size_t limit, const char **ret_text, struct error *error);
enum status_code drive_asked_add_option(struct drive_asked *asked, const void *bytes, size_t length,
                                        struct error *error);

/* The next container, whose texts are "". Its name is "containers[0]". NULL: too many, and the
 * error is filled. */
struct reconciler_drive_container *
drive_asked_add_container(struct drive_asked *asked, char ret_name[static DRIVE_ASKED_NAME_BYTES],
                          struct error *error);

/* Whether the fields that the call needs are there and well-formed: STATUS_OK or
 * STATUS_INVALID_ARGUMENT. The error names a field and never shows an option. */
enum status_code drive_asked_check(const struct drive_asked *asked, struct error *error);

/* ---- drive message -------------------------------------------------------------------------- */

/* Messages of crust.drive.v1: what a request asks, and what a drive is. Private
 * to api/. */

/* Each takes all of a request and checks it. STATUS_OK, or the refusal. */
enum status_code drive_message_take_attach(const Crust__Drive__V1__AttachDriveRequest *request,
                                           struct drive_asked *asked, struct error *error);
enum status_code
drive_message_take_limits(const Crust__Drive__V1__UpdateDriveLimitsRequest *request,
                          struct drive_asked *asked, struct error *error);

/* Appends the packed ListDrivesResponse of one drive, which is the same as the packed response of
 * each call that answers a drive. Several of them in a row are the response of all. 0, or as
 * buffer_append(). */
int drive_message_append(struct buffer *bytes, const struct reconciler_drive *drive);
