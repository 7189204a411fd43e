/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one call of a client, over gRPC or HTTP, from its message to its one answer. Private to
 * api/.
 *
 * A method reads the message and either answers at once, or asks the reconciler, which answers
 * later.
 */
#pragma once

#include <cjson/cJSON.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/proto/crust_drive_v1.pb-c.h"
#include "api/server.h"
#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"
#include "reconciler/command/drive_form.h"

/* For clients that set no deadline. The kubelet and CSI's sidecars give up after two minutes. */
#define CALL_TIMEOUT_NS (120 * NSEC_PER_SEC)

struct call_surroundings {
    struct loop *loop;
    struct reconciler *reconciler;
    struct operations *operations; /* where calls are counted */
};

struct call;

struct call_answer {
    enum status_code code;
    const ProtobufCMessage *reply; /* with STATUS_OK; NULL: it is packed already, in `packed` */
    const struct buffer *packed;
    const char *text; /* otherwise: why not */
};

/* Sends the answer and forgets the call. Returns the status that was sent. */
typedef enum status_code call_finish(struct call *call, const struct call_answer *answer);

/* Embedded in what the transport keeps of the call. */
struct call {
    const struct call_surroundings *surroundings;
    call_finish *finish;
    const char *method; /* a constant, for metrics */
    uint64_t began_ns, timeout_ns;
    struct loop_timer deadline;
    void (*cancel)(void *work); /* set while the method has yet to answer */
    void *work;
    bool is_owed; /* of an expansion: the guest is yet to grow the file system */
};

/* For methods. Each ends the call. */
void call_reply(struct call *call, const ProtobufCMessage *reply);
void call_reply_packed(struct call *call, const struct buffer *packed); /* of gRPC's alone */
void call_fail(struct call *call, enum status_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What the reconciler answers: the reply with STATUS_OK, or else the error. */
void call_end(struct call *call, enum status_code code, const ProtobufCMessage *reply,
              const struct error *error);

/* The reconciler has been asked. STATUS_OK: it answers later; otherwise the error is the answer.
 * `cancel` is called once if the answer is no longer wanted: the client gave up, or the call's time
 * passed. Then the method must not answer. */
void call_wait_or_fail(struct call *call, enum status_code code, void (*cancel)(void *work),
                       void *work, const struct error *error);

/* For transports: the client is gone. The call is not finished any more. */
void call_cancel(struct call *call);

struct call_method {
    const char *path; /* "/package.Service/Method" */
    const ProtobufCMessageDescriptor *request;
    void (*answer)(struct call *call, const ProtobufCMessage *request);
};

/* ---- methods -------------------------------------------------------------------------------- */

/* Each ends with a row whose path is NULL. */
extern const struct call_method health_methods[];
extern const struct call_method crust_runtime_methods[];
extern const struct call_method crust_management_methods[];
extern const struct call_method crust_drives_methods[];

/* Methods of volumes that HTTP has, too. The answers of the KEP's two services are the same on the
 * wire, so crust.v1's messages serve both. */
void call_expand(struct call *call, const struct reconciler_expand *asked);
void call_count(struct call *call, const struct reconciler_target *target);

/* ---- crust drives --------------------------------------------------------------------------- */

/* A request of crust.drive.v1 as the core takes it. */

struct crust_attach {
    struct reconciler_drive_attach attach; /* borrows from the message and from below */
    const char *option[DRIVE_OPTIONS];
    struct reconciler_drive_container container[DRIVE_CONTAINERS];
};

/* Of a request that message_check() let pass. */
void crust_read_attach(const Crust__Drive__V1__AttachDriveRequest *request,
                       struct crust_attach *ret_attach);

/* ---- messages ------------------------------------------------------------------------------- */

/* Protobuf-c messages by their descriptors: from JSON, to JSON, and whether their fields keep their
 * bounds.
 *
 * A client's JSON becomes the bytes that a gRPC client would have sent, so that both are unpacked
 * and checked by the same code. Members have the names of the fields, in any letter case; one that
 * the message does not have is refused, because a misspelt "is_writable" would be taken for a
 * read-only drive. null is the same as absent. The fields of crust.drive.v1 whose numbers are
 * choices are words in JSON.
 */
enum { MESSAGE_BYTES = 64 * 1024 };

/* What the fields of requests may have at most. */
enum {
    MESSAGE_PATH_CHARS = 4095,
    MESSAGE_WORD_CHARS = 127,
    MESSAGE_MOUNT_OPTIONS = 256,
};

/* An unpacked text; "" if the field is absent. proto_unpack() puts a NUL behind each. */
const char *message_text(const ProtobufCBinaryData *field);

/* STATUS_OK or STATUS_INVALID_ARGUMENT: every text is UTF-8 without a NUL, no text or list is
 * longer than its field may be, and every choice is known. The error names the field as in
 * "containers[0].path" and shows nothing of its value. */
enum status_code message_check(const ProtobufCMessage *message, struct error *error);

/* Unpacks and checks what a client sent as JSON. id: the first field, which the client named in the
 * path and may not repeat in the body; NULL: it did not. An empty body is {} where it is optional.
 * STATUS_OK: the caller frees ret_message by proto_free(). */
struct message_source {
    const char *id;
    size_t id_length;
    bool is_optional;
    const char *body;
    size_t body_length;
};
enum status_code message_read_json(const ProtobufCMessageDescriptor *type,
                                   const struct message_source *source,
                                   ProtobufCMessage **ret_message, struct error *error);

/* Appends an answer as a JSON object with all of its fields. 0 or as buffer_append(). */
int message_append_json(struct buffer *json, const ProtobufCMessage *message);
