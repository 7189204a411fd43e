/* SPDX-License-Identifier: Apache-2.0 */
/* answers.h - every refusal that a CSI driver or a kubelet can get besides a volume's reasons
 * (model/reason.h), and the status it has.
 *
 * The kubelet acts on a status by a table of its own (docs/csi-drivers.md, "Status codes", has both
 * columns, and a unit test compares it with answers.c). So a refusal names its case here and never
 * picks a status itself.
 */
#pragma once

#include "lib/result.h"
#include "model/reason.h"

enum answer {
    ANSWER_BAD_REQUEST,
    ANSWER_NETWORK_VOLUME,
    ANSWER_FILE_SYSTEM,
    ANSWER_AMBIGUOUS_DEVICE,
    ANSWER_NOT_SYNCED,
    ANSWER_UNKNOWN_VOLUME,
    ANSWER_UNKNOWN_NUMBER,
    ANSWER_UNKNOWN_TO_STATS,
    ANSWER_UNKNOWN_SANDBOX,
    ANSWER_NO_SANDBOX,
    ANSWER_DEVICE_TOO_SMALL,
    ANSWER_DEVICE_TOO_LARGE,
    ANSWER_DEVICE_SHRUNK,
    ANSWER_DEVICE_HELD,
    ANSWER_NOT_STAGED,
    ANSWER_NAME_TAKEN,
    ANSWER_TOO_MANY_VOLUMES,
    ANSWER_BUSY,
    ANSWER_OUT_OF_MEMORY,
    ANSWER_DATABASE,
    ANSWER_STOPPING,
    ANSWERS,
};

/* As the docs have it: "bad_request", … */
const char *answer_name(enum answer answer);
enum status_code answer_code(enum answer answer);

/* Fills error, and is the answer's status. */
#define answer_refuse(error, answer, ...)                                                          \
    ((enum status_code)error_set((error), (int)answer_code(answer), __VA_ARGS__))

struct store;

/* ANSWER_DATABASE, with the store's last error. */
enum status_code answer_database_fails(const struct store *store, struct error *error);

/* Refuses calls whose effect would be lost by a restart: STATUS_OK, or STATUS_UNAVAILABLE with a
 * text while the database is not on disk. */
enum status_code require_durable(const struct store *store, struct error *error);
