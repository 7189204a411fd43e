/* SPDX-License-Identifier: Apache-2.0 */
/* crust_calls.h - what the services have in common. Private to api/.
 *
 * The replies of the KEP's two services are the same on the wire, so crust.v1's messages serve
 * both.
 */
#pragma once

#include "api/grpc_call.h"
#include "reconciler/command/command.h"

enum { CRUST_PATH_BYTES = 4096, CRUST_WORD_BYTES = 128, CRUST_OPTIONS = 256 };

/* Takes a text member of a request, shorter than size; `name` is its name in messages to the
 * client. */
enum status_code crust_take_text(const ProtobufCBinaryData *member, const char *name,
                                 char *ret_text, size_t size, struct error *error);

/* A list of texts. */
struct crust_options {
    const char *option[CRUST_OPTIONS];
    struct buffer texts; /* one after the other, each with its NUL */
};

#define CRUST_OPTIONS_INIT                                                                         \
    {                                                                                              \
        .texts = BUFFER_INIT(64 * 1024)                                                            \
    }

enum status_code crust_take_options(const ProtobufCBinaryData *members, size_t count,
                                    const char *name, struct crust_options *ret_options,
                                    struct error *error);
void crust_options_done(struct crust_options *options);

/* The reconciler has been asked. STATUS_OK: it replies later; otherwise the error is the reply. */
void crust_wait_or_fail(struct grpc_call *call, enum status_code code, void (*cancel)(void *work),
                        void *work, const struct error *error);

/* Each ends a call. If code is STATUS_OK, it asks the reconciler and replies later; otherwise it
 * replies with the error. */
void crust_stage(struct grpc_call *call, enum status_code code,
                 const struct reconciler_stage *asked, struct error *error);
void crust_unstage(struct grpc_call *call, enum status_code code, const char *target_path,
                   struct error *error);
void crust_expand(struct grpc_call *call, enum status_code code,
                  const struct reconciler_expand *asked, struct error *error);
void crust_count(struct grpc_call *call, enum status_code code,
                 const struct reconciler_target *target, struct error *error);
